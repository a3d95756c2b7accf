//! Checks that implementations of [`Source`](super::Source) share.

#![forbid(unsafe_code)]

use cachette_hal::DevicePtr;

use super::{AllocContext, SourceError};
use crate::human::Bytes;

/// Rejects a size that no source can allocate: zero, or more than `i64::MAX`.
pub fn check_bytes(name: &str, bytes: u64) -> Result<(), SourceError> {
    if bytes == 0 {
        return Err(SourceError::other(format!("{name} was asked for zero bytes"), "ask for at least one"));
    }
    if i64::try_from(bytes).is_err() {
        let text = format!("{name} was asked for {bytes} bytes, more than any device has");
        return Err(SourceError::out_of_memory(text));
    }
    Ok(())
}

/// Checks the address that the function of the source `name` returned. Null is out of memory.
pub fn not_null(name: &str, address: u64, bytes: u64, context: &AllocContext) -> Result<DevicePtr, SourceError> {
    DevicePtr::new(address).ok_or_else(|| {
        let (bytes, device) = (Bytes(bytes), context.device);
        SourceError::out_of_memory(format!("{name} returned no memory for {bytes} on device {device}"))
    })
}

/// Returns `ptr` if it is a multiple of `alignment`. Otherwise calls `free` and returns an error.
pub fn aligned(
    name: &str,
    ptr: DevicePtr,
    alignment: u64,
    free: impl FnOnce() -> Result<(), SourceError>,
) -> Result<DevicePtr, SourceError> {
    if ptr.address().is_multiple_of(alignment) {
        return Ok(ptr);
    }
    let freed = match free() {
        Ok(()) => "it was freed".to_owned(),
        Err(error) => format!("freeing it failed too, so it is leaked: {error}"),
    };
    Err(SourceError::other(
        format!("{name} returned {ptr}, which is not a multiple of {alignment}; {freed}"),
        "align the addresses that it returns",
    ))
}
