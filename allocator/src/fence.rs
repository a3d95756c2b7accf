//! A point in a stream that other streams wait for: a recorded event, which returns to the pool on drop.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use cachette_hal::{Device, DeviceInfo, Error, ErrorKind, Event, Progress, Result, Vendor};

use crate::blocks::ReuseGuard;
use crate::stream_state::StreamState;

/// How long a point is polled before its stream counts as busy.
const SOON: Duration = Duration::from_micros(50);
/// How often a point of a host device is polled instead. Its stepped mode counts polls, and must not depend on time.
const HOST_POLLS: u32 = 48;

#[derive(Debug)]
pub(crate) struct Fence<D: Device> {
    pub(crate) stream: Arc<StreamState<D>>,
    /// `None` only during a drop.
    event: Option<Event>,
    /// A later point of the stream has a higher number.
    order: u64,
    /// Whether the stream may have been captured when the event was recorded. Relaxed: each poll may check again.
    unchecked: AtomicBool,
}

impl<D: Device> Fence<D> {
    /// Marks the current end of `stream`. The caller has checked that the stream is not captured.
    ///
    /// If the driver no longer recognises the stream, it was destroyed too early, and its work may still run. The host
    /// then waits for the whole device, and the fence has passed.
    pub(crate) fn record(stream: &Arc<StreamState<D>>) -> Result<Self> {
        let fence = Self::record_also_captured(stream)?;
        fence.check_not_captured().map(|()| fence)
    }

    /// Does the same, but returns `None` if the stream is captured: the event would become part of its graph.
    pub(crate) fn try_record(stream: &Arc<StreamState<D>>) -> Result<Option<Self>> {
        Self::none_if_captured(stream, || Self::record(stream), &[ErrorKind::CaptureForbids])
    }

    /// Does the same, and returns `None` if the stream is gone: a wait for the device would delay all streams.
    pub(crate) fn try_record_at_once(stream: &Arc<StreamState<D>>) -> Result<Option<Self>> {
        let record = || Self::record_end(stream).and_then(|fence| fence.check_not_captured().map(|()| fence));
        Self::none_if_captured(stream, record, &[ErrorKind::CaptureForbids, ErrorKind::InvalidHandle])
    }

    /// Turns errors of these kinds into `None`: another thread may begin a capture after the query.
    fn none_if_captured(
        stream: &StreamState<D>,
        record: impl FnOnce() -> Result<Self>,
        kinds: &[ErrorKind],
    ) -> Result<Option<Self>> {
        if stream.ask_capturing()? {
            return Ok(None);
        }
        match record() {
            Err(error) if kinds.contains(&error.kind()) => Ok(None),
            fence => fence.map(Some),
        }
    }

    /// Makes later work in `to` wait for all work that is queued in `from`. Both may be captured.
    pub(crate) fn order(from: &Arc<StreamState<D>>, to: &StreamState<D>) -> Result<()> {
        Self::record_also_captured(from)?.hold_back(to)
    }

    /// Does the same without a query. In a capture, polls and waits fail, and a stream that waits would join it.
    pub(crate) fn record_unchecked(stream: &Arc<StreamState<D>>) -> Result<Self> {
        Self::record_also_captured(stream).inspect(|fence| fence.unchecked.store(true, Relaxed))
    }

    fn record_also_captured(stream: &Arc<StreamState<D>>) -> Result<Self> {
        match Self::record_end(stream) {
            Err(error) if error.kind() == ErrorKind::InvalidHandle => {
                let shared = &stream.shared;
                shared.device.synchronize_device()?;
                // An event that was never recorded has passed.
                let passed = shared.device.create_event()?;
                let order = shared.totals.points.fetch_add(1, Relaxed);
                Ok(Self { stream: Arc::clone(stream), event: Some(passed), order, unchecked: AtomicBool::new(false) })
            }
            marked => marked,
        }
    }

    fn record_end(stream: &Arc<StreamState<D>>) -> Result<Self> {
        let shared = &stream.shared;
        let idle = shared.events.lock().pop();
        let event = idle.map_or_else(|| shared.device.create_event(), Ok)?;
        let unchecked = AtomicBool::new(false);
        let mut fence = Self { stream: Arc::clone(stream), event: Some(event), order: 0, unchecked };
        // Numbers have the order of the points: no other thread marks one between the two lines.
        let _alone = stream.marking.lock();
        fence.order = shared.totals.points.fetch_add(1, Relaxed);
        fence.record_event()?;
        Ok(fence)
    }

    /// Records the event at the current end of the stream. The driver is not called with a stream that is gone.
    fn record_event(&self) -> Result<()> {
        if self.stream.is_gone() {
            return Err(Error::new(ErrorKind::InvalidHandle, "record"));
        }
        // SAFETY: 1. the fence owns the event, and keeps the stream alive.
        unsafe { self.device().record(self.event(), self.stream.handle) }
    }

    /// Fails if another thread began a capture just before the event was recorded. The event is then part of a graph
    /// and never passes; a wait for it would invalidate the capture.
    fn check_not_captured(&self) -> Result<()> {
        if self.stream.ask_capturing()? {
            return Err(Error::new(ErrorKind::CaptureForbids, "record"));
        }
        Ok(())
    }

    /// Fails if the event may be part of a capture that has not ended: a query would invalidate it.
    fn check(&self) -> Result<()> {
        if self.unchecked.load(Relaxed) {
            self.check_not_captured()?;
            self.unchecked.store(false, Relaxed);
        }
        Ok(())
    }

    /// Marks a later point if the event became part of a capture that has ended since.
    #[cold]
    fn record_again(&self, error: Error) -> Result<()> {
        if error.kind() != ErrorKind::CaptureForbids || self.stream.ask_capturing()? {
            return Err(error);
        }
        self.record_event()?;
        self.check_not_captured()
    }

    /// The number of the stream state, and the number of the point: later points have higher numbers.
    pub(crate) fn order_key(&self) -> (u64, u64) {
        (self.stream.number, self.order)
    }

    /// Returns whether all work before the point has finished.
    pub(crate) fn poll(&self) -> Result<Progress> {
        self.check()?;
        // SAFETY: 1. the fence owns the event.
        match unsafe { self.device().poll(self.event()) } {
            Err(error) => self.record_again(error).map(|()| Progress::Pending),
            polled => polled,
        }
    }

    /// Returns whether the point passes during a short poll. In an idle stream, the device needs some microseconds.
    pub(crate) fn passes_soon(&self) -> Result<bool> {
        let mut budget = PollBudget::of(self.device().info());
        while budget.take(Instant::now) {
            if self.poll()?.is_done() {
                return Ok(true);
            }
            std::hint::spin_loop();
        }
        Ok(false)
    }

    /// Blocks the host until all work before the point has finished.
    pub(crate) fn wait(&self) -> Result<()> {
        self.check()?;
        // SAFETY: 1. the fence owns the event.
        let wait = || unsafe { self.device().wait(self.event()) };
        wait().or_else(|error| self.record_again(error).and_then(|()| wait()))
    }

    /// Makes later work in `stream` wait for the point. The host waits if the stream is gone.
    pub(crate) fn hold_back(&self, stream: &StreamState<D>) -> Result<()> {
        if stream.is_gone() {
            return self.wait();
        }
        // SAFETY: 1. the fence owns the event; the stream state keeps its stream alive.
        unsafe { stream.shared.device.stream_wait(stream.handle, self.event()) }
    }

    fn device(&self) -> &D {
        &self.stream.shared.device
    }

    const fn event(&self) -> &Event {
        self.event.as_ref().expect("a fence holds its event until it is dropped")
    }
}

/// Returns which points have passed, by a short poll of all together. It ends when none passes any more.
pub(crate) fn passed_soon<D: Device>(fences: &[Fence<D>]) -> Vec<bool> {
    let mut passed = vec![false; fences.len()];
    let Some(first) = fences.first() else { return passed };
    let full = || PollBudget::of(first.device().info());
    let mut budget = full();
    while !passed.iter().all(|passed| *passed) && budget.take(Instant::now) {
        for (passed, fence) in passed.iter_mut().zip(fences) {
            if !*passed && fence.poll().is_ok_and(Progress::is_done) {
                (*passed, budget) = (true, full());
            }
        }
        std::hint::spin_loop();
    }
    passed
}

/// How long a point may still be polled.
#[derive(Clone, Copy, Debug)]
enum PollBudget {
    /// Until a time, and once after it: the thread may have been suspended since the last poll.
    Until(Instant),
    Polls(u32),
}

impl PollBudget {
    fn of(device: &DeviceInfo) -> Self {
        if device.vendor == Vendor::Host { Self::Polls(HOST_POLLS) } else { Self::Until(Instant::now() + SOON) }
    }

    /// Returns whether another poll is allowed.
    fn take(&mut self, now: impl FnOnce() -> Instant) -> bool {
        match self {
            Self::Polls(0) => return false,
            Self::Polls(left) => *left -= 1,
            Self::Until(end) if now() < *end => {}
            Self::Until(_) => *self = Self::Polls(0),
        }
        true
    }
}

impl<D: Device> ReuseGuard for Arc<Fence<D>> {
    /// A stream runs in order, so a later point covers an earlier one.
    fn covers(&self, other: &Self) -> bool {
        self.stream.number == other.stream.number && self.order >= other.order
    }
}

impl<D: Device> Drop for Fence<D> {
    fn drop(&mut self) {
        // A queued wait refers to the point that the event marked at that time, so the event can be recorded again.
        if let Some(event) = self.event.take() {
            self.stream.shared.events.lock().push(event);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use cachette_hal::{Call, Ordinal};
    use cachette_hal_host::{HostBackend, HostConfig};
    use cachette_hal_testing::Watched;

    use super::*;
    use crate::Allocator;

    #[test]
    fn a_vendors_device_is_polled_for_a_time_and_once_more() {
        let device = DeviceInfo::new(Ordinal(0), Vendor::Amd, String::new(), 1, 1);
        let start = Instant::now();
        let mut budget = PollBudget::of(&device);
        assert!((0..10_000).all(|_| budget.take(|| start)), "polls cost no budget");
        let late = || start + Duration::from_secs(60);
        assert!(budget.take(late), "the last poll comes after the end");
        assert!(!budget.take(late) && !budget.take(|| start));
        let mut ending = PollBudget::Until(start);
        assert!(ending.take(|| start) && !ending.take(|| start), "the end itself is after the time");
    }

    #[test]
    fn a_host_device_is_polled_a_number_of_times() {
        let device = DeviceInfo::new(Ordinal(0), Vendor::Host, String::new(), 1, 1);
        let mut budget = PollBudget::of(&device);
        let polls = (0..10_000).filter(|_| budget.take(|| panic!("its stepped mode must not depend on time")));
        assert_eq!(polls.count(), HOST_POLLS as usize);
    }

    #[test]
    fn a_point_covers_itself_and_those_before_it_in_its_stream() {
        let device = HostBackend::new(HostConfig::default()).unwrap().device(Ordinal(0)).unwrap();
        let allocator = Allocator::new(device);
        let streams = [0; 2].map(|_| allocator.create_stream().unwrap());
        let mark = |of: usize| Arc::new(Fence::record(&streams[of].heap.stream_state).unwrap());
        let [first, second, other] = [mark(0), mark(0), mark(1)];
        assert!(first.covers(&first) && second.covers(&first) && !first.covers(&second));
        assert!(!other.covers(&first) && !first.covers(&other));
    }

    #[test]
    fn no_event_is_recorded_in_a_stream_that_the_driver_does_not_know() {
        let device = HostBackend::new(HostConfig::default()).unwrap().device(Ordinal(0)).unwrap();
        let stream = Allocator::new(device.clone()).create_stream().unwrap();
        let user = &stream.heap.stream_state;
        (1..=2).for_each(|nth| device.fail_next(Call::CaptureStatus, nth, ErrorKind::InvalidHandle));
        assert_eq!(user.ask_capturing(), Ok(false));
        assert_eq!(Fence::record_end(user).unwrap_err().kind(), ErrorKind::InvalidHandle);
        assert_eq!(device.calls(Call::Record), 0);
        Fence::record_end(user).expect("a new stream has the handle");
        assert_eq!(device.calls(Call::Record), 1);
    }

    #[test]
    fn no_other_thread_marks_a_point_between_a_number_and_its_record() {
        let device = HostBackend::new(HostConfig::default()).unwrap().device(Ordinal(0)).unwrap();
        let stream = Allocator::new(device).create_stream().unwrap();
        let user = &stream.heap.stream_state;
        let points = &user.shared.totals.points;
        thread::scope(|scope| {
            let marking = user.marking.lock();
            let before = points.load(Relaxed);
            let (watch, watched) = mpsc::channel();
            let other = scope.spawn(move || {
                watch.send(Watched::current()).unwrap();
                Fence::record(user).unwrap().order_key()
            });
            assert!(watched.recv().unwrap().is_blocked());
            assert_eq!(points.load(Relaxed), before, "a number was drawn while a point was marked");
            drop(marking);
            assert_eq!(other.join().unwrap(), (user.number, before));
        });
    }
}
