//! Streams: queues of work, each run in order.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar};

use cachette_hal::{Call, ErrorKind, Result, Stream, StreamRef};

use super::State;
use super::in_flight::task_of;
use super::work::{Hold, Task, Work};
use crate::checks::{check, error, fail};
use crate::config::HostConfig;
use crate::defect::Defect;
use crate::engine::machine::{FIRST_HANDLE, Machine};

/// Identifies a stream among all devices: its handle or, for a default stream, its device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct StreamKey(usize);

impl StreamKey {
    /// The default stream of a device. Handles are larger than every device index.
    pub(crate) const fn default_of(device: usize) -> Self {
        Self(device)
    }

    const fn new(device: usize, stream: StreamRef) -> Self {
        match stream.raw() {
            0 => Self::default_of(device),
            // Would be mistaken for the default stream of a device.
            1..FIRST_HANDLE => Self(usize::MAX),
            handle => Self(handle),
        }
    }

    pub(super) const fn is_default_of(self, device: usize) -> bool {
        self.0 == device
    }

    /// The handle that callers use.
    pub(super) const fn stream(self, device: usize) -> StreamRef {
        if self.is_default_of(device) { StreamRef::DEFAULT } else { StreamRef::from_raw(self.0) }
    }
}

#[derive(Debug)]
pub(super) struct StreamState {
    pub(super) device: usize,
    queue: VecDeque<Work>,
    /// Whether a piece of work has left the queue and not finished.
    running: bool,
    /// The running task, if the running work is one.
    current: Option<Task>,
    /// Pieces of work queued so far; `issued = finished + queue.len() + running`.
    issued: u64,
    finished: u64,
    /// Whether the handle is destroyed and only the queue is left.
    pub(super) destroyed: bool,
    pub(super) capture: Option<u64>,
    /// Notified when work is queued; set once there is a worker.
    pub(super) wake: Option<Arc<Condvar>>,
}

impl StreamState {
    pub(super) const fn new(device: usize) -> Self {
        Self {
            device,
            queue: VecDeque::new(),
            running: false,
            current: None,
            issued: 0,
            finished: 0,
            destroyed: false,
            capture: None,
            wake: None,
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.queue.is_empty() && !self.running
    }

    pub(super) fn push(&mut self, work: Work, config: &HostConfig) {
        let mut place = self.queue.len();
        if config.lies(Defect::CopiesOutOfOrder) && matches!(work, Work::Task(Task::Copy { .. })) {
            let fill = |queued: &Work| matches!(queued, Work::Task(Task::Fill { .. }));
            place -= self.queue.iter().rev().take_while(|queued| fill(queued)).count();
        }
        self.queue.insert(place, work);
        self.issued += 1;
        if let Some(wake) = &self.wake {
            wake.notify_one();
        }
    }

    /// Returns the next piece of work, unless one is running.
    pub(super) fn head(&self) -> Option<&Work> {
        self.queue.front().filter(|_| !self.running)
    }

    /// Takes the next piece of work to run it.
    pub(super) fn begin(&mut self) -> Option<Work> {
        let work = self.queue.pop_front()?;
        self.running = true;
        self.current = task_of(&work).cloned();
        Some(work)
    }

    /// Records that the work from [`begin`](Self::begin) has finished.
    pub(super) fn finish(&mut self) {
        self.running = false;
        self.current = None;
        self.finished += 1;
    }

    pub(super) fn in_flight(&self) -> impl Iterator<Item = &Task> {
        self.current.iter().chain(self.queue.iter().filter_map(task_of))
    }
}

impl State {
    /// Returns the stream's key, if the handle is a live stream of the device.
    pub(super) fn find_stream(&self, call: Call, device: usize, stream: StreamRef) -> Result<StreamKey> {
        let key = StreamKey::new(device, stream);
        match self.streams.get(&key) {
            Some(found) if found.device == device && !found.destroyed => Ok(key),
            _ => fail(call, ErrorKind::InvalidHandle),
        }
    }

    /// Returns the stream's key, if the handle is a live stream of any device: events connect devices.
    pub(super) fn find_any_stream(&self, call: Call, device: usize, stream: StreamRef) -> Result<StreamKey> {
        let key = StreamKey::new(device, stream);
        let owner = self.streams.get(&key).map_or(device, |stream| stream.device);
        self.find_stream(call, owner, stream)
    }

    /// Returns whether all work up to `issued` has finished in a stream.
    fn has_reached(&self, key: StreamKey, issued: u64) -> bool {
        self.streams.get(&key).is_none_or(|stream| stream.finished >= issued)
    }
}

impl Machine {
    pub(crate) fn create_stream(&self, device: usize) -> Stream {
        let handle = self.handle();
        let key = StreamKey(handle);
        self.state().streams.insert(key, StreamState::new(device));
        Stream::from_raw(handle)
    }

    /// Destroys a stream's handle; its queue runs to the end.
    pub(crate) fn destroy_stream(&self, device: usize, handle: StreamRef) -> Result<()> {
        let call = Call::DestroyStream;
        let mut state = self.state();
        let key = state.find_stream(call, device, handle)?;
        check(!key.is_default_of(device), call, ErrorKind::InvalidHandle)?;
        self.abandon_capture(&mut state, key);
        if self.lies(Defect::DestroyedStreamLives) {
            return Ok(());
        }
        let stream = state.streams.get_mut(&key).ok_or(error(call, ErrorKind::InvalidHandle))?;
        stream.destroyed = true;
        if self.lies(Defect::DestroyStreamDropsWork) {
            self.drop_queue(stream);
        }
        if let Some(wake) = &stream.wake {
            wake.notify_one();
        } else if stream.is_idle() {
            state.streams.remove(&key);
        }
        Ok(())
    }

    /// Counts all queued work as finished without running it; a defect.
    fn drop_queue(&self, stream: &mut StreamState) {
        for work in stream.queue.drain(..) {
            if let Work::Record(marker) = work {
                marker.finish();
            }
            stream.finished += 1;
            // Release: pairs with the acquire in `wait_idle`.
            self.units[stream.device].pending.fetch_sub(1, Ordering::Release);
        }
        self.engine.progress.notify_all();
    }

    /// Queues work in a stream, or adds it to the stream's capture.
    pub(crate) fn submit(self: &Arc<Self>, call: Call, device: usize, stream: StreamRef, task: Task) -> Result<()> {
        let mut state = self.state();
        let key = state.find_stream(call, device, stream)?;
        if state.capture_task(call, key, &task)? && !self.lies(Defect::CaptureExecutesEagerly) {
            return Ok(());
        }
        self.enqueue(call, &mut state, key, Work::Task(task))
    }

    /// Queues work that cannot be captured; `CaptureForbids` breaks the capture of the stream.
    pub(crate) fn submit_uncaptured(
        self: &Arc<Self>,
        call: Call,
        device: usize,
        stream: StreamRef,
        work: Work,
    ) -> Result<()> {
        let mut state = self.state();
        let key = state.find_stream(call, device, stream)?;
        self.forbid_in_capture(&mut state, call, key)?;
        self.enqueue(call, &mut state, key, work)
    }

    /// Returns the stream's key, if it is not being captured; otherwise the attempt breaks the capture.
    pub(crate) fn uncaptured(&self, call: Call, device: usize, stream: StreamRef) -> Result<StreamKey> {
        let mut state = self.state();
        let key = state.find_stream(call, device, stream)?;
        self.forbid_in_capture(&mut state, call, key)?;
        Ok(key)
    }

    pub(crate) fn hold(self: &Arc<Self>, device: usize, stream: StreamRef) -> Result<Hold> {
        let (hold, work) = Hold::new(self);
        self.submit_uncaptured(Call::CallHost, device, stream, work)?;
        Ok(hold)
    }

    /// Blocks until all work queued in a stream so far has finished.
    pub(crate) fn synchronize(&self, device: usize, stream: StreamRef) -> Result<()> {
        let call = Call::Synchronize;
        let key = self.uncaptured(call, device, stream)?;
        if self.lies(Defect::SynchronizeReturnsEarly) {
            return Ok(());
        }
        let issued = self.state().streams.get(&key).map_or(0, |found| found.issued);
        self.block_until(call, |state| state.has_reached(key, issued))?;
        self.check_fault(device, call)
    }

    /// Blocks until all work queued in the device so far has finished.
    pub(crate) fn wait_idle(&self, call: Call, device: usize) -> Result<()> {
        // Acquire: pairs with the release where work is counted as finished.
        if self.units[device].pending.load(Ordering::Acquire) != 0 {
            let skipped = |key: &StreamKey, stream: &StreamState| {
                call == Call::SynchronizeDevice
                    && ((self.lies(Defect::SynchronizeSkipsDefault) && key.is_default_of(device))
                        || (self.lies(Defect::SynchronizeSkipsDestroyed) && stream.destroyed))
            };
            let own = |(key, stream): (&StreamKey, &StreamState)| {
                (stream.device == device && !skipped(key, stream)).then_some((*key, stream.issued))
            };
            let ends: Vec<_> = self.state().streams.iter().filter_map(own).collect();
            self.block_until(call, |state| ends.iter().all(|(key, issued)| state.has_reached(*key, *issued)))?;
        }
        self.check_fault(device, call)
    }

    /// Returns the number of streams of the device with a live handle, without the default one.
    pub(crate) fn live_streams(&self, device: usize) -> usize {
        let live = |(key, stream): &(&StreamKey, &StreamState)| {
            stream.device == device && !stream.destroyed && !key.is_default_of(device)
        };
        self.state().streams.iter().filter(live).count()
    }
}
