//! How the suite opens a backend.

use std::fmt;
use std::sync::Arc;

use cachette_hal::{Backend, Ordinal};

/// A backend that has just been opened, or why it could not be.
pub type Opened = Result<Arc<dyn Backend>, String>;

/// How the suite opens a backend, and its properties.
///
/// A closure is a fixture; [`Joined`] is one with a name and properties.
pub trait Fixture: Send + Sync {
    /// Opens the backend; called anew for every case and in every child process.
    fn open(&self) -> Opened;

    /// A name that is unique in the program; child processes find their fixture by it.
    fn name(&self) -> String {
        "backend".to_owned()
    }

    /// The device under test.
    fn ordinal(&self) -> Ordinal {
        Ordinal(0)
    }

    /// Whether two backends opened here share no device, so that cases may run side by side.
    fn is_isolated(&self) -> bool {
        false
    }

    /// Whether a bad access by the device does no harm outside the process that made it.
    fn contains_faults(&self) -> bool {
        false
    }

    /// Whether the backend need not be installed: then its cases are skipped if it does not open.
    fn may_be_absent(&self) -> bool {
        false
    }
}

impl<F> Fixture for F
where
    F: Fn() -> Opened + Send + Sync,
{
    fn open(&self) -> Opened {
        self()
    }
}

/// A closure that opens a backend, with a name and properties.
#[derive(Clone)]
pub struct Joined<F> {
    name: String,
    open: F,
    ordinal: Ordinal,
    isolated: bool,
    contains_faults: bool,
    may_be_absent: bool,
}

impl<F> Joined<F>
where
    F: Fn() -> Opened + Send + Sync,
{
    /// A fixture called `name` that opens its backend by `open`.
    pub fn new(name: impl Into<String>, open: F) -> Self {
        Self {
            name: name.into(),
            open,
            ordinal: Ordinal(0),
            isolated: false,
            contains_faults: false,
            may_be_absent: false,
        }
    }

    /// Tests this device instead of the first.
    #[must_use]
    pub fn on(mut self, ordinal: Ordinal) -> Self {
        self.ordinal = ordinal;
        self
    }

    /// Says that two backends opened here share no device.
    #[must_use]
    pub fn isolated(mut self) -> Self {
        self.isolated = true;
        self
    }

    /// Says that a bad access does no harm outside the process that made it.
    #[must_use]
    pub fn containing_faults(mut self) -> Self {
        self.contains_faults = true;
        self
    }

    /// Says that the backend need not be installed: its cases are then skipped.
    #[must_use]
    pub fn if_present(mut self) -> Self {
        self.may_be_absent = true;
        self
    }
}

impl<F> fmt::Debug for Joined<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Joined").field("name", &self.name).field("ordinal", &self.ordinal).finish_non_exhaustive()
    }
}

impl<F> Fixture for Joined<F>
where
    F: Fn() -> Opened + Send + Sync,
{
    fn open(&self) -> Opened {
        (self.open)()
    }

    fn name(&self) -> String {
        self.name.clone()
    }

    fn ordinal(&self) -> Ordinal {
        self.ordinal
    }

    fn is_isolated(&self) -> bool {
        self.isolated
    }

    fn contains_faults(&self) -> bool {
        self.contains_faults
    }

    fn may_be_absent(&self) -> bool {
        self.may_be_absent
    }
}
