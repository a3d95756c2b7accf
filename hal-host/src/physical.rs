//! Accounting of a device's physical memory.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::config::{ConfigError, HostConfig};
use crate::defect::Defect;
use crate::shared_memory::SharedMemory;

/// The physical memory of one device: its size, and the bytes in use.
///
/// `used <= capacity` always, unless a defect is planted.
#[derive(Debug)]
pub(crate) struct Physical {
    pub(crate) capacity: u64,
    used: AtomicU64,
    /// What other processes use too, if they share the device.
    shared: Option<SharedMemory>,
    /// Whether more than the capacity may be used; a defect.
    boundless: bool,
    /// Whether freed memory is lost; a defect.
    leaky: bool,
}

impl Physical {
    /// The memory of one device; with a shared file it fails if the file cannot be opened.
    pub(crate) fn new(config: &HostConfig, ordinal: u32) -> Result<Arc<Self>, ConfigError> {
        let open = |path: &PathBuf| SharedMemory::open(path, ordinal);
        let shared = config.shared.as_ref().map(open).transpose();
        Ok(Arc::new(Self {
            capacity: config.capacity,
            used: AtomicU64::new(0),
            shared: shared.map_err(|error| ConfigError::Shared(error.kind()))?,
            boundless: config.lies(Defect::CapacityNotEnforced),
            leaky: config.lies(Defect::CapacityNeverReturned),
        }))
    }

    /// A number that processes with the same shared memory have in common.
    pub(crate) fn identity(&self) -> Option<u64> {
        self.shared.as_ref()?.identity().ok()
    }

    /// Bytes in use by all processes that share the device.
    pub(crate) fn used_by_all(&self) -> u64 {
        self.shared.as_ref().map_or_else(|| self.used(), SharedMemory::used)
    }

    pub(crate) fn used(&self) -> u64 {
        // Relaxed: for display only; no decision depends on it.
        self.used.load(Ordering::Relaxed)
    }

    /// Uses `bytes`. Returns `None` if fewer are left.
    pub(crate) fn take(self: &Arc<Self>, bytes: u64) -> Option<Charge> {
        let grown = |used: u64| {
            let sum = used.checked_add(bytes)?;
            (self.boundless || sum <= self.capacity).then_some(sum)
        };
        // Relaxed: the count guards no other memory.
        let taken = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, grown);
        let mut charge = taken.ok().map(|_| Charge { physical: Arc::clone(self), bytes, is_shared: false })?;
        charge.is_shared = self.shared.as_ref().is_some_and(|shared| shared.take(bytes, self.capacity));
        (charge.is_shared || self.shared.is_none()).then_some(charge)
    }
}

/// Physical memory in use, freed when dropped.
#[derive(Debug)]
pub(crate) struct Charge {
    physical: Arc<Physical>,
    bytes: u64,
    /// Whether the shared memory counts the bytes, too.
    is_shared: bool,
}

impl Drop for Charge {
    fn drop(&mut self) {
        if !self.physical.leaky {
            // Relaxed: the count guards no other memory.
            self.physical.used.fetch_sub(self.bytes, Ordering::Relaxed);
            if let Some(shared) = self.physical.shared.as_ref().filter(|_| self.is_shared) {
                shared.free(self.bytes);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_taken_than_there_is_and_drops_give_back() {
        let physical = Physical::new(&HostConfig::default().capacity(100), 0).unwrap();
        let first = physical.take(60).unwrap();
        assert!(physical.take(41).is_none());
        let second = physical.take(40).unwrap();
        assert_eq!(physical.used(), 100);
        drop(first);
        assert_eq!(physical.used(), 40);
        drop(second);
        assert!(physical.take(u64::MAX).is_none());
        assert_eq!(physical.used(), 0);
    }
}
