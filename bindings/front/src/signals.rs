//! The signals of a program behind `cachette run`, and the thread that writes reports while the program runs.
//!
//! SIGTERM and SIGINT end a program that has their default action, by the same signal, after a report. SIGUSR1 writes a
//! snapshot if one is wanted. A program that has handlers of its own keeps them, whether it sets them before or later.
//!
//! A handler sets a flag and posts semaphores, nothing else. The *reporter* thread does the work. It may block, as in an
//! allocator whose driver hangs, so the *ender* thread ends the process after [`PATIENCE`] without its help. Both block
//! every signal. Semaphores have no descriptors, which a program could close and use for its own files.

use std::cell::UnsafeCell;
use std::io;
use std::mem::MaybeUninit;
use std::process as this;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering::Relaxed, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use libc::{SIGINT, SIGTERM, SIGUSR1, c_int};

use crate::{entry, summary};

/// How long the report of a program that a signal ends may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long the thread that a signal interrupted waits for the report before it runs on: it may hold a lock.
const PAUSE_MS: c_int = 2000;
/// How often the file of metrics is written.
const EVERY: Duration = Duration::from_secs(5);

/// The process whose signals are handled; a forked child is another one and has no such threads.
static OWNER: AtomicU32 = AtomicU32::new(0);
/// The signal that ends the process, or 0.
static ENDED_BY: AtomicI32 = AtomicI32::new(0);
/// Whether a snapshot is asked for.
static SNAPSHOT: AtomicBool = AtomicBool::new(false);

/// A thread has begun.
static STARTED: Semaphore = Semaphore::new();
/// Work for the reporter.
static WORK: Semaphore = Semaphore::new();
/// A signal ends the process.
static END: Semaphore = Semaphore::new();
/// The report is written.
static WRITTEN: Semaphore = Semaphore::new();

/// Handles the signals of this process, and starts the threads.
pub(crate) fn start() {
    for semaphore in [&STARTED, &WORK, &END, &WRITTEN] {
        semaphore.init();
    }
    // Threads inherit the signals that their creator blocks.
    let before = block_signals();
    let started =
        start_thread("cachette-report", report_all).and_then(|()| start_thread("cachette-signal", end_process));
    // SAFETY: the set is initialized, and the result is not wanted.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, ptr::null_mut()) };
    if started.is_err() {
        return;
    }
    OWNER.store(this::id(), Relaxed);
    handle(SIGTERM);
    handle(SIGINT);
    if summary::wants_snapshot() {
        handle(SIGUSR1);
    }
}

/// Starts a thread, and waits until it has begun.
///
/// In another namespace of the loader, the beginning of a thread allocates from the first namespace's C library. That
/// one does not know of the thread, so it takes no lock.
fn start_thread(name: &str, work: fn()) -> io::Result<()> {
    let work = move || {
        STARTED.post();
        work();
    };
    thread::Builder::new().name(name.to_owned()).spawn(work)?;
    STARTED.wait(None);
    Ok(())
}

/// Gives the signals back to the system, at the end of the process.
pub(crate) fn stop() {
    if OWNER.load(Relaxed) != this::id() {
        return;
    }
    for signal in [SIGTERM, SIGINT, SIGUSR1] {
        let own = on_signal as *const () as usize;
        if action_of(signal).is_ok_and(|action| action.sa_sigaction == own) {
            set_default(signal);
        }
    }
}

/// Handles a signal whose action is the default.
fn handle(signal: c_int) {
    if !action_of(signal).is_ok_and(|action| action.sa_sigaction == libc::SIG_DFL) {
        return;
    }
    let mut action = no_action();
    action.sa_sigaction = on_signal as *const () as usize;
    // Threads of languages that switch stacks handle signals on another one.
    action.sa_flags = libc::SA_RESTART | libc::SA_ONSTACK;
    // SAFETY: the action is initialized, and the handler is safe in a signal.
    unsafe { libc::sigaction(signal, &raw const action, ptr::null_mut()) };
}

/// Runs in the thread that a signal interrupts, which may hold any lock. So it calls only functions that POSIX names
/// safe for handlers.
extern "C" fn on_signal(signal: c_int) {
    let place = errno();
    // SAFETY: the place is the calling thread's.
    let saved = unsafe { *place };
    // SAFETY: the function takes nothing.
    let process = unsafe { libc::getpid() };
    if OWNER.load(Relaxed) != process.cast_unsigned() {
        die_by(signal);
    } else if signal == SIGUSR1 {
        SNAPSHOT.store(true, SeqCst);
        WORK.post();
    } else if ENDED_BY.swap(signal, SeqCst) != 0 {
        // Who asks twice does not want to wait.
        die_by(signal);
    } else {
        WORK.post();
        END.post();
        // A thread inside a call ends the call, since it may hold what the report needs. Another one must not see that
        // its system call was interrupted, and end the program in another way.
        if !entry::is_inside() {
            // SAFETY: there are no descriptors.
            unsafe { libc::poll(ptr::null_mut(), 0, PAUSE_MS) };
        }
    }
    // SAFETY: as above.
    unsafe { *place = saved };
}

/// Ends the process by a signal as if it were not handled; at the return of a handler that blocks the signal.
fn die_by(signal: c_int) {
    set_default(signal);
    // SAFETY: the function takes a number.
    unsafe { libc::raise(signal) };
}

/// The reporter.
fn report_all() {
    let every = summary::wants_metrics().then_some(EVERY);
    // Readers of the file need not wait for the first page.
    let mut limit = every.map(|_| Duration::ZERO);
    loop {
        WORK.wait(limit);
        limit = every;
        let is_over = ENDED_BY.load(SeqCst) != 0;
        let goes_on = summary::while_running(|| {
            if is_over {
                summary::report_all();
                WRITTEN.post();
                // The lock keeps a thread that ends the program waiting until the signal has ended it.
                thread::sleep(PATIENCE);
            } else {
                if SNAPSHOT.swap(false, SeqCst) {
                    summary::save();
                }
                summary::write_metrics();
            }
        });
        if !goes_on || is_over {
            // The report at the end of the program was faster.
            WRITTEN.post();
            return;
        }
    }
}

/// The ender. It allocates nothing, since the interrupted thread may be inside an allocation.
fn end_process() {
    END.wait(None);
    if !WRITTEN.wait(Some(PATIENCE)) {
        let text = b"cachette: the report did not end in ten seconds, so it is not complete\n";
        // SAFETY: the bytes are valid for reading.
        unsafe { libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len()) };
    }
    let signal = ENDED_BY.load(SeqCst);
    set_default(signal);
    let mut set = MaybeUninit::uninit();
    // SAFETY: the place is valid for a set.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    // SAFETY: the set was made empty, and the number is that of a signal.
    unsafe { libc::sigaddset(set.as_mut_ptr(), signal) };
    // SAFETY: the set is initialized.
    unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, set.as_ptr(), ptr::null_mut()) };
    die_by(signal);
}

/// Blocks every signal for this thread; the set that was blocked before.
fn block_signals() -> libc::sigset_t {
    let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::zeroed());
    // SAFETY: the place is valid for a set.
    unsafe { libc::sigfillset(all.as_mut_ptr()) };
    // SAFETY: the first set is initialized, and the second place is valid for one.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) };
    // SAFETY: all zeros are a set, which the call may have replaced.
    unsafe { before.assume_init() }
}

fn no_action() -> libc::sigaction {
    // SAFETY: all zeros are the default action, without flags and blocked signals.
    unsafe { MaybeUninit::zeroed().assume_init() }
}

fn action_of(signal: c_int) -> io::Result<libc::sigaction> {
    let mut action = no_action();
    // SAFETY: the place is valid for an action.
    match unsafe { libc::sigaction(signal, ptr::null(), &raw mut action) } {
        0 => Ok(action),
        _ => Err(io::Error::last_os_error()),
    }
}

fn set_default(signal: c_int) {
    let action = no_action();
    // SAFETY: the action is initialized and has no handler.
    unsafe { libc::sigaction(signal, &raw const action, ptr::null_mut()) };
}

fn errno() -> *mut c_int {
    // SAFETY: the function takes nothing.
    unsafe { libc::__errno_location() }
}

/// A semaphore of POSIX, which handlers may post.
struct Semaphore(UnsafeCell<MaybeUninit<libc::sem_t>>);

// SAFETY: threads may use a semaphore at once; `init` comes before them.
unsafe impl Sync for Semaphore {}

impl Semaphore {
    const fn new() -> Self {
        Self(UnsafeCell::new(MaybeUninit::zeroed()))
    }

    fn place(&self) -> *mut libc::sem_t {
        self.0.get().cast()
    }

    /// Sets it to zero, for the threads of this process.
    fn init(&self) {
        // SAFETY: the place is valid and lives as long as the process.
        unsafe { libc::sem_init(self.place(), 0, 0) };
    }

    fn post(&self) {
        // SAFETY: the semaphore was initialized before any handler and thread.
        unsafe { libc::sem_post(self.place()) };
    }

    /// Waits for a post, at most `limit`. Returns whether there was one.
    fn wait(&self, limit: Option<Duration>) -> bool {
        let Some(limit) = limit else {
            // SAFETY: as in `post`.
            return unsafe { libc::sem_wait(self.place()) } == 0;
        };
        let mut until = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the place is valid for a time.
        unsafe { libc::clock_gettime(libc::CLOCK_REALTIME, &raw mut until) };
        until.tv_sec += limit.as_secs().cast_signed();
        // SAFETY: as in `post`, and the time is initialized.
        unsafe { libc::sem_timedwait(self.place(), &raw const until) == 0 }
    }
}
