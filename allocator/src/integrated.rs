//! Machines with one memory: a device that shares it with the host leaves the host enough.
//!
//! The driver of such a device counts memory as free that the programs of the host need next, and takes it until the
//! machine stands still. So the allocator takes at most what the host has available less `host_reserve`, also if the
//! driver has more. A request beyond it goes through the retry chain and fails like one beyond the device's memory. When
//! other programs take the reserve, idle memory goes back to the device before the host runs short.
//!
//! An eviction that keeps contents moves them within the same memory. So only pools that can reload theirs are evicted.
//!
//! A device with memory of its own has no budget, and nothing of the host is read.

#![forbid(unsafe_code)]

use cachette_hal::{self as hal, Device};

use crate::device_state::DeviceState;
use crate::out_of_memory::HostFigures;

/// The part of the memory that the host keeps if the configuration does not say.
const KEPT_BY_HOST: u64 = 20;

impl<D: Device> DeviceState<D> {
    /// What the host has available and keeps; `None` if the device has memory of its own.
    pub(crate) fn host_figures(&self) -> Option<HostFigures> {
        let available = self.device.host_available()?;
        let reserve = self.settings.config().host_reserve();
        let reserve = reserve.unwrap_or_else(|| self.device.info().total_memory / KEPT_BY_HOST);
        Some(HostFigures { available, reserve })
    }

    /// The bytes that may still be taken from the host; `u64::MAX` if the device has memory of its own.
    pub(crate) fn host_budget(&self) -> u64 {
        self.host_figures().map_or(u64::MAX, |host| host.available.saturating_sub(host.reserve))
    }

    /// The free memory of the device that requests may take.
    pub(crate) fn free_memory(&self) -> hal::Result<u64> {
        Ok(self.device.memory_info()?.free.min(self.host_budget()))
    }
}
