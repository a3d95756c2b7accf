//! The calls of both drivers that are counted.

/// Adds the calls that are counted to those that the macro `front` declares. `counted` has the driver's names of them.
macro_rules! counted {
    (
        $front:ident;
        counted {
            $create:ident, $release:ident, $map:ident, $unmap:ident, $retain:ident, $import:ident, $pitched:ident,
            $managed:ident, $host:ident, $plain_host:ident, $free_host:ident, $register:ident, $unregister:ident;
            free: $free:ident
        }
        $prefix:literal;
        shared { $($shared:tt)* }
        answered { $($answered:tt)* }
        called { $($called:tt)* }
    ) => {
        $front! {
            $prefix;
            shared { $($shared)* }
            answered {
                $($answered)*

                /// Physical memory, without an address.
                fn $create(
                    handle: *mut u64, bytes: usize, properties: *const MemoryProperties, flags: c_ulonglong,
                ) |thread, calls| {
                    // SAFETY: the arguments are the caller's.
                    let call = || unsafe { calls.$create(handle, bytes, properties, flags) };
                    // SAFETY: 1. is the caller's promise.
                    unsafe { outside::create(thread, calls, handle, bytes, properties, (stringify!($create), call)) }
                }

                fn $release(handle: u64) |_, calls| {
                    // SAFETY: the arguments are the caller's.
                    outside::release(handle, || unsafe { calls.$release(handle) })
                }

                /// A mapping keeps its memory.
                fn $map(at: u64, bytes: usize, offset: usize, handle: u64, flags: c_ulonglong) |_, calls| {
                    // SAFETY: the arguments are the caller's.
                    outside::map(at, bytes, handle, || unsafe { calls.$map(at, bytes, offset, handle, flags) })
                }

                fn $unmap(at: u64, bytes: usize) |_, calls| {
                    // SAFETY: the arguments are the caller's.
                    outside::unmap(at, bytes, || unsafe { calls.$unmap(at, bytes) })
                }

                /// A further handle of what is mapped.
                fn $retain(handle: *mut u64, at: *mut c_void) |_, calls| {
                    // SAFETY: the arguments are the caller's.
                    let call = || unsafe { calls.$retain(handle, at) };
                    // SAFETY: 1. the driver has written it.
                    unsafe { outside::retain(handle, at.addr() as u64, call) }
                }

                fn $import(handle: *mut u64, shared: *mut c_void, kind: c_int) |_, calls| {
                    // SAFETY: the arguments are the caller's.
                    let call = || unsafe { calls.$import(handle, shared, kind) };
                    // SAFETY: 1. the driver has written it.
                    unsafe { outside::import(handle, call) }
                }

                /// Rows of memory.
                fn $pitched(
                    out: *mut u64, pitch: *mut usize, width: usize, rows: usize, element: c_uint,
                ) |thread, calls| {
                    // SAFETY: the arguments are the caller's.
                    let call = || unsafe { calls.$pitched(out, pitch, width, rows, element) };
                    let call = (stringify!($pitched), call);
                    // SAFETY: the driver has just given it.
                    let free = |address| unsafe { calls.$free(address) };
                    // SAFETY: 1. the driver has written them.
                    unsafe { outside::allocate_pitched(thread, calls, (out, pitch), (width, rows), call, free) }
                }

                /// Memory that the driver may move.
                fn $managed(out: *mut u64, bytes: usize, flags: c_uint) |thread, calls| {
                    // SAFETY: the arguments are the caller's.
                    let call = || unsafe { calls.$managed(out, bytes, flags) };
                    // SAFETY: 1. the driver has written it.
                    unsafe { outside::allocate_managed(thread, calls, out, bytes, (stringify!($managed), call)) }
                }

                /// Page-locked memory.
                fn $host(out: *mut *mut c_void, bytes: usize, flags: c_uint) |thread, calls| {
                    // SAFETY: the arguments are the caller's.
                    let call = || unsafe { calls.$host(out, bytes, flags) };
                    // SAFETY: 1. the driver has written it.
                    unsafe { outside::allocate_host(thread, calls, out, bytes, (stringify!($host), call)) }
                }

                fn $plain_host(out: *mut *mut c_void, bytes: usize) |thread, calls| {
                    // SAFETY: the arguments are the caller's.
                    let call = || unsafe { calls.$plain_host(out, bytes) };
                    // SAFETY: 1. the driver has written it.
                    unsafe { outside::allocate_host(thread, calls, out, bytes, (stringify!($plain_host), call)) }
                }

                fn $free_host(at: *mut c_void) |_, calls| {
                    // SAFETY: the arguments are the caller's.
                    outside::free(Refusal::Driver, at.addr() as u64, || unsafe { calls.$free_host(at) })
                }

                /// Locks the pages of memory that the program has.
                fn $register(at: *mut c_void, bytes: usize, flags: c_uint) |thread, calls| {
                    // SAFETY: the arguments are the caller's.
                    let call = || unsafe { calls.$register(at, bytes, flags) };
                    outside::register(thread, calls, at, bytes, (stringify!($register), call))
                }

                fn $unregister(at: *mut c_void) |_, calls| {
                    // SAFETY: the arguments are the caller's.
                    outside::free(Refusal::Driver, at.addr() as u64, || unsafe { calls.$unregister(at) })
                }
            }
            called { $($called)* }
        }
    };
}
pub(crate) use counted;
