//! The driver as a whole: its life, and its devices.

use std::ffi::{c_int, c_uint};
use std::process;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use cachette_hal::{AnyDevice, Backend, Ordinal, Sharing};
use cachette_hal_host::{HostBackend, HostConfig};

use crate::abi::abi;
use crate::ledger::Ledger;
use crate::settings::{Fabric, Settings};
use crate::status::{
    Answer, DEINITIALIZED, DEVICE_UNAVAILABLE, INVALID_DEVICE, INVALID_VALUE, NO_DEVICE, NOT_INITIALIZED, Status,
    refuse_if, told,
};

/// The driver, once it was started.
pub(crate) struct Driver {
    /// The process that started it. A forked child has no driver, and may have inherited locks that no thread holds.
    process: u32,
    pub(crate) units: Vec<Unit>,
    pub(crate) ledger: Ledger,
}

/// One device that is shown.
pub(crate) struct Unit {
    /// Position among the devices that are shown.
    pub(crate) index: usize,
    pub(crate) device: AnyDevice,
    /// How often the primary context is retained.
    pub(crate) retained: AtomicU32,
}

/// Started once, for good or with a status.
static DRIVER: OnceLock<Answer<Driver>> = OnceLock::new();
static SETTINGS: OnceLock<Settings> = OnceLock::new();
/// Whether the process is exiting.
static LEAVING: AtomicBool = AtomicBool::new(false);
static CALLS: AtomicU64 = AtomicU64::new(0);

unsafe extern "C" {
    fn atexit(function: extern "C" fn()) -> c_int;
}

pub(crate) fn settings() -> &'static Settings {
    SETTINGS.get_or_init(Settings::read)
}

pub(crate) fn driver() -> Answer<&'static Driver> {
    match DRIVER.get() {
        Some(Ok(driver)) => Ok(driver),
        Some(Err(status)) => Err(*status),
        None => Err(NOT_INITIALIZED),
    }
}

/// Rejects every call once the process is exiting or the devices have vanished.
pub(crate) fn check() -> Answer {
    // Relaxed: the handlers of the end run on the thread that set it.
    refuse_if(LEAVING.load(Ordering::Relaxed), DEINITIALIZED)?;
    let is_inherited = |driver: &Answer<Driver>| driver.as_ref().is_ok_and(|driver| driver.process != process::id());
    refuse_if(DRIVER.get().is_some_and(is_inherited), NOT_INITIALIZED)?;
    // Relaxed: a count, which orders nothing.
    let calls = CALLS.fetch_add(1, Ordering::Relaxed);
    match settings().lost_after {
        Some(last) if calls >= last => Err(DEVICE_UNAVAILABLE),
        _ => Ok(()),
    }
}

impl Driver {
    fn start() -> Answer<Self> {
        let settings = settings();
        refuse_if(settings.visible.is_empty(), NO_DEVICE)?;
        let mut config = HostConfig::default().devices(settings.devices).capacity(settings.capacity);
        if settings.fabric != Fabric::Open {
            config = config.without_sharing(Sharing::Fabric);
        }
        if let Some(file) = &settings.shared {
            config = config.shared(file);
        }
        if settings.integrated {
            config = config.integrated(Arc::default());
        }
        if settings.refuses_aliases {
            config = config.refusing_aliases(1);
        }
        let backend = HostBackend::new(config).map_err(|_| INVALID_VALUE)?;
        let open = |(index, device): (usize, &u32)| {
            Ok(Unit { index, device: backend.open(Ordinal(*device)).map_err(told)?, retained: AtomicU32::new(0) })
        };
        let units: Answer<Vec<_>> = settings.visible.iter().enumerate().map(open).collect();
        // SAFETY: the handler touches nothing but a flag.
        unsafe { atexit(leave) };
        Ok(Self { process: process::id(), units: units?, ledger: Ledger::default() })
    }

    pub(crate) fn unit(&self, position: c_int) -> Answer<&Unit> {
        let index = usize::try_from(position).map_err(|_| INVALID_DEVICE)?;
        self.units.get(index).ok_or(INVALID_DEVICE)
    }
}

extern "C" fn leave() {
    // Relaxed: see `check`.
    LEAVING.store(true, Ordering::Relaxed);
}

abi! {
    fn cuInit(flags: c_uint) {
        refuse_if(flags != 0, INVALID_VALUE)?;
        match DRIVER.get_or_init(Driver::start) {
            Ok(_) => Ok(()),
            Err(status) => Err::<(), Status>(*status),
        }
    }

    /// The version; no start is needed.
    fn cuDriverGetVersion(version: *mut c_int) => version {
        Ok(settings().version)
    }

    fn cuDeviceGetCount(count: *mut c_int) => count {
        let units = driver()?.units.len();
        let units = c_int::try_from(units).map_err(|_| INVALID_VALUE)?;
        Ok(units)
    }

    /// The number of the device at a position, which is the position.
    fn cuDeviceGet(device: *mut c_int, ordinal: c_int) => device {
        driver()?.unit(ordinal)?;
        Ok(ordinal)
    }
}
