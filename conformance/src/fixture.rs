//! How the suite opens a backend.

use std::fmt;
use std::sync::Arc;

use cachette_hal::{Backend, Ordinal};

/// An opened backend, or why it could not be opened.
pub type Opened = Result<Arc<dyn Backend>, String>;

/// How the suite opens a backend, and its properties.
pub struct Fixture {
    /// Unique in the program; child processes find their fixture by it.
    pub(crate) name: String,
    open: Box<dyn Fn() -> Opened + Send + Sync>,
    /// The device under test.
    pub(crate) ordinal: Ordinal,
    /// Whether two backends opened here share no device, so that cases may run in parallel.
    pub(crate) is_isolated: bool,
    /// Whether a bad access by the device does no harm outside the process that made it.
    pub(crate) contains_faults: bool,
    /// Whether the backend may be missing. Its cases are then skipped.
    pub(crate) may_be_absent: bool,
}

impl Fixture {
    /// Creates a fixture called `name`. It calls `open` for every case and in every child process.
    pub fn new(name: impl Into<String>, open: impl Fn() -> Opened + Send + Sync + 'static) -> Self {
        Self {
            name: name.into(),
            open: Box::new(open),
            ordinal: Ordinal(0),
            is_isolated: false,
            contains_faults: false,
            may_be_absent: false,
        }
    }

    /// Tests this device instead of the first.
    #[must_use]
    pub fn on(self, ordinal: Ordinal) -> Self {
        Self { ordinal, ..self }
    }

    /// Declares that two backends opened here share no device.
    #[must_use]
    pub fn isolated(self) -> Self {
        Self { is_isolated: true, ..self }
    }

    /// Declares that a bad access does no harm outside the process that made it.
    #[must_use]
    pub fn containing_faults(self) -> Self {
        Self { contains_faults: true, ..self }
    }

    /// Declares that the backend may be missing. Its cases are then skipped.
    #[must_use]
    pub fn if_present(self) -> Self {
        Self { may_be_absent: true, ..self }
    }

    pub(crate) fn open(&self) -> Opened {
        (self.open)()
    }
}

impl fmt::Debug for Fixture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fixture").field("name", &self.name).field("ordinal", &self.ordinal).finish_non_exhaustive()
    }
}
