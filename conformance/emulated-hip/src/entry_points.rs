//! Calls that only programs make, and what the library tells tests about itself.

use std::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong, c_void};

use crate::prelude::*;
use crate::programs::answer;
use crate::stream_ordered::hipMallocFromPoolAsync;
use crate::{device, memory, pointers, stream_ordered, streams};

abi! {
    /// Allocates from the current pool of the current device.
    fn hipMallocAsync(machine; address: *mut Address, bytes: Bytes, stream: StreamHandle) {
        let pool = machine.state().pools.current(machine.current().0);
        // SAFETY: the arguments are the caller's.
        answer(unsafe { hipMallocFromPoolAsync(address, bytes, pool, stream) })
    }

    /// A function by its name, of those that programs ask for in tests.
    fn hipGetProcAddress(
        _machine;
        symbol: *const c_char,
        function: *mut *const c_void,
        _version: c_int,
        _flags: c_ulonglong,
        _found: *mut c_uint,
    ) => function {
        refuse_if(symbol.is_null(), INVALID_VALUE)?;
        // SAFETY: it is not null, and otherwise the caller's string.
        let found: *const () = match unsafe { CStr::from_ptr(symbol) }.to_bytes() {
            b"hipFree" => memory::hipFree as *const (),
            b"hipFreeAsync" => stream_ordered::hipFreeAsync as *const (),
            b"hipGetDevice" => device::hipGetDevice as *const (),
            b"hipMalloc" => memory::hipMalloc as *const (),
            b"hipMallocAsync" => hipMallocAsync as *const (),
            b"hipMemGetAddressRange" => pointers::hipMemGetAddressRange as *const (),
            b"hipStreamCreateWithFlags" => streams::hipStreamCreateWithFlags as *const (),
            b"hipStreamSynchronize" => streams::hipStreamSynchronize as *const (),
            _ => return Err(INVALID_VALUE),
        };
        Ok(found.cast())
    }
}

/// How many calls this thread has made.
#[unsafe(no_mangle)]
extern "C" fn cachette_emulated_calls() -> u64 {
    CALLS.get()
}

/// How many pieces of device memory the library has given out and not got back.
#[unsafe(no_mangle)]
extern "C" fn cachette_emulated_allocations() -> u64 {
    machine().map_or(0, |machine| machine.state().allocations.len() as u64)
}
