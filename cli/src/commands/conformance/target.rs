//! The device under test.

use std::sync::Arc;

use cachette::Backends;
use cachette::backends::OpenError;
use cachette_conformance::Fixture;
use cachette_hal::{Backend, Ordinal};
use cachette_hal_host::HostConfig;

/// The suite needs two host devices, for access from one to the other.
const HOST_DEVICES: u32 = 2;
/// Small enough for any machine, and larger than any case needs.
const HOST_CAPACITY: u64 = 256 << 20;

/// Returns a fixture for an existing device, by default of the first backend that has one. The error lists the existing
/// ones.
pub(in crate::commands) fn find(name: Option<&str>, ordinal: Ordinal) -> Result<Fixture, OpenError> {
    let has_device = |name: &&str| load(name).is_ok_and(|backend| Backends::open_on(&*backend, Ordinal(0)).is_ok());
    let backend = load(name.or_else(|| Backends::names().find(has_device)).unwrap_or("host"))?;
    Backends::open_on(&*backend, ordinal)?;
    let name = backend.info().name;
    let fixture = Fixture::new(name, move || load(name).map_err(|error| error.to_string())).on(ordinal);
    Ok(if name == "host" { fixture.isolated().containing_faults() } else { fixture })
}

/// Loads a backend. The host backend is created anew for each run of the suite.
fn load(name: &str) -> Result<Arc<dyn Backend>, OpenError> {
    if name != "host" {
        return Backends::load(name);
    }
    let config = HostConfig::default().devices(HOST_DEVICES).capacity(HOST_CAPACITY);
    Backends::host(config)
}
