//! An emulated library in place of a vendor's that cannot be used.

use std::env;

use crate::emulated::library;

/// Lets this process and its children load an emulated library in place of the vendor's.
///
/// `variable` names the library to the loader. A library that the user has named stays, even one that
/// fails: that is then the result. The variable that
/// hides devices is for the vendor's, and goes.
///
/// # Safety
///
/// No other thread reads or writes the environment meanwhile.
pub(crate) unsafe fn stand_in(file: &str, variable: &str, hides: &str) {
    if env::var_os(variable).is_some_and(|path| !path.is_empty()) {
        return;
    }
    // SAFETY: the caller's promise.
    unsafe { env::set_var(variable, library(file)) };
    // SAFETY: the caller's promise.
    unsafe { env::remove_var(hides) };
}
