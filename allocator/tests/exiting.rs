//! A process exits cleanly whatever objects it still holds, and in whatever order destructors run.
//!
//! Every case is a separate process: it holds an object and returns from `main`. It must exit with success and without
//! output.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::cell::RefCell;
use std::process::{Command, ExitCode, Stdio};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};
use std::{env, io};

use cachette::hal::{AnyDevice, Call, ErrorKind, Ordinal};
use cachette::{Allocation, Allocator, Config, PinnedAllocation, Pool, Stream};
use cachette_hal_host::{Hold, HostBackend, HostConfig, HostDevice};
use libtest_mimic::{Arguments, Failed, Trial};

/// The environment variable that names the case to run.
const CASE: &str = "CACHETTE_EXIT_CASE";
/// The time limit of a case. No case waits, so a process that runs longer hangs.
const PATIENCE: Duration = Duration::from_secs(60);

const CASES: &[(&str, fn())] = &[
    ("memory_in_statics_stays_there", statics),
    ("memory_in_thread_locals_is_freed_last", thread_locals),
    ("memory_in_thread_locals_is_freed_first", thread_locals_first),
    ("thread_locals_of_a_thread_that_ends", thread_that_ends),
    ("requests_at_the_end_of_a_thread_inside_a_pool", inside_at_the_end),
    ("a_stream_that_never_ends", busy_stream),
    ("threads_that_still_allocate", busy_threads),
    ("a_background_thread_for_pinned_memory", background),
    ("an_allocator_that_goes_after_its_driver", after_the_driver),
    #[cfg(unix)]
    ("a_handler_that_still_allocates", handler),
    #[cfg(unix)]
    ("a_forked_child_that_leaves_main", forked),
];

fn main() -> ExitCode {
    if let Ok(name) = env::var(CASE) {
        let (_, case) = CASES.iter().find(|(known, _)| *known == name).expect("the parent names a case");
        case();
        return ExitCode::SUCCESS;
    }
    let trial = |&(name, _): &(&'static str, fn())| Trial::test(name, move || run(name));
    let trials = CASES.iter().map(trial).collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// Runs a case in a separate process.
fn run(name: &str) -> Result<(), Failed> {
    let mut command = Command::new(env::current_exe()?);
    command.env(CASE, name).stdout(Stdio::piped());
    let mut child = command.stderr(Stdio::piped()).spawn()?;
    let begun = Instant::now();
    while child.try_wait()?.is_none() {
        if begun.elapsed() > PATIENCE {
            child.kill()?;
            child.wait()?;
            return Err("the process did not end".into());
        }
        thread::sleep(Duration::from_millis(5));
    }
    let output = child.wait_with_output()?;
    let said = [output.stdout, output.stderr].concat();
    if output.status.success() && said.is_empty() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&said).into_owned();
    Err(io::Error::other(format!("{}: {said}", output.status)).into())
}

/// Some of all that a process can hold of an allocator.
struct Held {
    _memory: Allocation,
    _pinned: PinnedAllocation,
    pool: Pool,
    stream: Stream,
    allocator: Allocator,
    device: HostDevice,
}

impl Held {
    fn new(config: &str) -> Self {
        let config: Config = config.parse().unwrap();
        let backend = HostBackend::new(HostConfig::default()).unwrap();
        let device = backend.device(Ordinal(0)).unwrap();
        let allocator = Allocator::with_config(Arc::new(device.clone()) as AnyDevice, &config);
        let stream = allocator.create_stream().unwrap();
        Self {
            _memory: allocator.allocate(1 << 20, &stream).unwrap(),
            _pinned: allocator.pinned().allocate(4096).unwrap(),
            pool: allocator.create_pool(),
            stream,
            allocator,
            device,
        }
    }

    /// Allocates and frees.
    fn use_it(&self) {
        drop(self.allocator.allocate(3 << 20, &self.stream).unwrap());
        drop(self.pool.allocate(512, &self.stream).unwrap());
    }
}

/// Uses what it holds once more when it is dropped.
struct UsedAtTheEnd(Held);

impl Drop for UsedAtTheEnd {
    fn drop(&mut self) {
        self.0.use_it();
    }
}

static HELD: OnceLock<Held> = OnceLock::new();

/// What is held until the process ends.
fn held() -> &'static Held {
    HELD.get_or_init(|| Held::new(""))
}

thread_local! {
    static LAST: RefCell<Option<UsedAtTheEnd>> = const { RefCell::new(None) };
}

fn statics() {
    held().use_it();
}

fn thread_locals() {
    // Known to the thread before the library is, so it ends after everything of the library's.
    LAST.with_borrow(|last| assert!(last.is_none()));
    LAST.set(Some(UsedAtTheEnd(Held::new(""))));
}

fn thread_locals_first() {
    held().use_it();
    LAST.set(Some(UsedAtTheEnd(Held::new(""))));
}

fn thread_that_ends() {
    for case in [thread_locals, thread_locals_first] {
        thread::spawn(case).join().unwrap();
    }
}

fn inside_at_the_end() {
    for _ in 0..2 {
        let in_thread = || {
            thread_locals();
            // What is never left is forgotten at the end of the thread, before the last request.
            Box::leak(Box::new(held().pool.enter_all()));
            held().use_it();
        };
        thread::spawn(in_thread).join().unwrap();
    }
}

fn busy_stream() {
    static HOLD: OnceLock<Hold> = OnceLock::new();
    let Held { device, stream, .. } = held();
    HOLD.get_or_init(|| device.hold(stream.handle()).unwrap());
    let memory = held().allocator.allocate(4096, stream).unwrap();
    let other = held().allocator.create_stream().unwrap();
    memory.record_stream(stream);
    drop((memory, other));
}

fn busy_threads() {
    for _ in 0..3 {
        thread::spawn(|| {
            loop {
                held().use_it();
            }
        });
    }
    thread::sleep(Duration::from_millis(20));
}

fn background() {
    // One that goes when the thread does, and one that never does.
    for leave in [true, false] {
        let held = Held::new("pinned_use_background_threads:True");
        let staged = held.allocator.pinned().allocate(1 << 16).unwrap();
        staged.record_stream(&held.stream);
        drop(staged);
        if leave {
            LAST.set(Some(UsedAtTheEnd(held)));
        } else {
            assert!(HELD.set(held).is_ok());
        }
    }
}

fn after_the_driver() {
    let held = Held::new("");
    for call in Call::ALL {
        for nth in 1..=256 {
            held.device.fail_next(*call, nth, ErrorKind::ShuttingDown);
        }
    }
    drop(held);
}

#[cfg(unix)]
fn handler() {
    extern "C" fn at_exit() {
        held().use_it();
    }
    held().use_it();
    // SAFETY: the handler is a function of this program.
    assert_eq!(unsafe { libc::atexit(at_exit) }, 0);
}

/// The child runs every destructor and handler, as a process that forks without `exec` does.
#[cfg(unix)]
fn forked() {
    let alone = Held::new("pinned_use_background_threads:True");
    alone.use_it();
    LAST.set(Some(UsedAtTheEnd(Held::new(""))));
    busy_threads();
    // SAFETY: the child only drops what it has, and leaves `main`.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "the system has room for a process");
    if child == 0 {
        // What is used at the end would be refused.
        LAST.take().map(std::mem::ManuallyDrop::new);
        return;
    }
    let mut status = 0;
    // SAFETY: it writes one number.
    let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!((waited, status), (child, 0));
}
