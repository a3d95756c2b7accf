//! Allocations, frees and questions about addresses, for both vendors.

use std::ffi::c_void;

use cachette::hal::{self, Device, ErrorKind, StreamRef};
use cachette::{Allocator, Error, PointerProblem, PoolId};
use cachette_process::{self as process, write_line};

use crate::captures;
use crate::entry::Thread;
use crate::served::{self, Served};
use crate::status::{INVALID_VALUE, NOT_FOUND, NOT_SUPPORTED, Refusal, SUCCESS, Status};

/// The second name of the default stream.
const LEGACY: usize = 1;
/// The default stream of the calling thread.
const PER_THREAD: usize = 2;

/// A stream of the caller.
///
/// One handle names the default streams of all threads, so the memory of one thread's stream cannot be told from
/// another's. The driver keeps them apart, and serves them.
#[inline]
pub(crate) fn stream(handle: *mut c_void) -> Result<StreamRef, Refusal> {
    match handle.addr() {
        LEGACY => Ok(StreamRef::DEFAULT),
        PER_THREAD => Err(Refusal::Driver),
        raw => Ok(StreamRef::from_raw(raw)),
    }
}

/// Allocates for work in `stream`. The driver refuses no bytes and no place to write.
///
/// # Safety
///
/// 1. `out` is null or valid for writing.
/// 2. `stream` is a live stream of the device, and stays so: see `streams.rs`.
#[inline]
pub(crate) unsafe fn allocate(served: &Served, out: *mut u64, bytes: usize, stream: StreamRef) -> Result<(), Refusal> {
    if bytes == 0 || out.is_null() {
        return Err(Refusal::Driver);
    }
    // SAFETY: 1. and 2. are the caller's promise 2.
    let allocate = || unsafe { served.allocator.allocate_raw_as(bytes as u64, stream, served.label) };
    let address = match allocate() {
        Err(error) if error.is_out_of_memory() && captures::release_ended() => allocate(),
        allocated => allocated,
    }?;
    // SAFETY: it is not null, and otherwise promise 1.
    unsafe { out.write(address) };
    Ok(())
}

/// Allocates memory that may be used on every stream at once.
///
/// It may have been made to wait for other streams, on the device. So the host waits until that is over.
///
/// # Safety
///
/// 1. `out` is null or valid for writing.
pub(crate) unsafe fn allocate_idle(served: &Served, out: *mut u64, bytes: usize) -> Result<(), Refusal> {
    let mut address = 0;
    if out.is_null() {
        return Err(Refusal::Driver);
    }
    // SAFETY: 1. it is a local variable. 2. The stream is the device's own, and lives as long as the process.
    unsafe { allocate(served, &raw mut address, bytes, served.idle.handle()) }?;
    if let Err(error) = served.idle.synchronize() {
        served.allocator.free_raw(address)?;
        return Err(error.into());
    }
    // SAFETY: it is not null, and otherwise promise 1.
    unsafe { out.write(address) };
    Ok(())
}

/// Frees behind the work that is in a stream of the caller now. `device_of` finds the device of the stream.
///
/// Cachette orders memory by streams of its own device. So the host waits for a stream of another one, by `wait`, and for
/// the default stream of this thread, which may be one of any device.
///
/// # Safety
///
/// 1. `handle` is a live stream, and stays so: see `streams.rs`.
#[inline]
pub(crate) unsafe fn free_on(
    thread: &Thread,
    address: u64,
    handle: *mut c_void,
    device_of: impl FnOnce(StreamRef) -> Result<&'static Served, Refusal>,
    wait: impl Fn() -> Status,
) -> Result<(), Refusal> {
    if address == 0 {
        return Err(Refusal::Driver);
    }
    let known = match stream(handle) {
        Ok(stream) => Some((stream, device_of(stream))),
        Err(_) => None,
    };
    if let Some((_, Err(Refusal::Stream))) = known {
        return Err(Refusal::Stream);
    }
    if let Some((stream, Ok(served))) = known
        && captures::serves(served, stream)
        && served.allocator.pool_at(address) == Some(PoolId::DEFAULT)
    {
        write_line("memory that was allocated before a capture cannot be freed in it; free it before or after");
        return Err(Refusal::Status(INVALID_VALUE));
    }
    find(thread, address, |allocator| {
        if let Some((stream, Ok(served))) = known
            && served.device == allocator.device_info().ordinal.0
        {
            // SAFETY: 1. is the caller's promise, and the stream is of this device.
            return freed_again(address, unsafe { allocator.free_raw_after(address, stream) });
        }
        // Memory of others is the driver's to wait for.
        allocator.bytes_at(address)?;
        match wait() {
            SUCCESS => allocator.free_raw(address),
            status => Err(hal::Error::from_status(ErrorKind::Other, "synchronize", status).into()),
        }
    })
}

/// Frees after all work of the device, as the driver's synchronous calls do.
pub(crate) fn free(thread: &Thread, address: u64) -> Result<(), Refusal> {
    find(thread, address, |allocator| {
        // Memory of others is the driver's to wait for.
        freed_again(address, allocator.bytes_at(address).map(drop))?;
        allocator.device().synchronize_device()?;
        captures::release_ended();
        freed_again(address, allocator.free_raw(address))
    })
}

/// A graph that allocates memory and does not free it lets the program do so after every launch.
#[inline]
fn freed_again(address: u64, freed: Result<(), Error>) -> Result<(), Error> {
    match freed {
        Err(Error::InvalidPointer { why: PointerProblem::Free | PointerProblem::FreedTwice, .. })
            if captures::is_left_to_free(address) =>
        {
            Ok(())
        }
        freed => freed,
    }
}

/// The start and the bytes of the allocation that an address lies in.
pub(crate) fn range(thread: &Thread, address: u64) -> Result<(u64, u64), Refusal> {
    let found = |allocator: &Allocator| match range_in(allocator, address) {
        // The driver knows no freed memory either.
        Err(Error::InvalidPointer { why, .. }) if why != PointerProblem::Foreign => Ok(None),
        found => found.map(Some),
    };
    find(thread, address, found)?.ok_or(Refusal::Status(NOT_FOUND))
}

fn range_in(allocator: &Allocator, address: u64) -> Result<(u64, u64), Error> {
    match allocator.requested_at(address) {
        Ok(bytes) => Ok((address, bytes)),
        Err(Error::InvalidPointer { why: PointerProblem::Interior { start, .. }, .. }) => {
            Ok((start, allocator.requested_at(start)?))
        }
        Err(error) => Err(error),
    }
}

/// Writes the start and the bytes of an allocation where the caller wants them.
///
/// # Safety
///
/// 1. `base` and `bytes` are null or valid for writing.
pub(crate) unsafe fn write_range(
    thread: &Thread,
    base: *mut u64,
    bytes: *mut usize,
    address: u64,
) -> Result<(), Refusal> {
    let (start, size) = range(thread, address)?;
    if !base.is_null() {
        // SAFETY: it is not null, and otherwise promise 1.
        unsafe { base.write(start) };
    }
    if !bytes.is_null() {
        // SAFETY: it is not null, and otherwise promise 1.
        unsafe { bytes.write(host_size(size)) };
    }
    Ok(())
}

/// Lets the driver name memory for another process, if the driver knows it as the caller does.
///
/// The driver would name the whole segment of a block, and the other process would find another allocation at its
/// start.
pub(crate) fn share(thread: &Thread, address: u64, call: &str) -> Result<(), Refusal> {
    let whole = find(thread, address, |allocator| {
        let (start, _) = range_in(allocator, address)?;
        Ok(allocator.base_allocation(start)? == (start, allocator.bytes_at(start)?))
    })?;
    if !whole {
        write_line(format_args!(
            "{call} is not supported for memory that shares a segment; set CACHETTE_ALLOC_CONF=caching:False for \
             programs that share memory this way"
        ));
        return Err(Refusal::Status(NOT_SUPPORTED));
    }
    Err(Refusal::Driver)
}

/// Writes free and total memory as the program may use it: idle memory of the cache is free, and the limit counts.
///
/// # Safety
///
/// 1. `free` and `total` are null or valid for writing.
pub(crate) unsafe fn write_info(served: &Served, free: *mut usize, total: *mut usize) -> Result<(), Refusal> {
    if free.is_null() || total.is_null() {
        return Err(Refusal::Driver);
    }
    let allocator = served.allocator;
    let memory = allocator.device().memory_info()?;
    let allocated = allocator.allocated_bytes();
    let idle = allocator.reserved_bytes().saturating_sub(allocated);
    let held = allocated + allocator.outside().device.current;
    let allowed = allocator.memory_limit().map_or(u64::MAX, |limit| limit.saturating_sub(held));
    // SAFETY: it is not null, and otherwise promise 1.
    unsafe { free.write(host_size((memory.free + idle).min(allowed).min(memory.total))) };
    // SAFETY: it is not null, and otherwise promise 1.
    unsafe { total.write(host_size(memory.total)) };
    Ok(())
}

#[expect(clippy::cast_possible_truncation, reason = "the crate `cachette_hal` builds only where both have 64 bits")]
const fn host_size(bytes: u64) -> usize {
    bytes as usize
}

/// Tries `act` on the allocators of the process; an address that none of them knows is the driver's.
#[inline]
fn find<T>(thread: &Thread, address: u64, act: impl Fn(&'static Allocator) -> Result<T, Error>) -> Result<T, Refusal> {
    let (_, likely) = thread.current.get();
    if address == 0 {
        return Err(Refusal::Driver);
    }
    if let Some(served) = likely
        && !served::is_reset(served.device)
    {
        match act(served.allocator) {
            Err(Error::InvalidPointer { why: PointerProblem::Foreign, .. }) => {}
            acted => return Ok(acted?),
        }
    }
    for (_, allocator) in process::opened().filter(|(device, _)| !served::is_reset(*device)) {
        match act(allocator) {
            Err(Error::InvalidPointer { why: PointerProblem::Foreign, .. }) => {}
            acted => return Ok(acted?),
        }
    }
    Err(Refusal::Driver)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::ptr;

    use cachette::Config;

    use super::*;
    use crate::status::{CAPTURE_FORBIDS, INVALID_VALUE};

    #[test]
    fn a_free_on_the_stream_of_a_thread_waits_for_that_stream() {
        cachette_process::start("host", &Config::default()).unwrap();
        let allocator = cachette_process::allocator(0).unwrap();
        // SAFETY: 1. and 2. the default stream always exists.
        let address = unsafe { allocator.allocate_raw(1 << 20, StreamRef::DEFAULT) }.unwrap();
        let (thread, waits) = (Thread::new(), Cell::new(0));
        let free = |status| {
            let wait = || {
                waits.set(waits.get() + 1);
                status
            };
            let handle = ptr::without_provenance_mut(PER_THREAD);
            // SAFETY: 1. each thread has such a stream.
            unsafe { free_on(&thread, address, handle, |_| Err(Refusal::Driver), wait) }
        };
        assert_eq!(free(CAPTURE_FORBIDS), Err(Refusal::Status(CAPTURE_FORBIDS)), "it may be one of another device");
        assert_eq!((free(SUCCESS), waits.get()), (Ok(()), 2));
        assert_eq!(free(SUCCESS), Err(Refusal::Status(INVALID_VALUE)));
        assert_eq!(waits.get(), 2, "there is nothing to free");
    }
}
