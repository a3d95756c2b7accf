//! The one thread of a process that answers for all its allocators.
//!
//! It waits for datagrams and costs nothing else. Memory is released on a second thread, which lives as long as that
//! takes: so figures are answered meanwhile, and there is at most one release at a time, however many ask.
//!
//! A forked child has neither thread. A handler that runs in the child closes its copies of the sockets, so that the names
//! end with the parent, and forgets the registrations. An allocator that the child creates registers anew.

use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};
use std::{fmt, io, mem, ptr, thread};

use rustix::event::{EventfdFlags, PollFd, PollFlags};

use crate::reclaim::datagram::{self, Address};
use crate::reclaim::message::{Body, Figures, Give, Holder, Message};
use crate::reclaim::place::{Device, Named, Place};
use crate::socket;

/// The most registrations of a process.
pub const MOST_REGISTRATIONS: usize = 64;

/// The datagrams that one socket may bring before the others have their turn.
const BURST: usize = 16;
/// How often an asker learns that its release is in progress.
const WORKING: Duration = Duration::from_millis(20);
/// For so long the same figures answer every question, so that a flood of questions costs the allocator nothing.
const FRESH: Duration = Duration::from_millis(2);
/// The pause when the system has no memory left for a poll.
const PAUSE: Duration = Duration::from_millis(10);

/// The registrations of this process; null at the start, and in a forked child.
static CURRENT: AtomicPtr<Process> = AtomicPtr::new(ptr::null_mut());
/// The descriptors that a forked child closes; negative for none.
static DESCRIPTORS: [AtomicI32; MOST_REGISTRATIONS + 1] = [const { AtomicI32::new(-1) }; MOST_REGISTRATIONS + 1];

/// An allocator that answers.
pub trait Neighbour: Send + Sync {
    /// The figures now.
    fn figures(&self) -> Figures;

    /// Releases memory to the device. Returns its bytes.
    fn give(&self, give: Give) -> u64;

    /// The labels and pools that hold its memory, the largest first.
    fn holders(&self) -> Vec<Holder>;

    /// Writes a snapshot to a new file. Returns its path, or an empty text if it failed.
    fn write_snapshot(&self) -> String;

    /// Is called at the interval of the registration.
    fn tick(&self);
}

/// A registration, which ends with the drop.
pub struct Registration {
    process: &'static Process,
    entry: Arc<Answering>,
}

struct Answering {
    /// The socket; `None` if the entry has only an interval.
    named: Option<Named>,
    /// The place in [`DESCRIPTORS`].
    slot: Option<usize>,
    neighbour: Weak<dyn Neighbour>,
    interval: Option<Duration>,
    next_tick: Mutex<Instant>,
    figures: Mutex<Option<(Instant, Figures)>>,
}

struct Process {
    entries: Mutex<Vec<Arc<Answering>>>,
    wake: OwnedFd,
    /// The release or look in progress.
    job: Mutex<Option<Job>>,
}

/// A release of memory, or a look at all of it.
struct Job {
    entry: Arc<Answering>,
    /// Who is told of its end, and the number of the request; `None` for a tick.
    asker: Option<(Address, u64)>,
    /// When the asker learns next that the job is in progress.
    next: Instant,
}

/// Registers an allocator: it answers for a device at a place, and is called at an interval.
///
/// Both are optional. The registration ends with the value, or when the allocator is gone.
pub fn register(
    answers: Option<(&Place, &Device)>,
    interval: Option<Duration>,
    neighbour: Weak<dyn Neighbour>,
) -> io::Result<Registration> {
    let process = Process::current()?;
    let named = answers.map(|(place, device)| place.bind(device)).transpose()?;
    let slot = named.as_ref().map(|named| closed_in_children(named.socket.as_raw_fd())).transpose()?;
    let next_tick = Mutex::new(Instant::now() + interval.unwrap_or_default());
    let entry = Arc::new(Answering { named, slot, neighbour, interval, next_tick, figures: Mutex::default() });
    lock(&process.entries).push(Arc::clone(&entry));
    process.wake();
    Ok(Registration { process, entry })
}

impl Registration {
    /// The name of the socket.
    pub(crate) fn name(&self) -> Option<&str> {
        self.entry.named.as_ref().map(|named| named.name.as_str())
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        if !ptr::eq(CURRENT.load(Ordering::Acquire), self.process) {
            // In a forked child the socket is closed, and its file belongs to the parent.
            let _ = Arc::into_raw(Arc::clone(&self.entry));
            return;
        }
        lock(&self.process.entries).retain(|entry| !Arc::ptr_eq(entry, &self.entry));
        self.process.wake();
    }
}

impl fmt::Debug for Registration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registration").field("name", &self.name()).finish_non_exhaustive()
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        // This comes before the descriptor closes. Otherwise a child could close another file with its number.
        if let Some(slot) = self.slot {
            DESCRIPTORS[slot].store(-1, Ordering::Release);
        }
    }
}

impl Answering {
    /// The figures, at most [`FRESH`] old; `None` if the allocator is gone.
    fn figures(&self) -> Option<Figures> {
        let mut figures = lock(&self.figures);
        if let Some((made, figures)) = &*figures
            && made.elapsed() < FRESH
        {
            return Some(figures.clone());
        }
        let new = self.neighbour.upgrade()?.figures();
        *figures = Some((Instant::now(), new.clone()));
        Some(new)
    }

    /// Sends an answer. A full queue of the asker loses it, as if this process were slow.
    fn send(&self, to: &Address, request: u64, body: Body) {
        if let Some(named) = &self.named {
            let _ = datagram::send(named.socket.as_fd(), to, &Message { request, body });
        }
    }

    /// The time until the next tick; `None` without an interval.
    fn until_tick(&self, now: Instant) -> Option<Duration> {
        self.interval.map(|_| lock(&self.next_tick).saturating_duration_since(now))
    }
}

impl Process {
    /// The registrations of this process. Starts the thread if there are none yet.
    fn current() -> io::Result<&'static Self> {
        forget_in_children();
        // SAFETY: the pointer is null or to a value that is never freed.
        if let Some(process) = unsafe { CURRENT.load(Ordering::Acquire).as_ref() } {
            return Ok(process);
        }
        let wake = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let made = Box::into_raw(Box::new(Self { entries: Mutex::default(), wake, job: Mutex::default() }));
        // Release, with the acquire above: a thread that sees the pointer sees the value.
        let first = CURRENT.compare_exchange(ptr::null_mut(), made, Ordering::AcqRel, Ordering::Acquire);
        if let Err(other) = first {
            // SAFETY: `made` came from a box, and no other thread has it.
            drop(unsafe { Box::from_raw(made) });
            // SAFETY: as above.
            return unsafe { other.as_ref() }.ok_or_else(|| io::ErrorKind::Interrupted.into());
        }
        // SAFETY: the value is never freed from here on.
        let process = unsafe { &*made };
        closed_in_children(process.wake.as_raw_fd())?;
        let thread = thread::Builder::new().name("cachette-reclaim".to_owned());
        if let Err(error) = thread.spawn(|| process.serve()) {
            CURRENT.store(ptr::null_mut(), Ordering::Release);
            return Err(error);
        }
        Ok(process)
    }

    /// Makes the thread read the list of entries again.
    fn wake(&self) {
        // It fails only if the thread has not yet seen billions of changes.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
    }

    fn serve(&'static self) {
        loop {
            let entries = lock(&self.entries).clone();
            let Ok(ready) = self.poll(&entries) else {
                thread::sleep(PAUSE);
                continue;
            };
            for (entry, _) in entries.iter().zip(ready).filter(|(_, ready)| *ready) {
                self.answer_burst(entry);
            }
            let now = Instant::now();
            for entry in entries.iter().filter(|entry| entry.until_tick(now) == Some(Duration::ZERO)) {
                self.tick(entry, now);
            }
            if let Some(Job { entry, asker: Some((asker, request)), next }) = &mut *lock(&self.job)
                && *next <= now
            {
                entry.send(asker, *request, Body::Working);
                *next = now + WORKING;
            }
        }
    }

    /// Waits until a socket is ready, or something is due. Returns which of the entries are ready.
    fn poll(&self, entries: &[Arc<Answering>]) -> io::Result<Vec<bool>> {
        let now = Instant::now();
        let ticks = entries.iter().filter_map(|entry| entry.until_tick(now));
        let next = |job: &Job| job.asker.map(|_| job.next.saturating_duration_since(now));
        let working = lock(&self.job).as_ref().and_then(next);
        let limit = ticks.chain(working).min();
        let mut polled = vec![PollFd::new(&self.wake, PollFlags::IN)];
        let sockets = entries.iter().filter_map(|entry| entry.named.as_ref());
        polled.extend(sockets.map(|named| PollFd::new(&named.socket, PollFlags::IN)));
        socket::wait(&mut polled, limit)?;
        let mut events = polled.iter().map(|polled| !polled.revents().is_empty());
        if events.next() == Some(true) {
            // Resets the eventfd.
            let _ = rustix::io::read(&self.wake, &mut [0_u8; 8]);
        }
        Ok(entries.iter().map(|entry| entry.named.is_some() && events.next() == Some(true)).collect())
    }

    fn answer_burst(&'static self, entry: &Arc<Answering>) {
        let Some(named) = &entry.named else { return };
        for _ in 0..BURST {
            match datagram::receive(named.socket.as_fd()) {
                Ok(Some((message, asker))) => self.answer(entry, message, asker),
                Ok(None) => {}
                Err(_) => return,
            }
        }
    }

    fn answer(&'static self, entry: &Arc<Answering>, Message { request, body }: Message, asker: Address) {
        match body {
            Body::HowAreYou => {
                if let Some(mut figures) = entry.figures() {
                    figures.is_releasing = lock(&self.job).as_ref().is_some_and(|job| Arc::ptr_eq(&job.entry, entry));
                    entry.send(&asker, request, Body::Figures(Box::new(figures)));
                }
            }
            Body::Give(give) => {
                self.answer_later(entry, request, asker, Body::Given(0), move |it| Body::Given(it.give(give)));
            }
            Body::WhoHolds => {
                self.answer_later(entry, request, asker, Body::Busy, |it| Body::Holders(it.holders()));
            }
            Body::WriteSnapshot => {
                let failed = Body::Written(String::new());
                self.answer_later(entry, request, asker, failed, |it| Body::Written(it.write_snapshot()));
            }
            // Answers, which this socket has not asked for.
            Body::Figures(_) | Body::Working | Body::Given(_) | Body::Busy | Body::Holders(_) | Body::Written(_) => {}
        }
    }

    /// Answers at the end of a job, with `failed` if that panics; at once if another job is in progress.
    fn answer_later(
        &'static self,
        entry: &Arc<Answering>,
        request: u64,
        asker: Address,
        failed: Body,
        work: impl FnOnce(&dyn Neighbour) -> Body + Send + 'static,
    ) {
        let job = Job { entry: Arc::clone(entry), asker: Some((asker, request)), next: Instant::now() };
        if !self.begin(job, failed, work) {
            entry.send(&asker, request, Body::Busy);
        }
    }

    fn tick(&'static self, entry: &Arc<Answering>, now: Instant) {
        let job = Job { entry: Arc::clone(entry), asker: None, next: now };
        let ticked = self.begin(job, Body::Working, |neighbour| {
            neighbour.tick();
            Body::Working
        });
        // During another release the tick comes a little later.
        let interval = if ticked { entry.interval.unwrap_or_default() } else { WORKING };
        *lock(&entry.next_tick) = now + interval;
    }

    /// Begins a job on another thread. Returns `false` if one is in progress, or no thread can start.
    fn begin(
        &'static self,
        job: Job,
        failed: Body,
        work: impl FnOnce(&dyn Neighbour) -> Body + Send + 'static,
    ) -> bool {
        let mut current = lock(&self.job);
        if current.is_some() {
            return false;
        }
        let neighbour = Weak::clone(&job.entry.neighbour);
        // The thread ends the job under the same lock, so not before it is recorded.
        let spawned = thread::Builder::new().name("cachette-give".to_owned()).spawn(move || {
            let mut end = EndOfJob { process: self, answer: failed };
            if let Some(neighbour) = neighbour.upgrade() {
                end.answer = work(&*neighbour);
            }
        });
        *current = spawned.is_ok().then_some(job);
        drop(current);
        // The poll has no limit yet.
        self.wake();
        spawned.is_ok()
    }
}

/// Ends a job, even by a panic, so that the next one can begin.
struct EndOfJob {
    process: &'static Process,
    answer: Body,
}

impl Drop for EndOfJob {
    fn drop(&mut self) {
        let Some(job) = lock(&self.process.job).take() else { return };
        *lock(&job.entry.figures) = None;
        if let Some((asker, request)) = job.asker {
            let answer = mem::replace(&mut self.answer, Body::Busy);
            job.entry.send(&asker, request, answer);
        }
    }
}

fn lock<T: ?Sized>(state: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each change is one step, so a panic leaves a valid state.
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes forked children close a descriptor. Returns its slot.
fn closed_in_children(descriptor: RawFd) -> io::Result<usize> {
    let put = |slot: &AtomicI32| slot.compare_exchange(-1, descriptor, Ordering::AcqRel, Ordering::Relaxed).is_ok();
    DESCRIPTORS.iter().position(put).ok_or_else(|| {
        let text = format!("this process has {MOST_REGISTRATIONS} allocators that answer neighbours; drop one of them");
        io::Error::new(io::ErrorKind::QuotaExceeded, text)
    })
}

/// Installs the handler by which a forked child forgets the registrations of its parent.
fn forget_in_children() {
    static INSTALLED: AtomicBool = AtomicBool::new(false);
    if !INSTALLED.swap(true, Ordering::AcqRel) {
        // It fails only for lack of memory. A child then keeps the sockets open until it ends or starts a program.
        // SAFETY: the handler is a function of this library, and makes only calls that a child may make.
        let _ = unsafe { libc::pthread_atfork(None, None, Some(child)) };
    }
}

/// Runs in every child, on its one thread, before `fork` returns there.
unsafe extern "C" fn child() {
    CURRENT.store(ptr::null_mut(), Ordering::Release);
    for slot in &DESCRIPTORS {
        let descriptor = slot.swap(-1, Ordering::AcqRel);
        if descriptor >= 0 {
            // SAFETY: the parent has the descriptor open, and no code of the child uses its copy.
            unsafe { libc::close(descriptor) };
        }
    }
}
