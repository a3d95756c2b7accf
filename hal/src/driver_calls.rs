//! What the crates of the vendors do alike around a driver call.

use crate::error::{Error, ErrorKind, Result};

/// The name of a call that takes a size; rejects zero, which drivers treat differently.
#[doc(hidden)]
pub const fn sized_call(call: &'static str, bytes: u64) -> Result<&'static str> {
    if bytes == 0 { Err(Error::new(ErrorKind::InvalidValue, call)) } else { Ok(call) }
}

/// Accepts one status as success: the state was already set.
#[doc(hidden)]
pub fn accept(status: i32, result: Result<()>) -> Result<()> {
    match result {
        Err(error) if error.status() == Some(status) => Ok(()),
        result => result,
    }
}
