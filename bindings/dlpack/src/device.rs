//! Devices, and the order between streams.

use cachette::hal::owned::OwnedEvent;
use cachette::hal::{Device, DeviceInfo, StreamRef, Vendor};
use cachette::{Allocation, Allocator, Stream, hal};

use crate::abi::{CPU, CUDA, DLDevice, ROCM};

/// A device as DLPack names it.
#[must_use]
pub fn device_of(info: &DeviceInfo) -> DLDevice {
    let device_type = match info.vendor {
        Vendor::Nvidia => CUDA,
        Vendor::Amd => ROCM,
        _ => return DLDevice { device_type: CPU, device_id: 0 },
    };
    // Drivers number their devices with `int`.
    DLDevice { device_type, device_id: i32::try_from(info.ordinal.0).unwrap_or(i32::MAX) }
}

/// Lets `consumer` use memory of another stream.
///
/// The stream `consumer` waits on the device until the memory's own stream has come to where it is now. The memory is
/// freed behind the work that `consumer` has when it is dropped. Neither happens if it is the memory's own stream.
pub fn hand_over<D: Device + Clone>(
    allocator: &Allocator<D>,
    allocation: &Allocation<D>,
    consumer: &Stream<D>,
) -> hal::Result<()> {
    if allocation.stream() == consumer.handle() {
        return Ok(());
    }
    // SAFETY: 1. the allocation and the handle keep their streams alive.
    unsafe { order(allocator.device(), allocation.stream(), consumer.handle()) }?;
    allocation.record_stream(consumer);
    Ok(())
}

/// Makes later work in the stream `after` wait on the device for the work that the stream `before` has now.
///
/// # Safety
///
/// 1. Both are live streams of the device.
pub unsafe fn order<D: Device + Clone>(device: &D, before: StreamRef, after: StreamRef) -> hal::Result<()> {
    let event = OwnedEvent::create(device.clone())?;
    // SAFETY: 1. is the caller's promise.
    unsafe { event.record_raw(before) }?;
    // SAFETY: 1. is the caller's promise, and the event is alive.
    unsafe { device.stream_wait(after, event.get()) }
}
