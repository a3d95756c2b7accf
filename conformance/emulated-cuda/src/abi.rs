//! The common part of every function of the C interface.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process;

use cachette_hal::{DevicePtr, StreamRef};

use crate::driver;
use crate::per_thread::{PER_THREAD, own_stream};
use crate::status::{Answer, INVALID_VALUE, Status, UNKNOWN, refuse_if};

/// Declares functions of the C interface, whose bodies give an [`Answer`].
///
/// With `=> place` the body gives the value that goes to that argument.
/// They are unsafe to call as the driver's are: pointers are null or valid for what `cuda.h` says.
macro_rules! abi {
    ($(
        $(#[$doc:meta])*
        fn $name:ident($($argument:ident: $kind:ty),* $(,)?) $(=> $place:ident)? $body:block
    )*) => {
        $(
            $(#[$doc])*
            #[unsafe(no_mangle)]
            pub(crate) unsafe extern "C" fn $name($($argument: $kind),*) -> $crate::status::Status {
                $crate::abi::call!(|| $body $(=> $place)?)
            }
        )*
    };
}
pub(crate) use abi;

/// Makes one call of a function that [`abi`] declares.
macro_rules! call {
    ($body:expr) => {
        $crate::abi::answer($body)
    };
    ($body:expr => $place:ident) => {
        // SAFETY: the caller's promise.
        $crate::abi::answer_with($body, |value| unsafe { $crate::abi::put($place, value) })
    };
}
pub(crate) use call;

/// Runs a function's body; no panic crosses into C.
pub(crate) fn answer(body: impl FnOnce() -> Answer) -> Status {
    let checked = || {
        driver::check()?;
        body()
    };
    match catch_unwind(AssertUnwindSafe(checked)) {
        Ok(Ok(())) => 0,
        Ok(Err(status)) => status,
        Err(_) => UNKNOWN,
    }
}

/// Runs a function's body, and hands its value to `put`.
pub(crate) fn answer_with<T>(body: impl FnOnce() -> Answer<T>, put: impl FnOnce(T) -> Answer) -> Status {
    answer(|| put(body()?))
}

/// Writes a value where the caller wants it; nowhere to write is an invalid value.
///
/// # Safety
///
/// `place` is null or valid for writes.
pub(crate) unsafe fn put<T>(place: *mut T, value: T) -> Answer {
    refuse_if(place.is_null(), INVALID_VALUE)?;
    // SAFETY: it is not null, and otherwise the caller's promise.
    unsafe { place.write(value) };
    Ok(())
}

/// Writes a value if the caller wants it.
///
/// # Safety
///
/// `place` is null or valid for writes.
pub(crate) unsafe fn put_if_wanted<T>(place: *mut T, value: T) {
    if !place.is_null() {
        // SAFETY: it is not null, and otherwise the caller's promise.
        unsafe { place.write(value) };
    }
}

/// An address; null is an invalid value.
pub(crate) fn device_ptr(at: u64) -> Answer<DevicePtr> {
    DevicePtr::new(at).ok_or(INVALID_VALUE)
}

/// The stream that a call uses; crashes if another thread is ending its capture.
pub(crate) fn stream_ref<T>(stream: *mut T) -> StreamRef {
    let stream = named_stream(stream);
    if driver::driver().is_ok_and(|driver| driver.ledger.ending.lock().contains(&stream.raw())) {
        crash("another thread ends the capture of the stream");
    }
    stream
}

/// Ends the process where NVIDIA's driver may crash it.
pub(crate) fn crash(why: &str) -> ! {
    eprintln!("emulated CUDA: the real driver may crash here: {why}");
    process::abort()
}

/// A stream by its handle; the driver has a second name for the default one.
pub(crate) fn named_stream<T>(stream: *mut T) -> StreamRef {
    const LEGACY: usize = 1;
    match stream.expose_provenance() {
        LEGACY => StreamRef::DEFAULT,
        // Without a context there is no such stream.
        PER_THREAD => own_stream().unwrap_or(StreamRef::from_raw(PER_THREAD)),
        handle => StreamRef::from_raw(handle),
    }
}
