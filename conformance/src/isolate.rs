//! Cases in child processes: a driver that ends its process, or hangs it, costs one case and not the report.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use cachette_hal::Ordinal;
use serde::{Deserialize, Serialize};

use crate::case::Case;
use crate::cases;
use crate::child::command;
use crate::exit::{exit_now, has_hung};
use crate::fixture::Fixture;
use crate::report::{CaseReport, Outcome};
use crate::runner::Bench;

pub(crate) const ROLE: &str = "run_cases";

/// The prefix of the lines of such a child; drivers may print other lines.
const LINE: &str = "conformance-cases ";
/// How often a silent child is looked at.
const PAUSE: Duration = Duration::from_millis(20);

#[derive(Debug, Serialize, Deserialize)]
struct Request {
    limit: Duration,
    cases: Vec<String>,
}

#[derive(Debug, Serialize, Deserialize)]
enum Line {
    /// The child could not open the device.
    NotOpened(String),
    /// The next case begins.
    Begun,
    /// It has ended.
    Ended { outcome: Outcome, seconds: f64 },
}

/// Runs the cases of a request in this process, and leaves without running destructors of the driver.
pub(crate) fn play(fixture: &Arc<Fixture>, ordinal: Ordinal, arguments: &str) -> ! {
    let say = |line: &Line| println!("\n{LINE}{}", serde_json::to_string(line).unwrap_or_default());
    let request = serde_json::from_str::<Request>(arguments);
    let request = request.map_err(|error| format!("the list of cases cannot be read: {error}"));
    let opened = request.and_then(|request| {
        let bench = Bench::open(fixture, Some(ordinal)).map_err(|error| error.to_string())?;
        Ok((request, bench))
    });
    let (request, bench) = opened.unwrap_or_else(|why| {
        say(&Line::NotOpened(why));
        exit_now(1)
    });
    for case in request.cases.iter().filter_map(|name| cases().iter().find(|case| case.name == name)) {
        say(&Line::Begun);
        let CaseReport { outcome, seconds, .. } = bench.run(case, request.limit);
        say(&Line::Ended { outcome, seconds });
        // The thread of a case that hung is still inside the driver, so a further child runs the others.
        if has_hung() {
            break;
        }
    }
    exit_now(0)
}

/// Runs cases in child processes, each after the end of the one before, and reports them in order.
pub(crate) fn run(bench: &Bench, mut left: &[&Case], limit: Duration, mut ended: impl FnMut(CaseReport)) {
    while !left.is_empty() {
        let done = run_child(bench, left, limit, &mut ended);
        left = &left[done..];
    }
}

/// Runs cases in a child until it ends. Returns how many were reported: all, or up to the one that ended it.
fn run_child(bench: &Bench, left: &[&Case], limit: Duration, ended: &mut impl FnMut(CaseReport)) -> usize {
    let mut started = Instant::now();
    let mut watched = match Watched::start(bench, left, limit) {
        Ok(watched) => watched,
        Err(error) => {
            let text = format!("a child process does not start: {error}");
            ended(bench.report(left[0], Outcome::Failed { text }, started));
            return 1;
        }
    };
    let (mut done, mut is_running) = (0, false);
    let end = loop {
        match watched.next() {
            Ok(Line::Begun) => (started, is_running) = (Instant::now(), true),
            Ok(Line::Ended { outcome, seconds }) => {
                let case = left[done];
                ended(CaseReport { name: case.name, about: case.about, outcome, seconds });
                (done, is_running) = (done + 1, false);
                if done == left.len() {
                    watched.stop();
                    return done;
                }
            }
            Ok(Line::NotOpened(why)) => break why,
            Err(end) => break end,
        }
    };
    watched.stop();
    if is_running || done == 0 {
        let case = left[done];
        let text = format!("{end}, in {}", case.name);
        ended(bench.report(case, Outcome::Failed { text }, started));
        done += 1;
    }
    done
}

/// A child that runs cases, and its lines.
struct Watched {
    child: Child,
    lines: Receiver<Line>,
    /// How long it may say nothing: twice the limit of a case, since it opens the device and notices a hang itself.
    limit: Duration,
}

impl Watched {
    fn start(bench: &Bench, cases: &[&Case], limit: Duration) -> std::io::Result<Self> {
        let cases = cases.iter().map(|case| case.name.to_owned()).collect();
        let arguments = serde_json::to_string(&Request { limit, cases })?;
        let mut command = command(&bench.fixture, bench.ordinal, ROLE, &arguments)?;
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let lines = child.stdout.take().map_or_else(|| channel().1, read_lines);
        Ok(Self { child, lines, limit: limit.saturating_mul(2) })
    }

    /// Waits for a line. Returns how the child ended if there is none.
    fn next(&mut self) -> Result<Line, String> {
        let start = Instant::now();
        loop {
            let is_silent = match self.lines.recv_timeout(PAUSE) {
                Ok(line) => return Ok(line),
                Err(RecvTimeoutError::Disconnected) => true,
                // A process that the child started may keep the output open.
                Err(RecvTimeoutError::Timeout) => start.elapsed() >= self.limit,
            };
            match self.child.try_wait() {
                Ok(Some(status)) if is_silent => return Err(format!("the process ended ({status})")),
                Ok(_) if start.elapsed() < self.limit => thread::sleep(if is_silent { PAUSE } else { Duration::ZERO }),
                Ok(_) => return Err(format!("hung: the process said nothing for {} s", self.limit.as_secs_f32())),
                Err(error) => return Err(format!("the process cannot be waited for: {error}")),
            }
        }
    }

    /// Ends the child, if it has not ended.
    fn stop(mut self) {
        // Both fail if it has ended and is reaped.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads the lines of a child on a separate thread, which ends with the child's output.
fn read_lines(output: impl Read + Send + 'static) -> Receiver<Line> {
    let (send, receive) = channel();
    thread::spawn(move || {
        // A driver may print bytes that are no text.
        for line in BufReader::new(output).split(b'\n').map_while(Result::ok) {
            let line = line.strip_prefix(LINE.as_bytes()).and_then(|line| serde_json::from_slice(line).ok());
            if line.is_some_and(|line| send.send(line).is_err()) {
                return;
            }
        }
    });
    receive
}
