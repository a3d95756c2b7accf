//! libcuda: where it is looked for, and what it must be able to do.

use std::env;
use std::ffi::c_int;

use cachette_hal::load::{Candidate, Library};
use cachette_hal::{LoadError, Reason, Result, Version};

use crate::probe::group;
use crate::status::{NO_DEVICE, check};
use crate::symbols::{
    CaptureCalls, CoreCalls, HostCallCalls, HostMemoryCalls, IpcCalls, PeerAccessCalls, StreamOrderedCalls,
    TransferCalls, VirtualMemoryCalls,
};

/// The variable that names the library's file.
const VARIABLE: &str = "CACHETTE_CUDA_LIBRARY";
/// The oldest driver that works.
const OLDEST: Version = Version::new(12, 0);
/// What a library that imitates the driver exports, to say so.
const EMULATED: &str = "cachette_emulated_library";

/// The driver: its functions, resolved once.
#[derive(Debug)]
pub(crate) struct Driver {
    pub(crate) library: String,
    pub(crate) version: Version,
    pub(crate) emulated: bool,
    pub(crate) core: CoreCalls,
    pub(crate) virtual_memory: Result<VirtualMemoryCalls, Reason>,
    pub(crate) stream_ordered: Result<StreamOrderedCalls, Reason>,
    pub(crate) host_memory: Result<HostMemoryCalls, Reason>,
    pub(crate) ipc: Result<IpcCalls, Reason>,
    pub(crate) capture: Result<CaptureCalls, Reason>,
    pub(crate) peer_access: Result<PeerAccessCalls, Reason>,
    pub(crate) transfer: Result<TransferCalls, Reason>,
    pub(crate) host_calls: Result<HostCallCalls, Reason>,
}

/// Where the driver is looked for, best first.
///
/// A file that the variable names is the only candidate: whoever names one does not want another. A copy
/// that the process has loaded already comes before the system's, so that all of it shares one driver.
pub(crate) fn candidates() -> Vec<Candidate> {
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
    /// Each candidate is the driver's library, or one that keeps to its C interface.
    pub(crate) unsafe fn load(candidates: &[Candidate]) -> Result<Self, LoadError> {
        // SAFETY: the caller's promise.
        let library = unsafe { Library::open_first(candidates) }?;
        let core = CoreCalls::resolve(&library)?;
        let version = start(&core, library.name())?;
        // SAFETY: it is a function, and is only looked for.
        let mark = unsafe { library.find::<unsafe extern "C" fn() -> c_int>(EMULATED) };
        Ok(Self {
            version,
            emulated: mark.is_some(),
            core,
            virtual_memory: group(VirtualMemoryCalls::resolve(&library)),
            stream_ordered: group(StreamOrderedCalls::resolve(&library)),
            host_memory: group(HostMemoryCalls::resolve(&library)),
            ipc: group(IpcCalls::resolve(&library)),
            capture: group(CaptureCalls::resolve(&library)),
            peer_access: group(PeerAccessCalls::resolve(&library)),
            transfer: group(TransferCalls::resolve(&library)),
            host_calls: group(HostCallCalls::resolve(&library)),
            library: library.name().to_owned(),
        })
    }

    /// How many devices the driver shows.
    pub(crate) fn device_count(&self) -> Result<u32> {
        count(&self.core)
    }
}

/// Checks the version, starts the driver, and looks for devices.
fn start(core: &CoreCalls, library: &str) -> Result<Version, LoadError> {
    let failed = |error| LoadError::Start { library: library.to_owned(), error };
    let found = version(core).map_err(failed)?;
    if found < OLDEST {
        return Err(LoadError::TooOld { library: library.to_owned(), needs: OLDEST, found });
    }
    // SAFETY: the only flag defined is none.
    let status = unsafe { (core.init)(0) };
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
    let status = unsafe { (core.version)(&raw mut number) };
    check("cuDriverGetVersion", status)?;
    let number = number.unsigned_abs();
    Ok(Version::new(number / 1000, number % 1000 / 10))
}

fn count(core: &CoreCalls) -> Result<u32> {
    let mut devices = 0;
    // SAFETY: the driver writes one number.
    let status = unsafe { (core.device_count)(&raw mut devices) };
    check("cuDeviceGetCount", status)?;
    Ok(devices.unsigned_abs())
}
