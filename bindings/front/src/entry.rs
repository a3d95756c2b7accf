//! The way into a call.
//!
//! Cachette calls the driver's library by its own handle and never enters a function of this crate. The driver's
//! library may: its own calls can bind to the front. So a call that arrives while its thread is inside another call
//! goes to the driver.

use std::cell::Cell;

use cachette_process::{guarded, is_forked};

use crate::driver::Driver;
use crate::served::Served;
use crate::status::{NOT_INITIALIZED, Refusal, SUCCESS, Status};

/// What is known about the calling thread.
#[derive(Debug)]
pub(crate) struct Thread {
    /// Whether it is inside a call.
    inside: Cell<bool>,
    /// The context or device that was current at the last request, and what serves it.
    pub(crate) current: Cell<(usize, Option<&'static Served>)>,
    /// The stream of the last request, how many streams the driver had destroyed then, and what serves it.
    pub(crate) stream: Cell<((usize, u64), Option<&'static Served>)>,
    /// The driver's pool of the last request, when it was looked up, and what serves it.
    pub(crate) pool: Cell<(usize, u64, Option<&'static Served>)>,
}

impl Thread {
    pub(crate) const fn new() -> Self {
        Self {
            inside: Cell::new(false),
            current: Cell::new((0, None)),
            stream: Cell::new(((0, 0), None)),
            pool: Cell::new((0, 0, None)),
        }
    }
}

thread_local! {
    static THREAD: Thread = const { Thread::new() };
}

/// How a call has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// With a status of the front.
    Answered(Status),
    /// With a status of the driver.
    Left(Status),
    /// With the status that it asked for.
    Asked(Status),
}

/// Whether this thread is inside a call, which a signal may have interrupted.
pub(crate) fn is_inside() -> bool {
    // A thread whose variables are gone has left.
    THREAD.try_with(|thread| thread.inside.get()).unwrap_or(false)
}

/// Answers a call by `serve`, or by the driver if the front refuses to.
#[inline]
pub(crate) fn answer<C: Driver>(
    serve: impl FnOnce(&Thread, &'static C) -> Result<(), Refusal>,
    driver: impl FnOnce(&'static C) -> Status,
) -> Status {
    let Some(calls) = C::behind().calls() else { return NOT_INITIALIZED };
    THREAD.with(|thread| {
        // A forked child stays inside: it may have inherited locks that no thread will give back.
        if thread.inside.replace(true) || is_forked() {
            return driver(calls);
        }
        let end = match guarded(|| serve(thread, calls)) {
            Ok(()) => End::Answered(SUCCESS),
            Err(Refusal::Driver) => End::Left(driver(calls)),
            Err(Refusal::Status(status)) => End::Answered(status),
            Err(Refusal::Stream) => End::Answered(C::UNKNOWN_STREAM),
            Err(Refusal::Asked(status)) => End::Asked(status),
        };
        calls.leave(end);
        thread.inside.set(false);
        let (End::Answered(status) | End::Left(status) | End::Asked(status)) = end;
        status
    })
}

/// Declares the functions of a driver that the front answers, and those that it only calls.
///
/// `shared` has the driver's names of the functions that both drivers have. Each other answered function has a body that
/// returns `Result<(), Refusal>`. A call that is refused goes to the driver's function of the same name. `Calls` is the
/// table of the driver's functions. They are unsafe to call as the driver's are.
macro_rules! front {
    (
        $prefix:literal;
        shared {
            $allocate:ident, $free:ident, $allocate_async:ident, $allocate_from:ident, $free_async:ident, $range:ident,
            $info:ident, $ipc:ident, $export:ident, $create_pool:ident, $destroy_pool:ident, $set_access:ident,
            $set_pool:ident, $begin:ident, $end:ident, $create:ident, $destroy:ident
        }
        answered { $($answered:tt)* }
        called { $($called:tt)* }
    ) => {
        $crate::entry::answered! {
            $prefix;
            answered {
                /// Memory for every stream at once.
                fn $allocate(out: *mut u64, bytes: usize) |thread, calls| {
                    let served = calls.current(thread)?;
                    // SAFETY: 1. is the caller's promise.
                    unsafe { memory::allocate_idle(served, out, bytes) }
                }

                /// Waits for the device, then frees.
                fn $free(address: u64) |thread, calls| {
                    memory::free(thread, address).or_else(|refusal| {
                        // SAFETY: the arguments are the caller's.
                        outside::free(refusal, address, || unsafe { calls.$free(address) })
                    })
                }

                fn $allocate_async(out: *mut u64, bytes: usize, stream: Handle) |thread, calls| {
                    // SAFETY: 1. and 2. are the caller's promises.
                    unsafe { driver::allocate(thread, calls, out, bytes, stream) }.map_err(Calls::ordered)
                }

                /// Memory of a pool of the driver, for a stream.
                fn $allocate_from(out: *mut u64, bytes: usize, pool: Handle, stream: Handle) |thread, calls| {
                    // SAFETY: 1. and 2. are the caller's promises.
                    unsafe { driver::allocate_from(thread, calls, out, bytes, pool, stream) }.map_err(Calls::ordered)
                }

                /// Frees behind the work of a stream.
                fn $free_async(address: u64, stream: Handle) |thread, calls| {
                    // SAFETY: 1. is the caller's promise.
                    unsafe { driver::free_on(thread, calls, address, stream) }.map_err(Calls::ordered)
                }

                /// The allocation that an address lies in.
                fn $range(base: *mut u64, bytes: *mut usize, address: u64) |thread, _| {
                    // SAFETY: they are null or valid.
                    unsafe { memory::write_range(thread, base, bytes, address) }
                }

                /// Free and total memory; what Cachette holds idle is free.
                fn $info(free: *mut usize, total: *mut usize) |thread, calls| {
                    // SAFETY: they are null or valid.
                    unsafe { memory::write_info(calls.current(thread)?, free, total) }
                }

                /// Names memory for another process, if the driver can.
                fn $ipc(token: *mut c_void, address: u64) |thread, _| {
                    let _ = token;
                    memory::share(thread, address, stringify!($ipc))
                }

                /// Memory of Cachette is in no pool of the driver.
                fn $export(data: *mut c_void, address: u64) |thread, _| {
                    let _ = data;
                    memory::range(thread, address)?;
                    write_line(concat!(
                        stringify!($export),
                        " is not supported: Cachette serves pools without handle types"
                    ));
                    Err(Refusal::Status(NOT_SUPPORTED))
                }

                /// Notes whether the new pool is served.
                fn $create_pool(pool: *mut Handle, properties: *const Properties) |_, calls| {
                    // SAFETY: the arguments are the caller's.
                    let status = unsafe { calls.$create_pool(pool, properties) };
                    // SAFETY: 1. the driver has read and written them.
                    unsafe { driver::note_pool(status, pool, properties) }
                }

                fn $destroy_pool(pool: Handle) |_, calls| {
                    driver_pools::forget(pool.addr(), driver::default_of(calls));
                    Err(Refusal::Driver)
                }

                /// Leaves a pool that other devices reach to the driver.
                fn $set_access(pool: Handle, rights: *const Right, count: usize) |_, calls| {
                    if !rights.is_null() {
                        // SAFETY: it is not null, and otherwise valid for so many.
                        let rights = unsafe { slice::from_raw_parts(rights, count) };
                        driver_pools::grant(pool.addr(), rights, driver::default_of(calls));
                    }
                    Err(Refusal::Driver)
                }

                /// Notes who serves the plain requests of a device.
                fn $set_pool(device: c_int, pool: Handle) |_, calls| {
                    // SAFETY: the arguments are the caller's.
                    let status = unsafe { calls.$set_pool(device, pool) };
                    driver::note_choice(calls, status, device, pool)
                }

                /// Begins a capture with a pool of memory.
                fn $begin(stream: Handle, mode: c_uint) |thread, calls| {
                    // SAFETY: the arguments are the caller's.
                    let begin = || unsafe { calls.$begin(stream, mode) };
                    // SAFETY: 1. is the caller's promise.
                    unsafe { driver::begin_capture(thread, calls, stream, begin) }
                }

                /// Ends a capture; its memory belongs to the graph.
                fn $end(stream: Handle, graph: *mut Handle) |_, calls| {
                    // SAFETY: the arguments are the caller's.
                    let end = || unsafe { calls.$end(stream, graph) };
                    // SAFETY: 1. is the caller's promise.
                    unsafe { driver::end_capture(calls, stream, graph, end) }
                }

                /// A new stream with a priority, or one that the program destroyed.
                fn $create(stream: *mut Handle, flags: c_uint, priority: c_int) |_, calls| {
                    // SAFETY: the arguments are the caller's.
                    let create = || unsafe { calls.$create(stream, flags, priority) };
                    // SAFETY: 1. is the caller's promise.
                    unsafe { driver::create_stream(calls, stream, flags, priority, create) }
                }

                /// Keeps the stream for its memory.
                fn $destroy(stream: Handle) |_, calls| {
                    driver::destroy_stream(calls, stream)
                }

                $($answered)*
            }
            called { $($called)* }
        }
    };
}
pub(crate) use front;

/// Declares the functions themselves, and the table.
macro_rules! answered {
    (
        $prefix:literal;
        answered {$(
            $(#[$doc:meta])*
            fn $name:ident($($argument:ident: $kind:ty),* $(,)?) |$thread:pat_param, $calls:pat_param| $body:block
        )*}
        called { $($called:tt)* }
    ) => {
        $crate::entry::functions! {
            /// The driver's functions.
            Calls {
                common $crate::driver::Common = $prefix;
                $(fn $name($($argument: $kind),*);)*
                $($called)*
            }
        }

        /// The function of the front that has this name.
        fn own(name: &str) -> Option<*const ()> {
            match name {
                $(stringify!($name) => Some($name as *const ()),)*
                _ => None,
            }
        }

        $(
            $(#[$doc])*
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name($($argument: $kind),*) -> $crate::status::Status {
                $crate::entry::answer::<Calls>(
                    |$thread, $calls| $body,
                    // SAFETY: the arguments are the caller's.
                    |calls| unsafe { calls.$name($($argument),*) },
                )
            }
        )*
    };
}
pub(crate) use answered;

/// Declares a table of the driver's functions, with a method for each; one that the driver lacks is not supported.
macro_rules! functions {
    (
        $(#[$doc:meta])*
        $table:ident {
            $(common $common:ty = $prefix:literal;)?
            $(fn $name:ident($($argument:ident: $kind:ty),* $(,)?);)*
        }
    ) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub(crate) struct $table {
            $(common: $common,)?
            $($name: Option<unsafe extern "C" fn($($kind),*) -> $crate::status::Status>,)*
        }

        impl $table {
            /// Finds the functions, whose names begin with `prefix`.
            pub(crate) fn resolve(library: &cachette_hal::load::Library, prefix: &str) -> Self {
                Self {
                    $(common: <$common>::resolve(library, $prefix),)?
                    // SAFETY: the field is a pointer to an `unsafe extern "C"` function.
                    $($name: unsafe { library.find(&format!("{prefix}{}", stringify!($name))) },)*
                }
            }

            $(
                /// # Safety
                ///
                /// The driver's own promises.
                pub(crate) unsafe fn $name(&self, $($argument: $kind),*) -> $crate::status::Status {
                    match self.$name {
                        // SAFETY: the caller's promise.
                        Some(function) => unsafe { function($($argument),*) },
                        None => $crate::status::NOT_SUPPORTED,
                    }
                }
            )*
        }
    };
}
pub(crate) use functions;
