//! The calling thread's current device, borrowed for one call.

use std::ffi::c_int;

use cachette_hal::Result;

use crate::library::Driver;

/// Makes a device the calling thread's current one while it lives, and puts back the one before.
///
/// Every call is made under one, those that name a device too: since 7.1 `hipMemCreate` takes the current
/// device instead of the one it is told.
#[derive(Debug)]
pub(crate) struct Current<'d> {
    driver: &'d Driver,
    /// The device to put back; `None` if it is the same one.
    before: Option<c_int>,
}

impl<'d> Current<'d> {
    /// Makes `device` the current one.
    pub(crate) fn enter(driver: &'d Driver, device: c_int) -> Result<Self> {
        let core = &driver.symbols.core;
        let mut before = 0;
        // SAFETY: the out-parameter outlives the call.
        let status = unsafe { (core.hipGetDevice)(&raw mut before) };
        driver.check("hipGetDevice", status)?;
        if before == device {
            let before = None;
            return Ok(Self { driver, before });
        }
        // SAFETY: it takes numbers alone.
        let status = unsafe { (core.hipSetDevice)(device) };
        driver.check("hipSetDevice", status)?;
        let before = Some(before);
        Ok(Self { driver, before })
    }
}

impl Drop for Current<'_> {
    fn drop(&mut self) {
        if let Some(before) = self.before {
            // It was current a moment ago; should it be gone now, there is nothing to put back.
            // SAFETY: it takes numbers alone.
            let _ = unsafe { (self.driver.symbols.core.hipSetDevice)(before) };
        }
    }
}
