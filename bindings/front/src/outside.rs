//! Memory that the program takes past the cache, counted.
//!
//! The driver serves these calls. The front counts what they take, with the limit of the process where it is memory of the
//! device: beyond the limit, or if the driver has no memory, the call answers out of memory after the steps of
//! [`Allocator::take_outside`](cachette::Allocator::take_outside).
//!
//! | memory | counts as | until |
//! |---|---|---|
//! | physical memory of a device | of the device | its last handle is released and its last mapping ended |
//! | pitched, and with flags of HIP | of the device | it is freed |
//! | managed | of the device, if the driver cannot page it; else managed | it is freed |
//! | page-locked, registered, and physical memory of the host | of the host | it is freed, unregistered or as above |
//!
//! Memory of another process that a handle names is that process's. No lock is held during a call of the driver.

pub(crate) mod calls;
mod table;

use std::ffi::{c_int, c_void};

use cachette::OutsideKind;
use cachette::hal::{self, ErrorKind, Guarded};
use cachette::human::Bytes;
use cachette_process::FirstOnly;

use crate::driver::{Answer, Driver};
use crate::entry::Thread;
use crate::outside::table::Table;
use crate::served::{self, Served};
use crate::status::{OUT_OF_MEMORY, Refusal, SUCCESS, Status};

/// Memory that is counted.
#[derive(Clone, Copy, Debug)]
struct Counted {
    served: &'static Served,
    kind: OutsideKind,
    bytes: u64,
}

impl Counted {
    /// Notes that it was given back.
    fn give(self) {
        self.served.allocator.give_outside(self.kind, self.bytes);
    }
}

static TABLE: Guarded<Table<Counted>> = Guarded::new(Table::new());

/// The first fields of `CUmemAllocationProp` and `hipMemAllocationProp`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct MemoryProperties {
    kind: c_int,
    handle_types: c_int,
    location_kind: c_int,
    location: c_int,
}

/// Where physical memory is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Device(u32),
    Host,
}

impl MemoryProperties {
    fn place(&self) -> Option<Place> {
        match self.location_kind {
            1 => u32::try_from(self.location).ok().map(Place::Device),
            // Of any node, of a chosen one, and of the nearest.
            2..=4 => Some(Place::Host),
            _ => None,
        }
    }
}

/// What `call` is to take.
fn take(counted: Counted, name: &'static str, mut call: impl FnMut() -> Status) -> Answer {
    let Counted { served, kind, bytes } = counted;
    let taken = served.allocator.take_outside(kind, bytes, || match call() {
        SUCCESS => Ok(()),
        OUT_OF_MEMORY => Err(hal::Error::from_status(ErrorKind::OutOfMemory, name, OUT_OF_MEMORY)),
        status => Err(hal::Error::from_status(ErrorKind::Other, name, status)),
    });
    taken.map_err(|error| {
        if error.status().is_none() {
            tell_refusal(counted, name);
        }
        error.into()
    })
}

/// Says once that the limit refuses a call, or the host, whose memory an integrated device shares: programs that try
/// smaller sizes would fill the screen.
#[cold]
fn tell_refusal(Counted { served, bytes, .. }: Counted, name: &str) {
    static TOLD: FirstOnly = FirstOnly::new();
    let allocator = served.allocator;
    let (reserved, outside) = (allocator.reserved_bytes(), allocator.outside().device.current);
    let is_of_host = allocator.device().host_available().is_some();
    let is_beyond = |limit: &u64| !is_of_host || (reserved + outside).saturating_add(bytes) > *limit;
    match allocator.memory_limit().filter(is_beyond).map(Bytes) {
        Some(limit) => TOLD.tell(format_args!(
            "{name} of {} answers out of memory: of the limit of {limit} the cache holds {}, and calls past the cache {}",
            Bytes(bytes),
            Bytes(reserved),
            Bytes(outside),
        )),
        None => TOLD.tell(format_args!(
            "{name} of {} answers out of memory: the device shares the memory of the host, which needs the rest; end other \
             programs, or lower host_reserve",
            Bytes(bytes),
        )),
    }
}

/// Takes memory that has an address for its whole life.
///
/// # Safety
///
/// After success of `call`, 1. `out` is valid for reading.
pub(crate) unsafe fn allocate<D: Driver>(
    thread: &Thread,
    calls: &D,
    kind: OutsideKind,
    out: *mut u64,
    bytes: usize,
    (name, call): (&'static str, impl Fn() -> Status),
) -> Answer {
    if out.is_null() || bytes == 0 {
        return Err(Refusal::Driver);
    }
    let counted = Counted { served: calls.current(thread)?, kind, bytes: bytes as u64 };
    take(counted, name, || calls.quietly(&call))?;
    // SAFETY: 1. is the caller's promise.
    let address = unsafe { out.read() };
    note(address, counted);
    Ok(())
}

/// Notes memory at an address.
fn note(address: u64, counted: Counted) {
    let stale = TABLE.lock().allocate(address, counted);
    stale.into_iter().for_each(Counted::give);
}

/// Takes managed memory. Where the driver can move it to the host, it takes memory of the device only while that has some.
///
/// # Safety
///
/// As for [`allocate`].
pub(crate) unsafe fn allocate_managed<D: Driver>(
    thread: &Thread,
    calls: &D,
    out: *mut u64,
    bytes: usize,
    call: (&'static str, impl Fn() -> Status),
) -> Answer {
    let device = calls.current(thread)?.device;
    let kind = if calls.pages_managed(device) { OutsideKind::Managed } else { OutsideKind::Device };
    // SAFETY: 1. is the caller's promise.
    unsafe { allocate(thread, calls, kind, out, bytes, call) }
}

/// Takes rows of memory, whose distance the driver decides. `free` gives them back if the limit does not allow what the
/// driver adds.
///
/// # Safety
///
/// After success of `call`, 1. `out` and `pitch` are valid for reading.
pub(crate) unsafe fn allocate_pitched<D: Driver>(
    thread: &Thread,
    calls: &D,
    (out, pitch): (*mut u64, *mut usize),
    (width, rows): (usize, usize),
    (name, call): (&'static str, impl Fn() -> Status),
    free: impl Fn(u64) -> Status,
) -> Answer {
    /// The drivers' usual distance between rows is a multiple of it.
    const USUAL: usize = 512;
    let guess = width.checked_next_multiple_of(USUAL).and_then(|row| row.checked_mul(rows)).unwrap_or(0);
    if out.is_null() || pitch.is_null() || guess == 0 {
        return Err(Refusal::Driver);
    }
    let mut counted = Counted { served: calls.current(thread)?, kind: OutsideKind::Device, bytes: guess as u64 };
    take(counted, name, || calls.quietly(&call))?;
    // SAFETY: 1. is the caller's promise.
    let address = unsafe { out.read() };
    // SAFETY: 1. is the caller's promise.
    let bytes = unsafe { pitch.read() }.saturating_mul(rows) as u64;
    if bytes < counted.bytes {
        Counted { bytes: counted.bytes - bytes, ..counted }.give();
    } else if bytes > counted.bytes
        && let Err(refusal) = take(Counted { bytes: bytes - counted.bytes, ..counted }, name, || SUCCESS)
    {
        let _ = calls.quietly(|| free(address));
        counted.give();
        return Err(refusal);
    }
    counted.bytes = bytes;
    note(address, counted);
    Ok(())
}

/// Gives memory back whose free Cachette has left to the driver, by `call`.
pub(crate) fn free(refusal: Refusal, address: u64, call: impl FnOnce() -> Status) -> Answer {
    if refusal != Refusal::Driver {
        return Err(refusal);
    }
    // Before the call: another thread may get the address at once.
    let Some(counted) = TABLE.lock().free(address) else { return Err(Refusal::Driver) };
    let status = call();
    if status == SUCCESS {
        counted.give();
        return Ok(());
    }
    TABLE.lock().allocate(address, counted);
    Err(Refusal::Status(status))
}

/// Counts registered memory of the host, or memory that is allocated there.
///
/// # Safety
///
/// As for [`allocate`], for `out`.
pub(crate) unsafe fn allocate_host<D: Driver>(
    thread: &Thread,
    calls: &D,
    out: *mut *mut c_void,
    bytes: usize,
    call: (&'static str, impl Fn() -> Status),
) -> Answer {
    // SAFETY: 1. is the caller's promise, and both are addresses.
    unsafe { allocate(thread, calls, OutsideKind::Host, out.cast(), bytes, call) }
}

/// Counts memory of the program that the driver registers.
pub(crate) fn register<D: Driver>(
    thread: &Thread,
    calls: &D,
    address: *mut c_void,
    bytes: usize,
    call: (&'static str, impl Fn() -> Status),
) -> Answer {
    let mut at = address.addr() as u64;
    // SAFETY: 1. it is a local variable.
    unsafe { allocate(thread, calls, OutsideKind::Host, &raw mut at, bytes, call) }
}

/// Creates physical memory.
///
/// # Safety
///
/// 1. `properties` is null or valid for reading, and so is `handle` after success of `call`.
pub(crate) unsafe fn create<D: Driver>(
    thread: &Thread,
    calls: &D,
    handle: *mut u64,
    bytes: usize,
    properties: *const MemoryProperties,
    (name, call): (&'static str, impl Fn() -> Status),
) -> Answer {
    if handle.is_null() || properties.is_null() || bytes == 0 {
        return Err(Refusal::Driver);
    }
    // SAFETY: 1. it is not null, and otherwise the caller's promise.
    let place = unsafe { properties.read() }.place().ok_or(Refusal::Driver)?;
    let (served, kind) = match place {
        Place::Device(named) => (device(calls, named)?, OutsideKind::Device),
        Place::Host => (calls.current(thread)?, OutsideKind::Host),
    };
    let counted = Counted { served, kind, bytes: bytes as u64 };
    take(counted, name, || calls.quietly(&call))?;
    // SAFETY: 1. is the caller's promise.
    let made = unsafe { handle.read() };
    let stale = TABLE.lock().create(made, counted);
    stale.into_iter().for_each(Counted::give);
    Ok(())
}

/// What serves the device that physical memory names.
fn device<D: Driver>(calls: &D, named: u32) -> Result<&'static Served, Refusal> {
    let mut found = 0;
    let number = c_int::try_from(named).map_err(|_| Refusal::Driver)?;
    // SAFETY: the driver writes one number.
    let ask = || unsafe { calls.common().DeviceGet(&raw mut found, number) };
    if calls.quietly(ask) != SUCCESS {
        return Err(Refusal::Driver);
    }
    served::device(D::behind(), calls.physical_device(named)?)
}

/// Releases a handle by `call`.
pub(crate) fn release(handle: u64, call: impl FnOnce() -> Status) -> Answer {
    let Some(released) = TABLE.lock().release(handle) else { return Err(Refusal::Driver) };
    let status = call();
    if status != SUCCESS {
        TABLE.lock().keep(released);
        return Err(Refusal::Status(status));
    }
    let gone = TABLE.lock().released(released);
    gone.into_iter().for_each(Counted::give);
    Ok(())
}

/// Notes what `call` maps.
pub(crate) fn map(at: u64, bytes: usize, handle: u64, call: impl FnOnce() -> Status) -> Answer {
    let Some(physical) = TABLE.lock().begin_map(handle) else { return Err(Refusal::Driver) };
    let answer = succeeded(call());
    let gone = TABLE.lock().end_map(at, bytes as u64, physical, answer.is_ok());
    gone.into_iter().for_each(Counted::give);
    answer
}

/// Ends the mappings in a range by `call`.
pub(crate) fn unmap(at: u64, bytes: usize, call: impl FnOnce() -> Status) -> Answer {
    let mappings = TABLE.lock().unmap(at, bytes as u64);
    if mappings.is_empty() {
        return Err(Refusal::Driver);
    }
    let status = call();
    if status != SUCCESS {
        TABLE.lock().keep_mapped(mappings);
        return Err(Refusal::Status(status));
    }
    let gone = TABLE.lock().unmapped(&mappings);
    gone.into_iter().for_each(Counted::give);
    Ok(())
}

/// Notes a handle that `call` gives of what is mapped at an address.
///
/// # Safety
///
/// After success, 1. `handle` is valid for reading.
pub(crate) unsafe fn retain(handle: *mut u64, at: u64, call: impl FnOnce() -> Status) -> Answer {
    succeeded(call())?;
    // SAFETY: 1. is the caller's promise.
    let handle = unsafe { handle.read() };
    TABLE.lock().retain(handle, at);
    Ok(())
}

/// Notes a handle that `call` imports.
///
/// # Safety
///
/// After success, 1. `handle` is valid for reading.
pub(crate) unsafe fn import(handle: *mut u64, call: impl FnOnce() -> Status) -> Answer {
    succeeded(call())?;
    // SAFETY: 1. is the caller's promise.
    let handle = unsafe { handle.read() };
    TABLE.lock().import(handle);
    Ok(())
}

/// Forgets what a reset of a device has taken: memory with an address, and physical memory too if `physically`.
pub(crate) fn forget(device: u32, physically: bool) {
    let gone = TABLE.lock().forget(physically, |counted| counted.served.device == device);
    gone.into_iter().for_each(Counted::give);
}

const fn succeeded(status: Status) -> Answer {
    if status == SUCCESS { Ok(()) } else { Err(Refusal::Status(status)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn physical_memory_is_of_a_device_or_of_the_host() {
        let at = |location_kind, location| MemoryProperties { kind: 1, handle_types: 0, location_kind, location };
        assert_eq!(at(1, 3).place(), Some(Place::Device(3)));
        assert_eq!(at(1, -1).place(), None);
        assert_eq!([2, 3, 4].map(|kind| at(kind, 0).place()), [Some(Place::Host); 3]);
        assert_eq!((at(0, 0).place(), at(5, 0).place()), (None, None));
    }
}
