//! What a function answered, checked before anybody uses it.

#![forbid(unsafe_code)]

use cachette_hal::DevicePtr;

use super::{AllocContext, SourceError};
use crate::human::Bytes;

/// Refuses a size that no source can make.
pub(crate) fn check_bytes(name: &str, bytes: u64) -> Result<(), SourceError> {
    if bytes == 0 {
        return Err(SourceError::other(format!("{name} was asked for zero bytes"), "ask for at least one"));
    }
    if i64::try_from(bytes).is_err() {
        let text = format!("{name} was asked for {bytes} bytes, more than any device has");
        return Err(SourceError::out_of_memory(text));
    }
    Ok(())
}

/// Accepts an address from the function of `name`; zero means that there is no memory.
pub(crate) fn not_null(name: &str, address: u64, bytes: u64, place: &AllocContext) -> Result<DevicePtr, SourceError> {
    DevicePtr::new(address).ok_or_else(|| {
        let (bytes, device) = (Bytes(bytes), place.device);
        SourceError::out_of_memory(format!("{name} gave no memory for {bytes} on device {device}"))
    })
}

/// Accepts an address that begins at a multiple of `alignment`; another is given back first.
pub(crate) fn aligned(
    name: &str,
    ptr: DevicePtr,
    alignment: u64,
    give_back: impl FnOnce() -> Result<(), SourceError>,
) -> Result<DevicePtr, SourceError> {
    if ptr.address().is_multiple_of(alignment) {
        return Ok(ptr);
    }
    let gone = match give_back() {
        Ok(()) => "it was given back".to_owned(),
        Err(error) => format!("giving it back failed too, so it is lost: {error}"),
    };
    Err(SourceError::other(
        format!("{name} returned {ptr}, which is not a multiple of {alignment}; {gone}"),
        "align what it returns",
    ))
}
