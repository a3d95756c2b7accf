//! Accounting of a device's physical memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::config::HostConfig;
use crate::defect::Defect;

/// The physical memory of one device: its size, and the bytes in use.
///
/// `used <= capacity` always, unless a defect is planted.
#[derive(Debug)]
pub(crate) struct Physical {
    pub(crate) capacity: u64,
    used: AtomicU64,
    /// Whether more than the capacity may be used; a defect.
    boundless: bool,
    /// Whether freed memory is lost; a defect.
    leaky: bool,
}

impl Physical {
    pub(crate) fn new(config: &HostConfig) -> Arc<Self> {
        Arc::new(Self {
            capacity: config.capacity,
            used: AtomicU64::new(0),
            boundless: config.lies(Defect::CapacityNotEnforced),
            leaky: config.lies(Defect::CapacityNeverReturned),
        })
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
        taken.ok().map(|_| Charge { physical: Arc::clone(self), bytes })
    }
}

/// Physical memory in use, freed when dropped.
#[derive(Debug)]
pub(crate) struct Charge {
    physical: Arc<Physical>,
    bytes: u64,
}

impl Drop for Charge {
    fn drop(&mut self) {
        if !self.physical.leaky {
            // Relaxed: the count guards no other memory.
            self.physical.used.fetch_sub(self.bytes, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_taken_than_there_is_and_drops_give_back() {
        let physical = Physical::new(&HostConfig::default().capacity(100));
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
