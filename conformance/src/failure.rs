//! Why a case stopped before its end.

use std::fmt::Display;
use std::panic::Location;

use cachette_hal::owned::NotClosed;
use cachette_hal::{Error, Missing};

/// The result of a case.
pub type Verdict<T = ()> = Result<T, Stop>;

/// Why a case stopped before its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// A promise was broken; the text has the line of the check.
    Failed(String),
    /// The case cannot run on the device; the text is the reason.
    Skipped(String),
}

impl Stop {
    /// Creates a failure with `text`, at the caller's line.
    #[track_caller]
    pub(crate) fn failed(text: impl Display) -> Self {
        let place = Location::caller();
        Self::Failed(format!("{text} ({}:{})", place.file(), place.line()))
    }

    pub(crate) fn skipped(reason: impl Into<String>) -> Self {
        Self::Skipped(reason.into())
    }
}

impl From<Error> for Stop {
    /// Converts the error of a call that should have succeeded; the line is that of the `?`.
    #[track_caller]
    fn from(error: Error) -> Self {
        Self::failed(error)
    }
}

impl<O> From<NotClosed<O>> for Stop {
    /// Converts the inner error; the owner is dropped.
    #[track_caller]
    fn from(kept: NotClosed<O>) -> Self {
        Self::from(kept.error)
    }
}

impl From<Missing> for Stop {
    fn from(missing: Missing) -> Self {
        Self::skipped(missing.to_string())
    }
}

/// Fails unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $($text:tt)+) => {
        if $condition { Ok(()) } else { Err($crate::failure::Stop::failed(format!($($text)+))) }
    };
}

/// Fails unless both values are equal, and shows them.
macro_rules! ensure_eq {
    ($left:expr, $right:expr, $($text:tt)+) => {
        match (&$left, &$right) {
            (left, right) if left == right => Ok(()),
            (left, right) => {
                let text = format!($($text)+);
                Err($crate::failure::Stop::failed(format!("{text}: found {left:?}, promised {right:?}")))
            }
        }
    };
}

pub(crate) use {ensure, ensure_eq};

#[cfg(test)]
mod tests {
    use cachette_hal::ErrorKind;

    use super::*;

    fn asks() -> Verdict {
        Err(Error::new(ErrorKind::InvalidValue, "map"))?;
        Ok(())
    }

    #[test]
    fn a_failed_call_names_the_line_that_made_it() {
        let Err(Stop::Failed(text)) = asks() else {
            panic!("the call fails");
        };
        assert!(text.starts_with("map failed: invalid value"), "{text}");
        assert!(text.contains("failure.rs:"), "{text}");
    }

    #[test]
    fn unequal_values_are_both_shown() {
        let check = || -> Verdict { ensure_eq!(1, 2, "the count") };
        let Err(Stop::Failed(failure)) = check() else {
            panic!("one is not two");
        };
        assert!(failure.starts_with("the count: found 1, promised 2"));
    }
}
