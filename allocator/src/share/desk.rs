//! Where offers are kept, and asked for.
//!
//! Others find a desk in two ways: by the name of its socket, in the same network namespace, and by the number of its
//! [`door`](super::door), in any. Its thread listens at both, and both close with the allocator.

#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use cachette_hal::Device;
use rustix::event::{EventfdFlags, eventfd};

use super::door::Door;
use super::handle::{Key, Place};
use super::here::{self, Here};
use super::link;
use super::offer::{Offer, SharedMemory};
use super::problem::ShareProblem;
use super::server::{Entrance, serve};
use crate::blocks::BlockId;
use crate::error::Error;
use crate::heap::Heap;

/// What an allocator offers to other processes.
#[derive(Debug)]
pub(crate) struct Exports<D: Device> {
    running: Mutex<Option<Running<D>>>,
}

/// The desk, and the thread that answers there.
#[derive(Debug)]
struct Running<D: Device> {
    desk: Arc<Desk<D>>,
    thread: JoinHandle<()>,
}

impl<D: Device> Default for Exports<D> {
    fn default() -> Self {
        Self { running: Mutex::new(None) }
    }
}

impl<D: Device> Exports<D> {
    /// Offers an allocated block. The first offer begins the thread that answers.
    pub(super) fn offer(&self, heap: &Arc<Heap<D>>, id: BlockId) -> Result<SharedMemory<D>, Error>
    where
        D: 'static,
    {
        let system = |error: io::Error| ShareProblem::system("begin to share memory", &error);
        let desk = self.desk().map_err(system)?;
        let key = Key(link::random().map_err(system)?);
        let number = desk.next_number();
        let offer = Arc::new(Offer::new(heap, id, number, key)?);
        desk.state().offers.insert(number, Arc::clone(&offer));
        Ok(SharedMemory::new(offer, desk))
    }

    /// The desk, with its thread begun.
    fn desk(&self) -> io::Result<Arc<Desk<D>>>
    where
        D: 'static,
    {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(running) = &*running {
            return Ok(Arc::clone(&running.desk));
        }
        let name = link::random()?;
        let entrance = Entrance { listener: link::listen(&name)?, door: Some(Door::open(&name)?) };
        let number = entrance.door.as_ref().map_or(0, Door::number);
        let desk = Arc::new(Desk {
            place: Place { pid: std::process::id(), socket: name, door: number },
            wake: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            state: Mutex::default(),
            settled: Condvar::new(),
        });
        let entered: Arc<dyn Here> = Arc::<Desk<D>>::clone(&desk);
        here::enter(name, Arc::downgrade(&entered));
        let named = thread::Builder::new().name("cachette-share".to_owned());
        let at = Arc::clone(&desk);
        let thread = named.spawn(move || serve(&at, entrance))?;
        *running = Some(Running { desk: Arc::clone(&desk), thread });
        Ok(desk)
    }

    /// Ends the offers. The thread ends at once, or when the last process has closed what it had opened.
    pub(crate) fn close(&self) {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(running) = running
            && running.desk.close()
        {
            // A thread that panicked has nothing left to do.
            let _ = running.thread.join();
        }
    }
}

/// Where offers are kept, and asked for.
#[derive(Debug)]
pub(super) struct Desk<D: Device> {
    /// Where others find it.
    place: Place,
    /// Tells the thread that something has changed.
    wake: OwnedFd,
    state: Mutex<State<D>>,
    /// Tells that the thread has looked at everybody once more since the desk was closed.
    settled: Condvar,
}

#[derive(Debug)]
struct State<D: Device> {
    offers: HashMap<u64, Arc<Offer<D>>>,
    /// Offers so far.
    numbers: u64,
    /// How many have something open.
    leases: usize,
    /// Whether the allocator is gone.
    closed: bool,
    /// Whether the thread has looked at everybody since.
    settled: bool,
}

impl<D: Device> Default for State<D> {
    fn default() -> Self {
        Self { offers: HashMap::new(), numbers: 0, leases: 0, closed: false, settled: false }
    }
}

impl<D: Device> Desk<D> {
    pub(super) const fn place(&self) -> Place {
        self.place
    }

    /// What tells the thread that something has changed.
    pub(super) fn wake(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    fn next_number(&self) -> u64 {
        let mut state = self.state();
        state.numbers += 1;
        state.numbers
    }

    /// Whether the allocator is gone, so that nobody may open anything any more.
    pub(super) fn is_closed(&self) -> bool {
        self.state().closed
    }

    /// Lets nobody open anything any more; whether nobody has anything open.
    fn close(&self) -> bool {
        self.state().closed = true;
        // It can only fail where the thread is to wake already.
        let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
        // Who has closed everything by now is noticed by then.
        let state = self.settled.wait_while(self.state(), |state| !state.settled);
        state.unwrap_or_else(PoisonError::into_inner).leases == 0
    }

    /// Says that the thread has looked at everybody since the desk was closed, or ends.
    pub(super) fn settle(&self) {
        self.state().settled = true;
        self.settled.notify_all();
    }

    /// Lets nobody open an offer any more.
    pub(super) fn withdraw(&self, number: u64) {
        let offer = self.state().offers.remove(&number);
        // Out of the lock: the memory may come free.
        drop(offer);
    }

    /// Opens an offer for whoever knows its key.
    pub(super) fn admit(self: &Arc<Self>, number: u64, key: &Key) -> Option<Lease<D>> {
        let mut state = self.state();
        let offer = Self::find(&state, number, key)?;
        if state.closed {
            return None;
        }
        state.leases += 1;
        offer.leases.fetch_add(1, Relaxed);
        Some(Lease { offer, desk: Arc::clone(self) })
    }

    /// The offer of a number, for whoever knows its key.
    fn find(state: &State<D>, number: u64, key: &Key) -> Option<Arc<Offer<D>>> {
        let known = state.offers.get(&number);
        known.filter(|offer| offer.key.matches(key)).cloned()
    }

    fn state(&self) -> MutexGuard<'_, State<D>> {
        // Every change is one step, so a panic leaves it sound.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<D: Device> Here for Desk<D> {
    fn base_of(&self, offer: u64, key: &Key) -> Option<u64> {
        Self::find(&self.state(), offer, key)?.base()
    }
}

/// The right of one process to memory that it has opened; it ends with the connection.
///
/// Leases belong to the thread that answers. A forked child has no such thread, so none ends there.
#[derive(Debug)]
pub(super) struct Lease<D: Device> {
    pub(super) offer: Arc<Offer<D>>,
    desk: Arc<Desk<D>>,
}

impl<D: Device> Drop for Lease<D> {
    fn drop(&mut self) {
        self.desk.state().leases -= 1;
        self.offer.leases.fetch_sub(1, Relaxed);
    }
}
