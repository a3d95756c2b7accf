//! Calls that programs make and Cachette does not: short forms of others.

use std::collections::HashMap;
use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::ptr;
use std::sync::OnceLock;

use cachette_hal::{AnyDevice, Device, ErrorKind, StreamRef};

use crate::capture::hipGraphInstantiateWithFlags;
use crate::device::hipRuntimeGetVersion;
use crate::events::hipEventCreateWithFlags;
use crate::host_calls::hipLaunchHostFunc;
use crate::host_memory::{hipHostFree, hipHostMalloc};
use crate::memory::hipMemAllocPitch;
use crate::prelude::*;
use crate::streams::hipStreamCreateWithFlags;

/// What a callback of `hipStreamAddCallback` gets: its stream, a status, and its data.
type Callback = unsafe extern "C" fn(StreamHandle, Status, *mut c_void);

struct Called {
    callback: Callback,
    stream: StreamHandle,
    data: *mut c_void,
}

/// Calls a callback once, and frees the box that it came in.
///
/// # Safety
///
/// 1. `called` is a boxed [`Called`] that no other code has.
unsafe extern "C" fn call_back(called: *mut c_void) {
    // SAFETY: 1. is the caller's promise.
    let called = unsafe { Box::from_raw(called.cast::<Called>()) };
    // SAFETY: the program gave the function and what it is to be called with.
    unsafe { (called.callback)(called.stream, SUCCESS, called.data) };
}

/// What a call that was made for another came to.
pub(crate) const fn answer(status: Status) -> Answer {
    refuse_if(status != SUCCESS, status)
}

/// The name of a status, as AMD's headers have it.
fn name_of(status: Status) -> *const c_char {
    static NAMES: OnceLock<HashMap<i64, CString>> = OnceLock::new();
    let entry = |(name, status): &(&str, i64)| Some((*status, CString::new(*name).ok()?));
    let names = NAMES.get_or_init(|| STATUSES.iter().filter_map(entry).collect());
    let found = names.get(&i64::from(status)).or_else(|| names.get(&i64::from(UNKNOWN)));
    found.map_or(ptr::null(), |name| name.as_ptr())
}

#[unsafe(no_mangle)]
extern "C" fn hipGetErrorName(status: Status) -> *const c_char {
    name_of(status)
}

/// AMD's texts say the same in other words.
#[unsafe(no_mangle)]
extern "C" fn hipGetErrorString(status: Status) -> *const c_char {
    name_of(status)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn hipDriverGetVersion(version: *mut c_int) -> Status {
    // SAFETY: the argument is the caller's.
    unsafe { hipRuntimeGetVersion(version) }
}

/// The lowest and the highest priority of a stream.
const PRIORITIES: (c_int, c_int) = (1, -1);

/// What a program chose for a stream; a default stream has none of it.
fn chosen(machine: &Machine, stream: StreamHandle) -> Answer<(c_uint, c_int)> {
    machine.any_stream(stream)?;
    Ok(machine.state().stream_kinds.get(&stream).copied().unwrap_or_default())
}

/// Waits for the streams that wait for the default stream, as it waits for them.
pub(crate) fn wait_for_blocking_streams(machine: &Machine, device: &AnyDevice, position: usize) -> Answer {
    let state = machine.state();
    let is_blocking = |(stream, of): (&StreamHandle, &usize)| {
        let (flags, _) = state.stream_kinds.get(stream).copied().unwrap_or_default();
        (*of == position && flags & STREAM_NON_BLOCKING == 0 && !state.captures.holds(*stream)).then_some(*stream)
    };
    let streams: Vec<_> = state.streams.iter().filter_map(is_blocking).collect();
    drop(state);
    for stream in streams {
        // SAFETY: 1. the table had it, and the device beneath checks handles.
        let waited = unsafe { device.synchronize(StreamRef::from_raw(stream)) };
        // Another thread may have destroyed it meanwhile.
        if let Err(error) = waited
            && error.kind() != ErrorKind::InvalidHandle
        {
            return Err(status_of(error));
        }
    }
    Ok(())
}

/// Declares functions that call another one with fewer or other arguments.
macro_rules! short_forms {
    ($($name:ident($($argument:ident: $kind:ty),*) => $full:ident($($passed:expr),*);)*) => {
        abi! {$(
            fn $name(_machine; $($argument: $kind),*) {
                // SAFETY: the arguments are the caller's.
                answer(unsafe { $full($($passed),*) })
            }
        )*}
    };
}

short_forms! {
    hipEventCreate(event: *mut EventHandle) => hipEventCreateWithFlags(event, 0);
    hipStreamCreate(stream: *mut StreamHandle) => hipStreamCreateWithFlags(stream, 0);
    hipHostAlloc(at: *mut *mut c_void, bytes: usize, flags: c_uint) => hipHostMalloc(at, bytes, flags);
    hipMallocHost(at: *mut *mut c_void, bytes: usize) => hipHostMalloc(at, bytes, 0);
    hipMemAllocHost(at: *mut *mut c_void, bytes: usize) => hipHostMalloc(at, bytes, 0);
    hipFreeHost(at: *mut c_void) => hipHostFree(at);
    hipMallocPitch(
        address: *mut Address, pitch: *mut usize, width: usize, rows: usize
    ) => hipMemAllocPitch(address, pitch, width, rows, 4);
    hipGraphInstantiate(
        exec: *mut GraphExecHandle, graph: GraphHandle, _failed: *mut NodeHandle, _text: *mut c_char, _room: usize
    ) => hipGraphInstantiateWithFlags(exec, graph, 0);
}

abi! {
    fn hipDeviceGet(machine; device: *mut c_int, ordinal: c_int) => device {
        Ok(number(position(machine, ordinal)?))
    }

    /// A priority that is out of range is the nearest one in it.
    fn hipStreamCreateWithPriority(machine; stream: *mut StreamHandle, flags: c_uint, priority: c_int) {
        // SAFETY: the argument is the caller's.
        answer(unsafe { hipStreamCreateWithFlags(stream, flags) })?;
        // SAFETY: it was written just now.
        let created = unsafe { stream.read() };
        machine.state().stream_kinds.insert(created, (flags, priority.clamp(PRIORITIES.1, PRIORITIES.0)));
        Ok(())
    }

    /// Creates a stream for some of the compute units. The mask changes nothing.
    fn hipExtStreamCreateWithCUMask(_machine; stream: *mut StreamHandle, words: c_uint, mask: *const c_uint) {
        refuse_if(words == 0 || mask.is_null(), INVALID_VALUE)?;
        // SAFETY: the argument is the caller's.
        answer(unsafe { hipStreamCreateWithFlags(stream, 0) })
    }

    fn hipDeviceGetStreamPriorityRange(_machine; lowest: *mut c_int, highest: *mut c_int) {
        for (to, value) in [(lowest, PRIORITIES.0), (highest, PRIORITIES.1)] {
            // SAFETY: the caller's pointer is null or valid.
            if let Ok(to) = unsafe { Out::new(to) } {
                to.write(value);
            }
        }
        Ok(())
    }

    fn hipStreamGetFlags(machine; stream: StreamHandle, flags: *mut c_uint) => flags {
        // The default stream is refused here, and nowhere else.
        refuse_if(stream == 0, INVALID_VALUE)?;
        if machine.misses(stream) {
            return Ok(0);
        }
        Ok(chosen(machine, stream)?.0)
    }

    fn hipStreamGetPriority(machine; stream: StreamHandle, priority: *mut c_int) => priority {
        Ok(chosen(machine, stream)?.1)
    }

    fn hipStreamAddCallback(
        _machine;
        stream: StreamHandle,
        callback: Option<Callback>,
        data: *mut c_void,
        flags: c_uint,
    ) {
        let callback = callback.filter(|_| flags == 0).ok_or(INVALID_VALUE)?;
        let called = Box::into_raw(Box::new(Called { callback, stream, data }));
        // SAFETY: the stream and the callback are the caller's.
        let status = unsafe { hipLaunchHostFunc(stream, Some(call_back), called.cast()) };
        if status != SUCCESS {
            // SAFETY: it was not queued, so no other code has it.
            drop(unsafe { Box::from_raw(called) });
        }
        answer(status)
    }

    fn hipMemGetAllocationPropertiesFromHandle(
        machine;
        properties: *mut MemAllocationProp,
        handle: BackingHandle,
    ) => properties {
        let entry = machine.state().vm.handles.get(&handle).cloned().ok_or(INVALID_VALUE)?;
        let kind = if entry.is_shareable { MEM_HANDLE_TYPE_FILE_DESCRIPTOR } else { MEM_HANDLE_TYPE_NONE };
        Ok(MemAllocationProp::new(number(entry.device), kind))
    }
}
