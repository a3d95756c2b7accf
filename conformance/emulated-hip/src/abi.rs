//! The rim: from C to Rust and back, with no panic across it.
//!
//! Every function of the interface trusts its pointers as AMD's does: each is null, or valid for what the
//! function does with it.

use std::cell::Cell;
use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process;
use std::ptr::NonNull;

pub(crate) use cachette_emulated::{Answer, lacking, refuse_if, status_of};
use cachette_hal_hip::status::{INVALID_DEVICE, INVALID_VALUE, NOT_READY, SUCCESS, UNKNOWN};
use cachette_hal_hip::types::Status;

use crate::machine::{Machine, machine};
use crate::personality::Personality;

thread_local! {
    pub(crate) static LAST: Cell<Status> = const { Cell::new(SUCCESS) };
    pub(crate) static CALLS: Cell<u64> = const { Cell::new(0) };
    pub(crate) static LAST_CALL: Cell<Status> = const { Cell::new(SUCCESS) };
    /// The position of the current device.
    pub(crate) static CURRENT: Cell<usize> = const { Cell::new(0) };
}

/// Declares functions of the C interface, whose bodies give an [`Answer`] and see the [`Machine`] by the first name.
///
/// With `=> place` the body gives the value that goes to that argument, and null is refused before anything is done.
macro_rules! abi {
    ($(
        $(#[$doc:meta])*
        fn $name:ident($machine:tt; $($argument:ident: $kind:ty),* $(,)?) $(=> $place:ident)? $body:block
    )*) => {
        $(
            $(#[$doc])*
            #[unsafe(no_mangle)]
            pub(crate) unsafe extern "C" fn $name($($argument: $kind),*) -> cachette_hal_hip::types::Status {
                $crate::abi::call!(|$machine| $body $(=> $place)?)
            }
        )*
    };
}
pub(crate) use abi;

/// Makes one call of a function that [`abi`] declares.
macro_rules! call {
    ($call:expr) => {
        $crate::abi::enter($call)
    };
    ($call:expr => $place:ident) => {{
        // SAFETY: the caller's pointer is null or valid.
        let out = unsafe { $crate::abi::Out::new($place) };
        $crate::abi::enter_into(out, $call)
    }};
}
pub(crate) use call;

/// Makes a call: finds the machine, keeps panics in, and notes the status.
pub(crate) fn enter(call: impl FnOnce(&'static Machine) -> Answer) -> Status {
    CALLS.set(CALLS.get() + 1);
    let made = catch_unwind(AssertUnwindSafe(|| machine().and_then(call)));
    let status = match made {
        Ok(Ok(())) => SUCCESS,
        Ok(Err(status)) => status,
        Err(_) => UNKNOWN,
    };
    note(status);
    status
}

/// Makes a call whose value goes to a place.
pub(crate) fn enter_into<T>(to: Answer<Out<T>>, call: impl FnOnce(&'static Machine) -> Answer<T>) -> Status {
    enter(|machine| {
        to?.write(call(machine)?);
        Ok(())
    })
}

/// Remembers the status of a call as this version does.
fn note(status: Status) {
    let personality = machine().map_or(Personality::V7_2, |machine| machine.personality);
    if personality.last_error_is_last_status() || !matches!(status, SUCCESS | NOT_READY) {
        LAST.set(status);
    }
    LAST_CALL.set(status);
}

/// Where an answer goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Out<T>(NonNull<T>);

impl<T> Out<T> {
    /// Refuses null.
    ///
    /// # Safety
    ///
    /// The pointer is null, or valid for writing until the call returns.
    pub(crate) unsafe fn new(to: *mut T) -> Answer<Self> {
        NonNull::new(to).map(Self).ok_or(INVALID_VALUE)
    }

    pub(crate) fn write(self, value: T) {
        // SAFETY: the caller of `new` has promised that it is valid until the call returns.
        unsafe { self.0.write(value) }
    }
}

/// Ends the process where AMD's library would crash it.
pub(crate) fn crash(why: &str) -> ! {
    eprintln!("emulated HIP: the real library would crash here: {why}");
    process::abort()
}

/// A device's position in the list, if there is such a device.
pub(crate) fn position(machine: &Machine, device: c_int) -> Answer<usize> {
    let position = usize::try_from(device).ok();
    position.filter(|position| *position < machine.devices.len()).ok_or(INVALID_DEVICE)
}

pub(crate) fn number(position: usize) -> c_int {
    c_int::try_from(position).unwrap_or(c_int::MAX)
}
