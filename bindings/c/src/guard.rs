//! The body of every C function: it checks the arguments, stores the error for the thread, and catches panics.

use std::any::Any;
use std::panic::{self, AssertUnwindSafe};

use crate::failure::Failure;
use crate::last;
use crate::status::Status;

/// The `# Safety` section of a C function: the numbers of the crate's promises that its caller makes.
///
/// The header has no such sections: cbindgen skips documentation that is not a literal.
macro_rules! promises {
    ($numbers:literal) => {
        concat!("\n# Safety\n\nPromises at the head of the crate: ", $numbers, ".")
    };
}

/// The body of a C function: `call!([kind(argument), ..], expression)`.
///
/// A kind is a function of [`crate::given`]. It checks the argument and turns it into a Rust value of the same name;
/// an argument may be followed by those that belong to it, such as its size. The expression may use `?`.
macro_rules! call {
    ([$($kind:ident($name:ident $(, $more:ident)*)),*], $body:expr) => {
        $crate::guard::guard(|| {
            $(
                // SAFETY: the `# Safety` section of the C function names the promise that this kind needs.
                let $name = unsafe { $crate::handle::$kind($name $(, $more)*, stringify!($name)) }?;
            )*
            $body;
            Ok(())
        })
    };
}

pub(crate) use {call, promises};

/// Runs `body`. Returns its status; a failure or a panic is also stored as the thread's last error.
///
/// A panic may leave the allocator's state incomplete, but it poisons none of its locks.
pub(crate) fn guard(body: impl FnOnce() -> Result<(), Failure>) -> Status {
    let failure = match panic::catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => return Status::Ok,
        Ok(Err(failure)) => failure,
        Err(payload) => Failure::new(Status::Panic, describe(&*payload)),
    };
    fail(failure)
}

/// Separate from [`guard`], so that a successful call saves no registers for it.
#[cold]
fn fail(failure: Failure) -> Status {
    let status = failure.status();
    last::keep(failure);
    status
}

fn describe(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().copied().or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    let text = text.unwrap_or("no message");
    format!("internal panic ({text}); please report it, and close the allocator")
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;

    use super::*;

    fn last_text() -> String {
        // SAFETY: the text is the thread's, and no failure replaces it during the call.
        let text = unsafe { CStr::from_ptr(last::cachette_last_error()) };
        text.to_str().unwrap().to_owned()
    }

    #[test]
    fn no_panic_passes() {
        assert_eq!(guard(|| panic!("a {}", "word")), Status::Panic);
        assert!(last_text().contains("(a word); please report it"));
        assert_eq!(guard(|| panic::panic_any(7)), Status::Panic);
        assert!(last_text().contains("internal panic (no message)"));
    }

    #[test]
    fn a_failure_is_kept_and_a_success_changes_nothing() {
        assert_eq!(last_text(), "");
        assert_eq!(guard(|| Err(Failure::null("this"))), Status::InvalidArgument);
        assert_eq!(guard(|| Ok(())), Status::Ok);
        assert_eq!(last_text(), "`this` is null; pass a valid pointer");
    }
}
