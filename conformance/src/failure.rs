//! Why a case stopped before its end.

use std::fmt;
use std::panic::Location;

use cachette_hal::owned::NotClosed;
use cachette_hal::{Error, Missing};

/// The result of a case.
pub type Verdict<T = ()> = Result<T, Stop>;

/// Why a case stopped before its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// A promise was broken.
    Failed(Failure),
    /// The case cannot run on the device; the text is the reason.
    Skipped(String),
}

impl Stop {
    /// Creates a failure with `text`, at the caller's line.
    #[track_caller]
    pub(crate) fn failed(text: impl Into<String>) -> Self {
        Self::Failed(Failure::here(text))
    }

    /// The case cannot run on the device.
    pub(crate) fn skipped(reason: impl Into<String>) -> Self {
        Self::Skipped(reason.into())
    }
}

/// A broken promise, with the line of the check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    text: String,
    place: Option<&'static Location<'static>>,
}

impl Failure {
    /// Creates a failure at the caller's line.
    #[track_caller]
    pub(crate) fn here(text: impl Into<String>) -> Self {
        Self { text: text.into(), place: Some(Location::caller()) }
    }

    /// Creates a failure that was detected outside the case, such as a hang.
    pub(crate) fn outside(text: impl Into<String>) -> Self {
        Self { text: text.into(), place: None }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)?;
        match self.place {
            Some(place) => write!(f, " ({}:{})", place.file(), place.line()),
            None => Ok(()),
        }
    }
}

impl From<Error> for Stop {
    /// Converts the error of a call that should have succeeded; the line is that of the `?`.
    #[track_caller]
    fn from(error: Error) -> Self {
        Self::failed(error.to_string())
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
        let Err(Stop::Failed(failure)) = asks() else {
            panic!("the call fails");
        };
        let text = failure.to_string();
        assert!(text.starts_with("map failed: invalid value"), "{text}");
        assert!(text.contains("failure.rs:"), "{text}");
    }

    #[test]
    fn unequal_values_are_both_shown() {
        let check = || -> Verdict { ensure_eq!(1, 2, "the count") };
        let Err(Stop::Failed(failure)) = check() else {
            panic!("one is not two");
        };
        assert!(failure.to_string().starts_with("the count: found 1, promised 2"));
    }
}
