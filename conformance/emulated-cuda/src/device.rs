//! Memory, streams and events of the current device.

use std::ffi::{c_uint, c_void};
use std::ptr;

use cachette_hal::{Device, Event, Progress, Stream};

use crate::context::current_handle;
use crate::ledger::Range;
use crate::prelude::*;
use crate::stream_ordered::free_pooled;

/// `CU_STREAM_NON_BLOCKING`.
const NON_BLOCKING: c_uint = 1;
/// Every flag of an event: blocking, without timing, for other processes.
const EVENT_FLAGS: c_uint = 7;

/// The device of a stream; that of the default stream is current.
pub(crate) fn unit_of_stream(stream: *mut c_void) -> Answer<&'static Unit> {
    let current = current()?;
    if stream.is_null() {
        return Ok(current);
    }
    let has = |unit: &&Unit| {
        // SAFETY: 1. is the caller's promise.
        unit.device.capture().is_ok_and(|capture| unsafe { capture.capture_status(stream_ref(stream)) }.is_ok())
    };
    driver()?.units.iter().find(has).ok_or(INVALID_HANDLE)
}

/// Allocates memory of the current device.
fn allocate(bytes: usize) -> Answer<u64> {
    let unit = current()?;
    let bytes = bytes as u64;
    let start = unit.device.allocate(bytes).map_err(told)?.address();
    let range = Range { bytes, backing: None, unit: unit.index };
    driver()?.ledger.ranges.lock().insert(start, range);
    Ok(start)
}

abi! {
    fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) => total {
        let memory = current()?.device.memory_info().map_err(told)?;
        let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        // SAFETY: the caller's promise.
        unsafe { put(free, size(memory.free)) }?;
        Ok(size(memory.total))
    }

    fn cuMemAlloc_v2(at: *mut u64, bytes: usize) => at {
        refuse_if(at.is_null(), INVALID_VALUE)?;
        allocate(bytes)
    }

    /// Rows of memory; each begins at a multiple of what `settings` say.
    fn cuMemAllocPitch_v2(at: *mut u64, pitch: *mut usize, width: usize, rows: usize, element: c_uint) => at {
        refuse_if(at.is_null() || pitch.is_null() || ![4, 8, 16].contains(&element), INVALID_VALUE)?;
        let row = width.checked_next_multiple_of(settings().pitch).ok_or(INVALID_VALUE)?;
        let start = allocate(row.checked_mul(rows).ok_or(INVALID_VALUE)?)?;
        // SAFETY: the caller's promise.
        unsafe { put(pitch, row) }?;
        Ok(start)
    }

    /// Managed memory is device memory here, whether or not the device says that it pages.
    fn cuMemAllocManaged(at: *mut u64, bytes: usize, flags: c_uint) => at {
        refuse_if(at.is_null() || ![1, 2].contains(&flags), INVALID_VALUE)?;
        allocate(bytes)
    }

    /// Gives memory back, whichever device it is of.
    fn cuMemFree_v2(at: u64) {
        current()?;
        let driver = driver()?;
        if driver.ledger.recordings.lock().free(device_ptr(at)?)? {
            return Ok(());
        }
        driver.ledger.give_back(at, |range| {
            let unit = driver.units.get(range.unit).ok_or(INVALID_VALUE)?;
            // SAFETY: 1. and 2. are the caller's promises.
            match unsafe { unit.device.free(device_ptr(at)?) }.map_err(told) {
                Err(INVALID_VALUE) => free_pooled(unit, at),
                freed => freed,
            }
        })
    }

    fn cuMemGetAddressRange_v2(base: *mut u64, bytes: *mut usize, at: u64) {
        current()?;
        let (start, range) = driver()?.ledger.range_of(at).ok_or(NOT_FOUND)?;
        let size = usize::try_from(range.bytes).map_err(|_| INVALID_VALUE)?;
        // SAFETY: the caller's promise.
        unsafe { put_if_wanted(base, start) };
        // SAFETY: the caller's promise.
        unsafe { put_if_wanted(bytes, size) };
        Ok(())
    }

    fn cuCtxSynchronize() {
        current()?.device.synchronize_device().map_err(told)
    }

    fn cuStreamCreate(stream: *mut *mut c_void, flags: c_uint) => stream {
        let unit = current()?;
        refuse_if(stream.is_null() || flags > NON_BLOCKING, INVALID_VALUE)?;
        let created = unit.device.create_stream().map_err(told)?.raw();
        let context = current_handle().unwrap_or_default();
        if context != unit.context() {
            driver()?.ledger.context_of.lock().insert(created, context);
        }
        Ok(ptr::with_exposed_provenance_mut(created))
    }

    fn cuStreamGetCtx(stream: *mut c_void, context: *mut *mut c_void) => context {
        let unit = unit_of_stream(stream)?;
        let made = driver()?.ledger.context_of.lock().get(&stream.addr()).copied();
        Ok(ptr::without_provenance_mut(made.unwrap_or(unit.context())))
    }

    /// Destroys a stream; its work runs to its end.
    fn cuStreamDestroy_v2(stream: *mut c_void) {
        let (handle, ledger) = (stream.expose_provenance(), &driver()?.ledger);
        // SAFETY: 1. is the caller's promise.
        unsafe { current()?.device.destroy_stream(Stream::from_raw(handle)) }.map_err(told)?;
        ledger.context_of.lock().remove(&handle);
        ledger.priorities.lock().remove(&handle);
        // Freed after the lock is given back.
        let memory = ledger.recordings.lock().end(handle);
        drop(memory);
        Ok(())
    }

    fn cuStreamSynchronize(stream: *mut c_void) {
        // SAFETY: 1. is the caller's promise.
        unsafe { current()?.device.synchronize(stream_ref(stream)) }.map_err(told)
    }

    fn cuStreamWaitEvent(stream: *mut c_void, event: *mut c_void, flags: c_uint) {
        refuse_if(flags > 1, INVALID_VALUE)?;
        let event = Event::from_raw(event.expose_provenance());
        // SAFETY: 1. is the caller's promise.
        unsafe { current()?.device.stream_wait(stream_ref(stream), &event) }.map_err(told)
    }

    fn cuEventCreate(event: *mut *mut c_void, flags: c_uint) => event {
        let unit = current()?;
        refuse_if(event.is_null() || flags > EVENT_FLAGS, INVALID_VALUE)?;
        let created = unit.device.create_event().map_err(told)?;
        Ok(ptr::with_exposed_provenance_mut(created.raw()))
    }

    fn cuEventDestroy_v2(event: *mut c_void) {
        let event = Event::from_raw(event.expose_provenance());
        // SAFETY: 1. is the caller's promise.
        unsafe { current()?.device.destroy_event(event) }.map_err(told)
    }

    fn cuEventRecord(event: *mut c_void, stream: *mut c_void) {
        let event = Event::from_raw(event.expose_provenance());
        // SAFETY: 1. is the caller's promise.
        unsafe { current()?.device.record(&event, stream_ref(stream)) }.map_err(told)
    }

    fn cuEventQuery(event: *mut c_void) {
        let event = Event::from_raw(event.expose_provenance());
        // SAFETY: 1. is the caller's promise.
        match unsafe { current()?.device.poll(&event) }.map_err(told)? {
            Progress::Done => Ok(()),
            Progress::Pending => Err(NOT_READY),
        }
    }

    fn cuEventSynchronize(event: *mut c_void) {
        let event = Event::from_raw(event.expose_provenance());
        // SAFETY: 1. is the caller's promise.
        unsafe { current()?.device.wait(&event) }.map_err(told)
    }
}
