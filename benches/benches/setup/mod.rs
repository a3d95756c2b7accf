//! What every benchmark begins with.

use std::env;
use std::error::Error;
use std::time::Duration;

use cachette_hal::Ordinal;
use cachette_replay::Target;
use cachette_replay::target::HOST;
use criterion::Criterion;

/// Names the backend to measure; the host's if it is not set.
const VARIABLE: &str = "CACHETTE_BENCH_BACKEND";
/// Phantom memory of the host device.
const CAPACITY: u64 = 1 << 40;

/// The device to measure.
pub(crate) fn target() -> Result<Target, Box<dyn Error>> {
    let backend = match env::var(VARIABLE) {
        Ok(name) => name,
        Err(env::VarError::NotPresent) => HOST.to_owned(),
        Err(error) => return Err(format!("{VARIABLE}: {error}").into()),
    };
    Ok(Target::open(Some(&backend), Ordinal(0), CAPACITY)?)
}

/// Short runs: the figures that are published come from `cachette bench`.
pub(crate) fn criterion() -> Criterion {
    Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_secs(1))
        .configure_from_args()
}
