//! libcuda: its candidates and its functions.

use std::env;
use std::ffi::c_int;

use cachette_hal::load::{Candidate, Library};
use cachette_hal::{BackendInfo, LoadError, Result, Vendor, Version};

use crate::status::{NO_DEVICE, check};
use crate::symbols::{CoreCalls, Symbols};

const VARIABLE: &str = "CACHETTE_CUDA_LIBRARY";
const OLDEST: Version = Version::new(12, 0);
/// Exported by a library that emulates the driver.
const EMULATED: &str = "cachette_emulated_library";

/// The driver: its functions, resolved once.
#[derive(Debug)]
pub(crate) struct Driver {
    pub(crate) info: BackendInfo,
    pub(crate) symbols: Symbols,
}

/// The candidates for the driver, best first.
///
/// If the variable names a file, that is the only candidate. A copy that the process has loaded already comes before
/// the system's, so that the whole process shares one driver.
#[must_use]
pub fn candidates() -> Vec<Candidate> {
    if let Some(path) = env::var_os(VARIABLE).filter(|path| !path.is_empty()) {
        return vec![Candidate::Path(path.into())];
    }
    vec![
        Candidate::Loaded("libcuda.so.1".into()),
        Candidate::Name("libcuda.so.1".into()),
        Candidate::Name("libcuda.so".into()),
    ]
}

impl Driver {
    /// Opens the first candidate that can be opened, and starts it.
    ///
    /// # Safety
    ///
    /// Each candidate is the driver's library, or one with the same C interface.
    pub(crate) unsafe fn load(candidates: &[Candidate]) -> Result<Self, LoadError> {
        // SAFETY: the caller's promise.
        let library = unsafe { Library::open_first(candidates) }?;
        let symbols = Symbols::resolve(&library)?;
        let version = start(&symbols.core, library.name())?;
        // SAFETY: it is a function, and is not called.
        let emulated = unsafe { library.find::<unsafe extern "C" fn() -> c_int>(EMULATED) }.is_some();
        let name = library.name().to_owned();
        Ok(Self { info: BackendInfo::new("cuda", Vendor::Nvidia, version, name, emulated), symbols })
    }

    pub(crate) fn device_count(&self) -> Result<u32> {
        count(&self.symbols.core)
    }
}

/// Checks the version, starts the driver, and checks that it has a device.
fn start(core: &CoreCalls, library: &str) -> Result<Version, LoadError> {
    let failed = |error| LoadError::Start { library: library.to_owned(), error };
    let found = version(core).map_err(failed)?;
    if found < OLDEST {
        return Err(LoadError::TooOld { library: library.to_owned(), needs: OLDEST, found });
    }
    // SAFETY: there are no flags.
    let status = unsafe { (core.cuInit)(0) };
    let none = LoadError::NoDevice { library: library.to_owned() };
    if status == NO_DEVICE {
        return Err(none);
    }
    check("cuInit", status).map_err(failed)?;
    match count(core).map_err(failed)? {
        0 => Err(none),
        _ => Ok(found),
    }
}

fn version(core: &CoreCalls) -> Result<Version> {
    let mut number = 0;
    // SAFETY: the driver writes one number.
    let status = unsafe { (core.cuDriverGetVersion)(&raw mut number) };
    check("cuDriverGetVersion", status)?;
    let number = number.unsigned_abs();
    Ok(Version::new(number / 1000, number % 1000 / 10))
}

fn count(core: &CoreCalls) -> Result<u32> {
    let mut devices = 0;
    // SAFETY: the driver writes one number.
    let status = unsafe { (core.cuDeviceGetCount)(&raw mut devices) };
    check("cuDeviceGetCount", status)?;
    Ok(devices.unsigned_abs())
}
