//! The shared state of all devices of a backend, and the state of each.

use std::collections::BTreeMap;
use std::result;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use cachette_hal::{Call, DeviceInfo, ErrorKind, Guarded, Ordinal, Result, Vendor};

use crate::backing::BackingMemory;
use crate::checks::{check, fail, write};
use crate::config::{ConfigError, HostConfig};
use crate::defect::Defect;
use crate::engine::Engine;
use crate::engine::pool::Pool;
use crate::fork::ForkGuard;
use crate::physical::Physical;
use crate::script::Script;
use crate::space::Space;

/// The first handle; smaller numbers are device indices.
pub(crate) const FIRST_HANDLE: usize = 0x1000;

/// The state of a backend. Worker threads keep it alive; only owners stop them.
///
/// Locks are taken in this order: the engine's, a unit's pool, the space.
#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) config: HostConfig,
    pub(crate) units: Vec<Unit>,
    pub(crate) space: RwLock<Space>,
    pub(crate) engine: Engine,
    forks: ForkGuard,
    /// The next handle in stepped mode, where two runs must return the same.
    next_handle: AtomicUsize,
}

#[derive(Debug)]
pub(crate) struct Unit {
    pub(crate) info: DeviceInfo,
    pub(crate) script: Script,
    pub(crate) physical: Arc<Physical>,
    pub(crate) backings: Guarded<BTreeMap<usize, Arc<BackingMemory>>>,
    pub(crate) pool: Guarded<Pool>,
    /// Set once work has made a forbidden access; never cleared.
    fault: AtomicBool,
    pub(crate) pending: AtomicU64,
    /// The number of captures that are neither ended nor broken.
    pub(crate) captures: AtomicUsize,
}

impl Machine {
    /// Creates the devices; the configuration has been checked.
    pub(crate) fn new(config: HostConfig) -> result::Result<Arc<Self>, ConfigError> {
        let units =
            (0..config.devices).map(|ordinal| Unit::new(&config, ordinal)).collect::<result::Result<Vec<_>, _>>()?;
        Ok(Arc::new(Self {
            space: RwLock::new(Space::new(units.len(), config.phantom)),
            engine: Engine::new(config.seed, units.len()),
            forks: ForkGuard::new(),
            next_handle: AtomicUsize::new(FIRST_HANDLE),
            config,
            units,
        }))
    }

    pub(crate) fn lies(&self, defect: Defect) -> bool {
        self.config.lies(defect)
    }

    /// The first step of every call: counts it, and fails if it must not continue.
    pub(crate) fn enter(&self, device: usize, call: Call) -> Result<()> {
        check(!self.is_child(), call, ErrorKind::DeviceLost)?;
        let unit = &self.units[device];
        if let Some(kind) = unit.script.count(call) {
            return fail(call, kind);
        }
        self.check_fault(device, call)?;
        self.check_captures(device, call)
    }

    /// Fails if the device has made a forbidden access.
    pub(crate) fn check_fault(&self, device: usize, call: Call) -> Result<()> {
        check(!self.units[device].is_faulty(), call, ErrorKind::Fault)
    }

    /// Whether this is a forked child, in which no worker thread runs and a lock may stay held forever.
    pub(crate) fn is_child(&self) -> bool {
        self.forks.is_child()
    }

    pub(crate) fn handle(&self) -> usize {
        static NEXT: AtomicUsize = AtomicUsize::new(FIRST_HANDLE);
        let next = if self.config.seed.is_some() { &self.next_handle } else { &NEXT };
        // Relaxed: only the numbers must differ.
        next.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn index(&self, ordinal: Ordinal) -> Option<usize> {
        let index = usize::try_from(ordinal.0).ok()?;
        (index < self.units.len()).then_some(index)
    }

    pub(crate) fn read_space(&self) -> RwLockReadGuard<'_, Space> {
        self.space.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn write_space(&self) -> RwLockWriteGuard<'_, Space> {
        write(&self.space)
    }
}

impl Unit {
    fn new(config: &HostConfig, ordinal: u32) -> result::Result<Self, ConfigError> {
        let mut info = DeviceInfo::new(
            Ordinal(ordinal),
            Vendor::Host,
            format!("Cachette host device {ordinal}"),
            config.capacity,
            config.alignment,
        );
        let physical = Physical::new(config, ordinal)?;
        info.integrated = config.host.is_some();
        // Devices that no other process shares have one identity in all processes: that of the kind.
        match physical.identity() {
            None => info.uuid[..12].copy_from_slice(b"cachettehost"),
            Some(identity) => {
                info.uuid[..4].copy_from_slice(b"host");
                info.uuid[4..12].copy_from_slice(&identity.to_be_bytes());
            }
        }
        info.uuid[12..].copy_from_slice(&ordinal.to_be_bytes());
        Ok(Self {
            info,
            script: Script::new(),
            physical,
            backings: Guarded::default(),
            pool: Guarded::default(),
            fault: AtomicBool::new(false),
            pending: AtomicU64::new(0),
            captures: AtomicUsize::new(0),
        })
    }

    pub(crate) fn is_faulty(&self) -> bool {
        // Acquire: pairs with the release in `raise_fault`.
        self.fault.load(Ordering::Acquire)
    }

    pub(crate) fn raise_fault(&self) {
        // Release: pairs with the acquire in `is_faulty`.
        self.fault.store(true, Ordering::Release);
    }
}
