//! A second process, which executes commands, line by line.
//!
//! It is this test program, asked for one test that does nothing unless an environment variable says that it is the
//! second process. It then reads commands from its standard input.

use std::collections::BTreeMap;
use std::env;
use std::fs::File;
use std::io;
use std::io::{BufRead, BufReader, Write, stdin};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio, abort};

use cachette::{Allocation, Allocator, Backends, ImportedMemory, SharedMemory};

use crate::bytes::{from_hex, holds, put, to_hex};
use crate::refusals::socket_of;

/// Names the device of the second process, and that it is one.
const TARGET: &str = "CACHETTE_SHARING_TARGET";
/// Restricts the second process to one transport.
const TRANSPORT: &str = "CACHETTE_SHARE_BY";
/// What answers begin with; the test harness and drivers write lines of their own.
const ANSWER: &str = "second-process ";

/// A second process. It is killed if it has not ended by itself.
pub(crate) struct Second {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Second {
    /// One with a device made of host memory.
    pub(crate) fn start() -> Self {
        Self::start_on("host")
    }

    /// One with the device that `target` names.
    pub(crate) fn start_on(target: &str) -> Self {
        Self::run(&mut Self::command(target))
    }

    /// One with a device made of host memory, of another user.
    pub(crate) fn start_as(user: u32) -> Self {
        Self::run(Self::command("host").uid(user))
    }

    /// One that has opened this memory as `it`.
    pub(crate) fn with(shared: &SharedMemory) -> Self {
        let mut second = Self::start();
        second.open("it", &shared.handle()).expect("it opens");
        second
    }

    /// One that shares so many MiB with the pattern of 5, and their handle.
    pub(crate) fn sharing(config: &str, mib: u64) -> (Self, Vec<u8>) {
        let mut second = Self::start();
        let handle = second.ask(&format!("share {config} {mib} 5")).expect("it can be shared");
        (second, from_hex(&handle))
    }

    /// One that may have so many descriptors.
    pub(crate) fn start_within(descriptors: u64) -> Self {
        let mut command = Self::command("host");
        let limit = libc::rlimit { rlim_cur: descriptors, rlim_max: descriptors };
        let lower = move || {
            // SAFETY: it is a system call, which reads a live variable.
            match unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) } {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            }
        };
        // SAFETY: between fork and exec it makes one system call, and nothing else.
        unsafe { command.pre_exec(lower) };
        Self::run(&mut command)
    }

    /// One that uses only `transport`, on the device that `target` names.
    pub(crate) fn start_by(transport: &str, target: &str) -> Self {
        Self::run(Self::command(target).env(TRANSPORT, transport))
    }

    /// As [`start_by`](Self::start_by), of another user.
    pub(crate) fn start_by_as(transport: &str, user: u32) -> Self {
        Self::run(Self::command("host").env(TRANSPORT, transport).uid(user))
    }

    /// One in a new network namespace, if this process may make one; `transport` as above, or none.
    pub(crate) fn start_apart(transport: Option<&str>) -> io::Result<Self> {
        let mut command = Self::command("host");
        command.envs(transport.map(|transport| (TRANSPORT, transport)));
        let leave = || {
            // SAFETY: it is a system call, and the child has one thread.
            match unsafe { libc::unshare(libc::CLONE_NEWNET) } {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            }
        };
        // SAFETY: between fork and exec it makes one system call, and nothing else.
        unsafe { command.pre_exec(leave) };
        Self::try_run(&mut command)
    }

    fn command(target: &str) -> Command {
        let program = env::current_exe().expect("a program knows where it is");
        let mut command = Command::new(program);
        command.args(["second::second_process", "--exact", "--nocapture"]).env(TARGET, target).env_remove(TRANSPORT);
        command
    }

    fn run(command: &mut Command) -> Self {
        Self::try_run(command).expect("the program starts again")
    }

    fn try_run(command: &mut Command) -> io::Result<Self> {
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = piped.spawn()?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        Ok(Self {
            child,
            input: input.expect("it was asked for"),
            output: BufReader::new(output.expect("it was asked for")),
        })
    }

    /// Tells it to do something; what it answers, or why it could not.
    pub(crate) fn ask(&mut self, line: &str) -> Result<String, String> {
        writeln!(self.input, "{line}").expect("the second process listens");
        let mut said = String::new();
        loop {
            said.clear();
            let read = self.output.read_line(&mut said).expect("it answers");
            assert!(read > 0, "the second process ended at: {line}");
            let Some(answer) = said.trim_end().strip_prefix(ANSWER) else {
                continue;
            };
            return match answer.split_once(' ').unwrap_or((answer, "")) {
                ("ok", answer) => Ok(answer.to_owned()),
                (_, why) => Err(why.to_owned()),
            };
        }
    }

    /// Lets it open a handle under a name.
    pub(crate) fn open(&mut self, name: &str, handle: &[u8]) -> Result<String, String> {
        self.ask(&format!("open {name} {}", to_hex(handle)))
    }

    /// Lets it end without any farewell.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ends");
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Second {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What the second process has.
struct Player {
    allocator: Allocator,
    imported: BTreeMap<String, ImportedMemory>,
    shared: Vec<(Allocation, SharedMemory)>,
    /// What it keeps open for no use.
    idle: Vec<OwnedFd>,
}

/// Executes commands in the second process; does nothing in the first.
#[test]
fn second_process() {
    let Ok(target) = env::var(TARGET) else {
        return;
    };
    let device = Backends::open(&target).expect("the device opens");
    let mut player =
        Player { allocator: Allocator::new(device), imported: BTreeMap::new(), shared: Vec::new(), idle: Vec::new() };
    for line in stdin().lines() {
        let line = line.expect("the first process writes text");
        let words: Vec<&str> = line.split(' ').collect();
        let answer = match player.play(&words) {
            Ok(answer) => format!("ok {answer}"),
            Err(why) => format!("failed {why}"),
        };
        println!("\n{ANSWER}{answer}");
    }
}

impl Player {
    fn play(&mut self, words: &[&str]) -> Result<String, String> {
        match *words {
            ["open", name, handle] => {
                let opened = self.allocator.open_shared(&from_hex(handle));
                let opened = opened.map_err(|error| error.to_string())?;
                let answer = format!("{} {}", opened.bytes(), opened.address());
                self.imported.insert(name.to_owned(), opened);
                Ok(answer)
            }
            ["holds", name, seed] => {
                let at = self.find(name)?;
                let seed = seed.parse().map_err(|_| "no seed")?;
                let same = holds(self.allocator.device(), at.address(), at.bytes(), seed);
                Ok(same.to_string())
            }
            ["holds", name, seed, offset, bytes] => {
                let at = self.find(name)?.address();
                let number = |text: &str| text.parse::<u64>().map_err(|_| "no number");
                let (at, bytes) = (at + number(offset)?, number(bytes)?);
                let same = holds(self.allocator.device(), at, bytes, number(seed)?);
                Ok(same.to_string())
            }
            ["put", name, seed] => {
                let at = self.find(name)?;
                let seed = seed.parse().map_err(|_| "no seed")?;
                put(self.allocator.device(), at.address(), at.bytes(), seed);
                Ok(String::new())
            }
            ["kept", name] => Ok(self.find(name)?.is_kept().to_string()),
            ["close", name] => {
                self.imported.remove(name).ok_or("nothing is open so")?;
                Ok(String::new())
            }
            // One of them reads the folder.
            ["descriptors"] => {
                let open = std::fs::read_dir("/proc/self/fd").map_err(|e| e.to_string())?;
                Ok(open.count().to_string())
            }
            ["readers"] => {
                let readers = self.shared.iter().map(|(_, shared)| shared.readers());
                Ok(readers.sum::<usize>().to_string())
            }
            // Opens files until there is no descriptor left.
            ["exhaust"] => {
                let files = std::iter::from_fn(|| File::open("/dev/null").ok());
                self.idle.extend(files.map(OwnedFd::from));
                Ok(self.idle.len().to_string())
            }
            ["relax"] => {
                self.idle.clear();
                Ok(String::new())
            }
            // Takes the name that a handle tells of, once it is free.
            ["squat", handle] => {
                let (socket, address) = socket_of(&from_hex(handle));
                let taken = rustix::net::bind(&socket, &address);
                let taken = taken.and_then(|()| rustix::net::listen(&socket, 8));
                taken.map_err(|error| error.to_string())?;
                self.idle.push(socket);
                Ok(String::new())
            }
            ["share", config, mib, seed] => self.share(config, mib, seed),
            ["abort"] => abort(),
            _ => Err("no such command".to_owned()),
        }
    }

    fn find(&self, name: &str) -> Result<&ImportedMemory, String> {
        let found = self.imported.get(name);
        found.ok_or_else(|| format!("nothing is open as {name}"))
    }

    fn share(&mut self, config: &str, mib: &str, seed: &str) -> Result<String, String> {
        let (mib, seed): (u64, u64) = (mib.parse().map_err(|_| "no size")?, seed.parse().map_err(|_| "no seed")?);
        let config = config.parse().map_err(|_| "no configuration")?;
        self.allocator.set_config(&config);
        let stream = self.allocator.create_stream().map_err(|e| e.to_string())?;
        let memory = self.allocator.allocate(mib << 20, &stream);
        let memory = memory.map_err(|error| error.to_string())?;
        put(self.allocator.device(), memory.address(), memory.bytes(), seed);
        let shared = self.allocator.share(&memory).map_err(|e| e.to_string())?;
        let answer = to_hex(&shared.handle());
        self.shared.push((memory, shared));
        Ok(answer)
    }
}
