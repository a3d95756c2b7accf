//! Runs every stream on a separate thread.

use std::io;
use std::sync::{Arc, Condvar, PoisonError};
use std::thread;

use super::stream::{StreamKey, StreamState};
use crate::engine::machine::Machine;

impl Machine {
    /// Starts the stream's worker, if it has none.
    pub(super) fn start_worker(self: &Arc<Self>, stream: &mut StreamState, key: StreamKey) -> io::Result<()> {
        if stream.wake.is_some() {
            return Ok(());
        }
        let wake = Arc::<Condvar>::default();
        let (machine, told) = (Arc::clone(self), Arc::clone(&wake));
        let worker =
            thread::Builder::new().name("cachette-stream".to_owned()).spawn(move || machine.work(key, &told))?;
        let mut workers = self.engine.workers.lock();
        workers.retain(|worker| !worker.is_finished());
        workers.push(worker);
        stream.wake = Some(wake);
        Ok(())
    }

    /// Runs a stream's work until the stream is gone or the engine stops.
    fn work(&self, key: StreamKey, wake: &Condvar) {
        let mut state = self.state();
        loop {
            if state.stop {
                return;
            }
            let Some(stream) = state.streams.get_mut(&key) else { return };
            let Some(work) = stream.begin() else {
                if stream.destroyed {
                    state.streams.remove(&key);
                    return;
                }
                state = wake.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let device = stream.device;
            while !work.is_ready(&state) && !state.stop {
                state = self.wait_progress(state);
            }
            if state.stop {
                return;
            }
            drop(state);
            self.execute(device, work);
            state = self.state();
            self.finish(&mut state, key);
        }
    }

    pub(super) fn tell_progress(&self) {
        // Under the lock, so that no thread is between its check and its wait.
        let _state = self.state();
        self.engine.progress.notify_all();
    }

    /// Stops the workers and waits for their end; work that has not begun is dropped.
    pub(crate) fn shut_down(&self) {
        let mut state = self.state();
        state.stop = true;
        state.streams.values().filter_map(|stream| stream.wake.as_ref()).for_each(|wake| wake.notify_all());
        self.engine.progress.notify_all();
        drop(state);
        let workers = std::mem::take(&mut *self.engine.workers.lock());
        for worker in workers {
            // A host function may have held the last owner; a thread cannot join itself.
            if worker.thread().id() != thread::current().id() {
                let _ = worker.join();
            }
        }
    }
}
