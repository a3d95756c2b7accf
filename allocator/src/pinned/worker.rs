//! The background thread that processes events, so that requests find blocks already free.

#![forbid(unsafe_code)]

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use cachette_hal::Device;

use super::cache::PinnedCache;
use crate::sync::Mutex;

/// How long the thread rests while blocks wait for streams.
const REST: Duration = Duration::from_micros(100);

/// The background thread of a cache, if it has one. It sleeps while nothing waits, and ends with the allocator.
#[derive(Debug, Default)]
pub(super) struct Worker {
    thread: Mutex<Option<JoinHandle<()>>>,
    /// Relaxed: the lock around `thread`, or the end of a rest, orders it.
    stopped: AtomicBool,
}

impl Worker {
    pub(super) fn stop(&self) {
        let running = {
            let mut thread = self.thread.lock();
            self.stopped.store(true, Relaxed);
            thread.take()
        };
        if let Some(running) = running {
            running.thread().unpark();
            // A thread that panicked has nothing left to do.
            let _ = running.join();
        }
    }
}

impl<D: Device> PinnedCache<D> {
    /// Lets the background thread know that a block waits, if there is to be such a thread.
    pub(super) fn wake(self: &Arc<Self>) {
        if !self.works_in_background() {
            return;
        }
        let mut thread = self.worker.thread.lock();
        match &*thread {
            Some(running) if !running.is_finished() => running.thread().unpark(),
            _ if self.worker.stopped.load(Relaxed) => {}
            _ => {
                // Without a thread, requests ask by themselves.
                *thread = (self.spawn)(Arc::clone(self)).ok();
            }
        }
    }

    fn works_in_background(&self) -> bool {
        self.shared.settings.config().pinned_use_background_threads()
    }

    fn work(&self) {
        while !self.worker.stopped.load(Relaxed) && self.works_in_background() {
            // The next request that processes events receives a failure.
            let _ = self.process_events();
            if self.pending.lock().awaits_streams() {
                thread::park_timeout(REST);
            } else {
                thread::park();
            }
        }
    }
}

/// Begins the thread of a cache. Only an allocator that outlives every borrow can have one, so this is chosen where
/// that is known: when the allocator is made.
pub(super) fn spawn<D: Device + 'static>(cache: Arc<PinnedCache<D>>) -> io::Result<JoinHandle<()>> {
    thread::Builder::new().name("cachette-pinned".to_owned()).spawn(move || cache.work())
}
