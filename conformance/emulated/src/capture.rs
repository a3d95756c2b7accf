//! Captures of the device beneath, as the vendors number them.

use std::iter;
use std::mem::MaybeUninit;
use std::slice;

use cachette_hal::owned::RelaxedCapture;
use cachette_hal::{AnyDevice, CaptureMode, CaptureNode, CaptureStatus, Device, Progress, Result, StreamRef};

use crate::status::{Answer, INVALID_VALUE};

/// The mode with this number, which is that of its variant too.
pub fn mode_of(number: impl TryInto<usize>) -> Answer<CaptureMode> {
    const MODES: [CaptureMode; 3] = [CaptureMode::Global, CaptureMode::ThreadLocal, CaptureMode::Relaxed];
    number.try_into().ok().and_then(|number| MODES.get(number).copied()).ok_or(INVALID_VALUE)
}

/// A state of a stream, and the number of its capture.
#[must_use]
pub fn numbers_of<N: From<u8>>(status: CaptureStatus) -> (N, u64) {
    match status {
        CaptureStatus::Idle => (0.into(), 0),
        CaptureStatus::Active(id) => (1.into(), id.0.get()),
        _ => (2.into(), 0),
    }
}

/// The number of the active capture that a stream is in.
///
/// # Safety
///
/// Promise 1.
pub unsafe fn capture_of(device: &AnyDevice, stream: StreamRef) -> Option<u64> {
    // SAFETY: 1. is the caller's promise.
    match unsafe { device.capture().ok()?.capture_status(stream) } {
        Ok(CaptureStatus::Active(id)) => Some(id.0.get()),
        _ => None,
    }
}

/// Does something with a device while no capture binds the calling thread.
pub fn relaxed<T>(device: &AnyDevice, act: impl FnOnce(&AnyDevice) -> Result<T>) -> Result<T> {
    let _relaxed = match device.capture() {
        Ok(_) => Some(RelaxedCapture::enter(device)?),
        Err(_) => None,
    };
    act(device)
}

/// Whether the work of a stream is over.
///
/// # Safety
///
/// Promise 1.
pub unsafe fn query(device: &AnyDevice, stream: StreamRef) -> Result<Progress> {
    let event = device.create_event()?;
    // SAFETY: 1. the event was made above, and the stream is the caller's promise.
    let recorded = unsafe { device.record(&event, stream) };
    // SAFETY: 1. the event was made above.
    let progress = recorded.and_then(|()| unsafe { device.poll(&event) });
    // SAFETY: 1. the event was made above.
    unsafe { device.destroy_event(event) }?;
    progress
}

/// Tells how many nodes there are, or as many of them as there is room for; room left over becomes null.
///
/// # Safety
///
/// `count` is valid, and `list` is null or has as much room as it says.
pub unsafe fn tell_nodes(nodes: &[CaptureNode], list: *mut usize, count: *const usize) -> usize {
    if list.is_null() {
        return nodes.len();
    }
    // SAFETY: the caller's promise.
    let room = unsafe { count.read() };
    // SAFETY: the caller's promise; it need not have written there.
    let places = unsafe { slice::from_raw_parts_mut(list.cast::<MaybeUninit<usize>>(), room) };
    for (place, node) in places.iter_mut().zip(nodes.iter().map(|node| node.raw()).chain(iter::repeat(0))) {
        place.write(node);
    }
    nodes.len().min(room)
}
