//! A point in a stream that others wait for: a recorded event that returns to the pool by itself.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use cachette_hal::{Device, ErrorKind, Event, Progress, Result};

use crate::blocks::ReuseGuard;
use crate::device_state::DeviceState;
use crate::stream_state::StreamState;

/// How often a point is polled before its stream counts as busy.
const POLLS: usize = 48;

/// A point in a stream that others wait for.
#[derive(Debug)]
pub(crate) struct Fence<D: Device> {
    shared: Arc<DeviceState<D>>,
    /// `None` only while it is being dropped.
    event: Option<Event>,
    /// The number of the lane it is a point of.
    lane: u64,
    /// A later point has a higher number.
    order: u64,
}

impl<D: Device> Fence<D> {
    /// Marks the present end of `lane`.
    ///
    /// A stream that the driver does not know any more was destroyed too early, and its work may still run. Then the
    /// host waits for the whole device, and the fence has passed.
    pub(crate) fn record(lane: &StreamState<D>) -> Result<Self> {
        let shared = Arc::clone(lane.shared());
        let idle = shared.events().pop();
        let event = match idle {
            Some(event) => event,
            None => shared.device.create_event()?,
        };
        let order = shared.totals.points.fetch_add(1, Relaxed);
        let mut fence = Self { shared, event: Some(event), lane: lane.number(), order };
        // SAFETY: 1. the fence owns the event; the lane keeps its stream alive.
        match unsafe { fence.shared.device.record(fence.event(), lane.stream()) } {
            Err(error) if error.kind() == ErrorKind::InvalidHandle => {
                fence.shared.device.synchronize_device()?;
                // An event that was never recorded has passed.
                let passed = fence.shared.device.create_event()?;
                let unused = fence.event.replace(passed);
                fence.shared.events().extend(unused);
                Ok(fence)
            }
            recorded => recorded.map(|()| fence),
        }
    }

    /// Whether it is a point in a stream of the same allocator. Only the streams of that allocator can be made to wait
    /// for it on the device: another one may have another driver.
    pub(crate) fn is_of(&self, shared: &Arc<DeviceState<D>>) -> bool {
        Arc::ptr_eq(&self.shared, shared)
    }

    /// The number of the lane it is a point of, and of the point: later ones have higher numbers.
    pub(crate) const fn point(&self) -> (u64, u64) {
        (self.lane, self.order)
    }

    /// Whether everything before the point has finished.
    pub(crate) fn poll(&self) -> Result<Progress> {
        // SAFETY: 1. the fence owns the event.
        unsafe { self.shared.device.poll(self.event()) }
    }

    /// Whether everything before the point has finished, as far as a short look tells: a point that was just
    /// marked in an idle stream takes the device some microseconds to pass.
    pub(crate) fn passes_soon(&self) -> Result<bool> {
        for _ in 0..POLLS {
            if self.poll()?.is_done() {
                return Ok(true);
            }
            std::hint::spin_loop();
        }
        Ok(false)
    }

    /// Blocks the host until everything before the point has finished.
    pub(crate) fn wait(&self) -> Result<()> {
        // SAFETY: 1. the fence owns the event.
        unsafe { self.shared.device.wait(self.event()) }
    }

    /// Makes later work in `lane` wait for the point.
    pub(crate) fn hold_back(&self, lane: &StreamState<D>) -> Result<()> {
        let device = &lane.shared().device;
        // SAFETY: 1. the fence owns the event; the lane keeps its stream alive.
        unsafe { device.stream_wait(lane.stream(), self.event()) }
    }

    const fn event(&self) -> &Event {
        self.event.as_ref().expect("a fence holds its event until it is dropped")
    }
}

impl<D: Device> ReuseGuard for Arc<Fence<D>> {
    /// A stream runs in order, so a later point covers an earlier one.
    fn covers(&self, other: &Self) -> bool {
        self.lane == other.lane && self.order >= other.order
    }
}

impl<D: Device> Drop for Fence<D> {
    fn drop(&mut self) {
        // A stream that was told to wait keeps what the event marked then, so it may be recorded anew.
        if let Some(event) = self.event.take() {
            self.shared.events().push(event);
        }
    }
}
