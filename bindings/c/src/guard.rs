//! The one way from C into Rust: a body whose failures are kept for the thread, and whose panics end here.

use std::any::Any;
use std::panic::{self, AssertUnwindSafe};

use crate::failure::Failure;
use crate::last;
use crate::status::Status;

/// Runs the body of a C function.
///
/// What a panic may have left half done is the allocator's own, whose locks all survive one.
pub(crate) fn guard(body: impl FnOnce() -> Result<(), Failure>) -> Status {
    let failure = match panic::catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => return Status::Ok,
        Ok(Err(failure)) => failure,
        Err(payload) => Failure::new(Status::Panic, describe(&*payload)),
    };
    fail(failure)
}

/// Apart from [`guard`], so that what succeeds has nothing to save on the stack.
#[cold]
fn fail(failure: Failure) -> Status {
    let status = failure.status();
    last::keep(failure);
    status
}

fn describe(payload: &(dyn Any + Send)) -> String {
    let said = payload.downcast_ref::<&str>().copied().or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    let said = said.unwrap_or("it said nothing");
    format!("a fault of the library: {said}; please report it, and close the allocator")
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;

    use super::*;

    fn last_text() -> String {
        // SAFETY: it is this thread's own text, which no failure replaces meanwhile.
        let text = unsafe { CStr::from_ptr(last::cachette_last_error()) };
        text.to_str().unwrap().to_owned()
    }

    #[test]
    fn no_panic_passes() {
        assert_eq!(guard(|| panic!("a {}", "word")), Status::Panic);
        assert!(last_text().contains("a word; please report it"));
        assert_eq!(guard(|| panic::panic_any(7)), Status::Panic);
        assert!(last_text().contains("it said nothing"));
    }

    #[test]
    fn a_failure_is_kept_and_a_success_changes_nothing() {
        assert_eq!(last_text(), "");
        assert_eq!(guard(|| Err(Failure::null("this"))), Status::InvalidArgument);
        assert_eq!(guard(|| Ok(())), Status::Ok);
        assert_eq!(last_text(), "`this` is null; pass what it is to point to");
    }
}
