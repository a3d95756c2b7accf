//! The device that the suite is run against.

use std::sync::Arc;

use cachette::Backends;
use cachette::backends::OpenError;
use cachette_conformance::{Fixture, Opened};
use cachette_hal::{Backend, Ordinal};
use cachette_hal_host::HostConfig;

/// The suite needs two host devices, to let one reach the other.
const HOST_DEVICES: u32 = 2;
/// Small enough for any machine, and larger than any case needs.
const HOST_CAPACITY: u64 = 256 << 20;

/// A device that exists, by backend and ordinal.
#[derive(Debug)]
pub(super) struct Target {
    backend: &'static str,
    ordinal: Ordinal,
}

impl Target {
    /// Finds the device; the error says which there are.
    pub(super) fn find(name: &str, ordinal: Ordinal) -> Result<Self, OpenError> {
        let backend = load(name)?;
        Backends::open_on(&*backend, ordinal)?;
        Ok(Self { backend: backend.info().name, ordinal })
    }

    fn is_host(&self) -> bool {
        self.backend == "host"
    }
}

impl Fixture for Target {
    fn open(&self) -> Opened {
        load(self.backend).map_err(|error| error.to_string())
    }

    fn name(&self) -> String {
        self.backend.to_owned()
    }

    fn ordinal(&self) -> Ordinal {
        self.ordinal
    }

    fn is_isolated(&self) -> bool {
        self.is_host()
    }

    fn contains_faults(&self) -> bool {
        self.is_host()
    }
}

/// Loads a backend; the host's anew each time, and made for the suite.
fn load(name: &str) -> Result<Arc<dyn Backend>, OpenError> {
    if name != "host" {
        return Backends::load(name);
    }
    let config = HostConfig::default().devices(HOST_DEVICES).capacity(HOST_CAPACITY);
    Backends::host(config)
}
