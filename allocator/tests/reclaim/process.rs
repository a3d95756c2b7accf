//! A process on a shared device, which executes commands, line by line.
//!
//! It is this test program, asked for one test that does nothing unless an environment variable says that it is such a
//! process. It then reads commands from its standard input.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write, stdin};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use std::{env, fs, iter, ptr, thread};

use cachette::evict::{Priority, Resident};
use cachette::hal::Device;
use cachette::{Allocation, Allocator, Backends, Notice, OutsideKind, Pool, PoolOptions, Stream};
use cachette_ipc::reclaim::{Figures, Give, Holder, Neighbour, Place, Registration, register};

pub(crate) const MIB: u64 = 1 << 20;
/// The configuration of most processes: chunks of one page, so that they give exactly what is asked for.
pub(crate) const RECLAIM: &str = "elastic_setting:compact,reclaim:True";

/// The configuration of such a process, and that it is one.
const CONFIG: &str = "CACHETTE_RECLAIM_TEST";
/// What answers begin with; the test harness writes lines of its own.
const ANSWER: &str = "reclaim-process ";

/// A device that processes share, and its file.
pub(crate) struct Card {
    file: PathBuf,
    mib: u64,
    folder: Option<PathBuf>,
}

impl Card {
    pub(crate) fn new(mib: u64) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let name = format!("cachette-card-{}-{}", std::process::id(), NEXT.fetch_add(1, Relaxed));
        Self { file: env::temp_dir().join(name), mib, folder: None }
    }

    /// The processes find each other in a folder.
    pub(crate) fn meeting_in(mut self, folder: &str) -> Self {
        self.folder = Some(folder.into());
        self
    }

    pub(crate) fn file(&self) -> &PathBuf {
        &self.file
    }

    /// Starts a process.
    pub(crate) fn process(&self, config: &str) -> Process {
        self.process_with(config, |_| {})
    }

    /// Starts a process that is prepared.
    pub(crate) fn process_with(&self, config: &str, prepare: impl FnOnce(&mut Command)) -> Process {
        let mut command = Command::new(env::current_exe().expect("a program knows where it is"));
        command.args(["process::reclaim_process", "--exact", "--nocapture"]).env(CONFIG, config);
        command.env("CACHETTE_HOST_SHARED", &self.file).env("CACHETTE_HOST_CAPACITY", format!("{}MiB", self.mib));
        command.envs(self.folder.iter().map(|folder| ("CACHETTE_RECLAIM_DIR", folder)));
        prepare(&mut command);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the program starts again");
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let mut process = Process { child, input, output };
        process.done("ready");
        process
    }
}

impl Drop for Card {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.file);
    }
}

/// A process. It is killed if it has not ended by itself.
pub(crate) struct Process {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Process {
    /// Executes a command, and returns its answer or its error.
    pub(crate) fn ask(&mut self, command: &str) -> Result<String, String> {
        self.tell(command);
        self.answer()
    }

    /// Begins a command whose answer is read later.
    pub(crate) fn tell(&mut self, command: &str) {
        writeln!(self.input, "{command}").expect("the process reads");
    }

    pub(crate) fn answer(&mut self) -> Result<String, String> {
        let mut line = String::new();
        loop {
            line.clear();
            assert_ne!(self.output.read_line(&mut line).expect("the process answers"), 0, "the process has ended");
            if let Some((_, answer)) = line.split_once(ANSWER) {
                return match answer.trim_end().split_once(' ').unwrap_or((answer.trim_end(), "")) {
                    ("ok", answer) => Ok(answer.to_owned()),
                    (_, error) => Err(error.replace('\t', "\n")),
                };
            }
        }
    }

    /// Executes a command that succeeds.
    pub(crate) fn done(&mut self, command: &str) {
        self.ask(command).unwrap_or_else(|error| panic!("{command}: {error}"));
    }

    /// A figure of the process.
    pub(crate) fn figure(&mut self, name: &str) -> u64 {
        self.ask(&format!("figure {name}")).unwrap().parse().unwrap()
    }

    pub(crate) fn reserved_mib(&mut self) -> u64 {
        self.figure("reserved") / MIB
    }

    /// Waits until the process holds so many MiB: it counts what it released a little later than the device.
    pub(crate) fn comes_to(&mut self, mib: u64) {
        let mut held = 0;
        let reached = soon(|| {
            held = self.reserved_mib();
            held == mib
        });
        assert!(reached, "the process holds {held} MiB and not {mib}");
    }

    pub(crate) fn signal(&self, signal: i32) {
        // SAFETY: it sends a signal to a child that has not been waited for.
        assert_eq!(unsafe { libc::kill(self.pid().cast_signed(), signal) }, 0);
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn kill(mut self) {
        self.child.kill().expect("it lives");
        self.child.wait().expect("it ends");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Not a test: the process, if the environment says so.
#[test]
fn reclaim_process() {
    let Ok(config) = env::var(CONFIG) else { return };
    let mut state = State::new(&config);
    for line in stdin().lock().lines() {
        let answer = match state.execute(&line.expect("the parent writes text")) {
            Ok(answer) => format!("ok {answer}"),
            Err(error) => format!("error {}", error.replace('\n', "\t")),
        };
        println!("{ANSWER}{answer}");
    }
}

/// A process that claims idle memory and releases none: it lies, its driver is shutting down, or it dies when it is asked.
struct Claims {
    bytes: u64,
    state: String,
    was_asked: AtomicBool,
}

impl Neighbour for Claims {
    fn figures(&self) -> Figures {
        if self.state == "dying" && self.was_asked.load(Relaxed) {
            thread::park();
        }
        let mut figures = Figures::default();
        (figures.pid, figures.reserved, figures.idle) = (std::process::id(), self.bytes, self.bytes);
        figures.is_ending = self.state == "ending";
        figures
    }
    fn give(&self, _: Give) -> u64 {
        self.was_asked.store(true, Relaxed);
        0
    }
    fn holders(&self) -> Vec<Holder> {
        Vec::new()
    }
    fn write_snapshot(&self) -> String {
        String::new()
    }
    fn tick(&self) {}
}

struct State {
    allocator: Allocator,
    stream: Stream,
    alone: Arc<AtomicU64>,
    memory: BTreeMap<String, Allocation>,
    pools: BTreeMap<String, Pool>,
    guards: BTreeMap<String, Resident>,
    claims: Vec<(Registration, Arc<dyn Neighbour>)>,
}

impl State {
    fn new(config: &str) -> Self {
        let allocator = Allocator::with_config(Backends::open("host").unwrap(), &config.parse().unwrap());
        let alone = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&alone);
        allocator.on_notice(move |notice| {
            if matches!(notice, Notice::Alone { .. }) {
                count.fetch_add(1, Relaxed);
            }
        });
        let stream = allocator.create_stream().unwrap();
        let (memory, pools, guards) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { allocator, stream, alone, memory, pools, guards, claims: Vec::new() }
    }

    fn execute(&mut self, line: &str) -> Result<String, String> {
        let words: Vec<_> = line.split(' ').collect();
        let number = |text: &str| text.parse::<u64>().unwrap();
        match words[..] {
            ["ready"] => {}
            ["allocate", name, mib] => {
                let memory = self.allocator.allocate(number(mib) * MIB, &self.stream).map_err(|e| e.to_string())?;
                self.memory.insert(name.to_owned(), memory);
            }
            ["claim", mib, state] => {
                let (bytes, state) = (number(mib) * MIB, state.to_owned());
                let neighbour: Arc<dyn Neighbour> =
                    Arc::new(Claims { bytes, state, was_asked: AtomicBool::new(false) });
                let device = self.allocator.device_info().uuid;
                let answers = Some((&Place::of_environment(), &device));
                let registration = register(answers, None, Arc::downgrade(&neighbour)).map_err(|it| it.to_string())?;
                self.claims.push((registration, neighbour));
            }
            ["take", mib] => {
                let (device, bytes) = (self.allocator.device(), number(mib) * MIB);
                let take = || device.allocate(bytes).map(drop);
                self.allocator.take_outside(OutsideKind::Device, bytes, take).map_err(|error| error.to_string())?;
            }
            ["free", name] => drop(self.memory.remove(name)),
            ["pool", name, priority, mib] => {
                let options = PoolOptions::new().evictable(Priority(number(priority).try_into().unwrap()));
                let pool = self.allocator.create_pool_with(options).map_err(|error| error.to_string())?;
                let memory = pool.allocate(number(mib) * MIB, &self.stream).map_err(|error| error.to_string())?;
                write(&memory, 7);
                self.memory.insert(name.to_owned(), memory);
                self.pools.insert(name.to_owned(), pool);
            }
            ["resident", name] => {
                let guard = self.pools[name].make_resident().map_err(|error| error.to_string())?;
                self.guards.insert(name.to_owned(), guard);
            }
            ["leave", name] => drop(self.guards.remove(name)),
            ["asleep", name] => return Ok(self.pools[name].is_asleep().to_string()),
            ["holds", name] => return Ok(holds(&self.memory[name], 7).to_string()),
            ["figure", name] => return Ok(self.figure(name).to_string()),
            ["churn", rounds, mib] => self.churn(number(rounds), number(mib))?,
            ["fork"] => fork_and_wait(),
            ["config", text] => self.allocator.set_config(&text.parse().unwrap()),
            _ => panic!("no such command: {line}"),
        }
        Ok(String::new())
    }

    fn figure(&self, name: &str) -> u64 {
        let stats = self.allocator.stats();
        match name {
            "reserved" => stats.reserved_bytes.all.current,
            "asks" => stats.num_reclaims,
            "received" => stats.reclaimed_bytes,
            "given" => stats.given_bytes,
            "evictions" => stats.num_evictions,
            "ooms" => stats.num_ooms,
            "alone" => self.alone.load(Relaxed),
            _ => panic!("no such figure: {name}"),
        }
    }

    /// Allocates and frees memory of random sizes, and checks every byte of it.
    fn churn(&mut self, rounds: u64, mib: u64) -> Result<(), String> {
        let mut random = fastrand::Rng::with_seed(u64::from(std::process::id()));
        for round in 0..rounds {
            let byte = u8::try_from(round % 251).unwrap();
            let bytes = random.u64(1..=mib * MIB);
            let memory = self.allocator.allocate(bytes, &self.stream).map_err(|error| error.to_string())?;
            write(&memory, byte);
            thread::sleep(Duration::from_micros(random.u64(0..2000)));
            if !holds(&memory, byte) {
                return Err(format!("round {round} lost a byte"));
            }
        }
        Ok(())
    }
}

/// Writes a byte into all of the memory of the host device, which is memory of this process.
fn write(memory: &Allocation, byte: u8) {
    let bytes = usize::try_from(memory.bytes()).unwrap();
    // SAFETY: the host device's memory is readable and writable, and no queued work uses it.
    unsafe { ptr::write_bytes(memory.address() as *mut u8, byte, bytes) };
}

fn holds(memory: &Allocation, byte: u8) -> bool {
    let bytes = usize::try_from(memory.bytes()).unwrap();
    // SAFETY: as in `write`.
    let found = unsafe { std::slice::from_raw_parts(memory.address() as *const u8, bytes) };
    found.iter().all(|found| *found == byte)
}

/// Forks a child that outlives this process by 0.3 seconds.
fn fork_and_wait() {
    let parent = std::process::id();
    // SAFETY: the child makes only system calls.
    if unsafe { libc::fork() } == 0 {
        while std::os::unix::process::parent_id() == parent {
            thread::sleep(Duration::from_millis(1));
        }
        thread::sleep(Duration::from_millis(300));
        // SAFETY: it ends the child without destructors.
        unsafe { libc::_exit(0) };
    }
}

/// Waits until a figure of a process is reached.
pub(crate) fn soon(mut is_true: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + Duration::from_secs(10);
    iter::from_fn(|| (Instant::now() < end).then(|| thread::sleep(Duration::from_millis(2)))).any(|()| is_true())
}
