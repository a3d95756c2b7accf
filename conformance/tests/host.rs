//! The suite against the host device.

use std::process::ExitCode;
use std::sync::Arc;

use cachette_conformance::{Fixture, Opened};
use cachette_hal_host::{HostBackend, HostConfig};

fn open() -> Opened {
    let config = HostConfig::default().devices(2).capacity(256 << 20);
    let backend = HostBackend::new(config).map_err(|error| error.to_string())?;
    Ok(Arc::new(backend))
}

fn main() -> ExitCode {
    cachette_conformance::main(Fixture::new("host", open).isolated().containing_faults())
}
