//! The way into a call.
//!
//! Cachette calls the driver's library by its own handle and never enters a function of this crate. The driver's
//! library may: its own calls can bind to the front. So a call that arrives while its thread is inside another call
//! goes to the driver.

use std::cell::Cell;

use cachette_process::{guarded, is_forked};

use crate::library::Behind;
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

/// What differs between the drivers in every call.
pub(crate) trait VendorCalls {
    /// The status of a call with a stream that does not exist.
    const UNKNOWN_STREAM: Status;

    /// Runs at the end of a call.
    #[inline]
    fn leave(&self, _end: End) {}
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
pub(crate) fn answer<C: VendorCalls + 'static>(
    behind: &'static Behind<C>,
    serve: impl FnOnce(&Thread, &'static C) -> Result<(), Refusal>,
    driver: impl FnOnce(&'static C) -> Status,
) -> Status {
    let Some(calls) = behind.calls() else { return NOT_INITIALIZED };
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
/// Each answered function has a body that returns `Result<(), Refusal>`; a call that it refuses goes to the driver's
/// function of the same name. `Calls` is the table of the driver's functions; one that the driver lacks is not
/// supported. They are unsafe to call as the driver's are.
macro_rules! front {
    (
        $behind:ident;
        answered {$(
            $(#[$doc:meta])*
            fn $name:ident($($argument:ident: $kind:ty),* $(,)?) |$thread:pat_param, $calls:pat_param| $body:block
        )*}
        called {$(
            fn $called:ident($($called_argument:ident: $called_kind:ty),* $(,)?);
        )*}
    ) => {
        /// The driver's functions.
        #[derive(Debug)]
        pub(crate) struct Calls {
            $(pub(crate) $name: Option<unsafe extern "C" fn($($kind),*) -> $crate::status::Status>,)*
            $(pub(crate) $called: Option<unsafe extern "C" fn($($called_kind),*) -> $crate::status::Status>,)*
        }

        impl Calls {
            fn resolve(library: &cachette_hal::load::Library) -> Self {
                Self {
                    // SAFETY: the field is a pointer to an `unsafe extern "C"` function.
                    $($name: unsafe { library.find(stringify!($name)) },)*
                    // SAFETY: as above.
                    $($called: unsafe { library.find(stringify!($called)) },)*
                }
            }

            $crate::entry::driver_calls! {
                $(fn $name($($argument: $kind),*);)*
                $(fn $called($($called_argument: $called_kind),*);)*
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
                $crate::entry::answer(
                    &$behind,
                    |$thread, $calls| $body,
                    // SAFETY: the arguments are the caller's.
                    |calls| unsafe { calls.$name($($argument),*) },
                )
            }
        )*
    };
}
pub(crate) use front;

/// Declares a method for each of the driver's functions; one that the driver lacks is not supported.
macro_rules! driver_calls {
    ($(fn $name:ident($($argument:ident: $kind:ty),*);)*) => {
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
    };
}
pub(crate) use driver_calls;
