//! Second processes that a case starts from the same program.
//!
//! The program is run again with the same arguments; an environment variable names the role of the child. The child
//! opens a backend, prints one line as its answer, and exits.

use std::env;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio, exit};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use cachette_hal::Ordinal;

use crate::cases;
use crate::failure::{Stop, Verdict};
use crate::fixture::Fixture;
use crate::isolate;
use crate::rig::Subject;

const ROLE: &str = "CACHETTE_CONFORMANCE_ROLE";
const FIXTURE: &str = "CACHETTE_CONFORMANCE_FIXTURE";
const DEVICE: &str = "CACHETTE_CONFORMANCE_DEVICE";
const ARGUMENTS: &str = "CACHETTE_CONFORMANCE_ARGUMENTS";

/// The prefix of the answer; drivers may print other lines.
const ANSWER: &str = "conformance-answer ";
const LIMIT: Duration = Duration::from_secs(150);

/// Declares the table `ROLES` of one file; each role is the function of its name.
macro_rules! roles {
    ($($role:ident),+ $(,)?) => {
        pub(super) const ROLES: &[$crate::case::Role] =
            &[$($crate::case::Role { name: stringify!($role), play: $role }),+];
    };
}
pub(crate) use roles;

/// The name of the fixture whose child this process is; `None` in an ordinary process.
///
/// A program with several fixtures uses it to select the one for [`play_if_child`].
#[must_use]
pub fn fixture_name() -> Option<String> {
    env::var_os(ROLE)?;
    env::var(FIXTURE).ok()
}

/// In a child process of a case, runs its role and exits.
///
/// Every `main` calls it, directly or through [`main`](crate::main) or [`run`](crate::run), before anything
/// else.
pub fn play_if_child(fixture: &Arc<Fixture>) {
    let Ok(role) = env::var(ROLE) else { return };
    if role == isolate::ROLE {
        isolate::play(fixture, ordinal(), &env::var(ARGUMENTS).unwrap_or_default());
    }
    let answer = match play(fixture, &role) {
        Ok(answer) => format!("ok {answer}"),
        Err(Stop::Failed(failure)) => format!("failed {failure}"),
        Err(Stop::Skipped(reason)) => format!("skipped {reason}"),
    };
    println!("\n{ANSWER}{}", answer.replace('\n', " "));
    exit(0);
}

fn play(fixture: &Arc<Fixture>, role: &str) -> Verdict<String> {
    let role = cases::ROLES
        .iter()
        .flat_map(|roles| roles.iter())
        .find(|known| known.name == role)
        .ok_or_else(|| Stop::failed(format!("no role is called '{role}'")))?;
    let arguments = env::var(ARGUMENTS).unwrap_or_default();
    let subject = Subject::open(Arc::clone(fixture), ordinal())?;
    (role.play)(&subject, &arguments)
}

fn ordinal() -> Ordinal {
    env::var(DEVICE).ok().and_then(|text| text.parse().ok()).unwrap_or(Ordinal(0))
}

/// The command that starts this program again, as a child with a role.
pub(crate) fn command(fixture: &Fixture, ordinal: Ordinal, role: &str, arguments: &str) -> io::Result<Command> {
    let mut own = env::args_os();
    let mut command = Command::new(env::current_exe()?);
    // An interpreter of Python finds its packages by the name that it was started with.
    if let Some(name) = own.next() {
        command.arg0(name);
    }
    command
        .args(own)
        .env(ROLE, role)
        .env(FIXTURE, fixture.name.as_str())
        .env(DEVICE, ordinal.to_string())
        .env(ARGUMENTS, arguments);
    Ok(command)
}

impl Subject {
    /// Runs a child and returns its answer; `stdin`, if any, becomes its standard input.
    pub(crate) fn child(&self, role: &str, arguments: &str, stdin: Option<OwnedFd>) -> Verdict<String> {
        let child = command(&self.fixture, self.ordinal, role, arguments)
            .map_err(|error| refused("find this program", &error))?
            .stdin(stdin.map_or_else(Stdio::null, Stdio::from))
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| refused("start a child", &error))?;
        let (status, output) = finish(child)?;
        let answer = output
            .lines()
            .find_map(|line| line.strip_prefix(ANSWER))
            .ok_or_else(|| Stop::failed(format!("the child gave no answer ({status})")))?;
        match answer.split_once(' ').unwrap_or((answer, "")) {
            ("ok", answer) => Ok(answer.to_owned()),
            ("skipped", reason) => Err(Stop::skipped(reason)),
            (_, text) => Err(Stop::failed(format!("in the child: {text}"))),
        }
    }
}

fn finish(mut child: Child) -> Verdict<(ExitStatus, String)> {
    let deadline = Instant::now() + LIMIT;
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if Instant::now() < deadline => thread::sleep(Duration::from_millis(2)),
            Ok(None) => {
                // It may have exited in the meantime; in both cases it is reaped.
                let _ = child.kill();
                let _ = child.wait();
                let seconds = LIMIT.as_secs();
                return Err(Stop::failed(format!("the child took more than {seconds} s")));
            }
            Err(error) => return Err(refused("wait for the child", &error)),
        }
    };
    let mut output = String::new();
    if let Some(mut stdout) = child.stdout.take() {
        stdout.read_to_string(&mut output).map_err(|error| refused("read the child's answer", &error))?;
    }
    Ok((status, output))
}

fn refused(what: &str, error: &io::Error) -> Stop {
    Stop::failed(format!("cannot {what}: {error}"))
}
