//! A checked device catches every misuse before the driver sees it.

mod handles;
mod lifetimes;
mod mappings;
mod ranges;

use std::fmt::Debug;
use std::sync::Arc;

use cachette_hal::{ErrorKind, Result};
use cachette_hal_testing::Checked;
use cachette_hal_testing::checked::{Misuse, MisuseKind};

use crate::fake::Fake;

/// The device under test.
type Subject = Checked<Arc<Fake>>;

/// A checked fake.
fn subject() -> Subject {
    Checked::new(Arc::new(Fake::new()))
}

/// Makes a wrong call: it must be caught as `what`, say each of `parts`, and not reach the driver.
fn caught<T: Debug>(device: &Subject, what: MisuseKind, parts: &[&str], wrong: impl FnOnce() -> Result<T>) -> Misuse {
    let reached = device.device().calls();
    let known = device.misuses().len();
    let error = wrong().expect_err("the call is wrong");
    assert_eq!(device.device().calls(), reached, "the driver was reached");
    let mut misuses = device.misuses();
    assert_eq!(misuses.len(), known + 1);
    let misuse = misuses.pop().expect("there is one more than before");
    assert_eq!(misuse.what, what, "{misuse}");
    assert_eq!(error.call(), misuse.call.name());
    assert!(matches!(error.kind(), ErrorKind::InvalidHandle | ErrorKind::InvalidValue));
    let text = misuse.to_string();
    for part in parts {
        assert!(text.contains(part), "'{part}' is not in: {text}");
    }
    misuse
}

/// [`caught`] for a call of the device: the call, which the report names, the kind of misuse, and parts of its text.
macro_rules! wrong {
    ($device:ident.$call:ident($($argument:expr),*) => $kind:ident $(, $part:expr)*) => {{
        let kind = cachette_hal_testing::checked::MisuseKind::$kind;
        let misuse = $crate::checked::caught(&$device, kind, &[$($part),*], || {
            $crate::fake::call!($device.$call($($argument),*))
        });
        assert_eq!(misuse.call.name(), stringify!($call));
        misuse
    }};
}
use wrong;
