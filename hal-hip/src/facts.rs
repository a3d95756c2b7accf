//! Facts about AMD devices that the contract has no field for.

use std::ffi::{CStr, c_char, c_int};

use cachette_hal::{DeviceInfo, Ordinal, Result, Vendor};

use crate::library::Driver;
use crate::types::{ATTRIBUTE_FINE_GRAIN, ATTRIBUTE_LARGE_BAR, ATTRIBUTE_UNIFIED_ADDRESSING, DeviceProp};

/// What every address of `hipMalloc` is a multiple of; real ones are multiples of a page.
const BASE_ALIGNMENT: u64 = 512;

/// Facts about an AMD device that never change.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[expect(clippy::struct_excessive_bools, reason = "each is a question that the driver answers with yes or no")]
pub struct HipFacts {
    /// The architecture with its features, such as `gfx942:sramecc+:xnack-`.
    pub architecture: String,
    /// Whether page faults of the device are served; `None` where the architecture has no such mode.
    pub xnack: Option<bool>,
    /// Whether the host reaches all device memory.
    pub large_bar: bool,
    /// Whether there is fine-grained device memory.
    pub fine_grained: bool,
    /// Whether host and device share one address space.
    pub unified_addressing: bool,
    /// Whether there is managed memory.
    pub managed_memory: bool,
    /// Whether host and device may use managed memory at once.
    pub concurrent_managed_access: bool,
    /// Whether the device reaches all host memory.
    pub pageable_memory_access: bool,
    /// Compute units.
    pub compute_units: u32,
    /// Threads of a wavefront.
    pub wavefront: u32,
    /// Number of the PCI bus, by which the parts of one board are found.
    pub pci_bus: u32,
}

/// Asks the driver for all facts about a device, which is the current one.
pub(crate) fn ask(driver: &Driver, device: c_int) -> Result<(DeviceInfo, HipFacts)> {
    let core = &driver.symbols.core;
    let mut found = DeviceProp::zeroed();
    // SAFETY: the out-parameter is as large as the driver's own structure, and outlives the call.
    let status = unsafe { (core.hipGetDevicePropertiesR0600)(&raw mut found, device) };
    driver.check("hipGetDevicePropertiesR0600", status)?;
    let (mut free, mut total) = (0, 0);
    // SAFETY: the out-parameters outlive the call.
    let status = unsafe { (core.hipMemGetInfo)(&raw mut free, &raw mut total) };
    driver.check("hipMemGetInfo", status)?;
    let architecture = text(&found.gcn_arch_name);
    let facts = HipFacts {
        xnack: xnack(&architecture),
        large_bar: found.is_large_bar != 0 || has(driver, device, ATTRIBUTE_LARGE_BAR),
        fine_grained: has(driver, device, ATTRIBUTE_FINE_GRAIN),
        unified_addressing: has(driver, device, ATTRIBUTE_UNIFIED_ADDRESSING),
        managed_memory: found.managed_memory != 0,
        concurrent_managed_access: found.concurrent_managed_access != 0,
        pageable_memory_access: found.pageable_memory_access != 0,
        compute_units: count(found.multi_processor_count),
        wavefront: count(found.warp_size),
        pci_bus: count(found.pci_bus_id),
        architecture,
    };
    let (ordinal, name) = (Ordinal(count(device)), text(&found.name));
    let mut info = DeviceInfo::new(ordinal, Vendor::Amd, name, total, BASE_ALIGNMENT);
    info.uuid = found.uuid;
    info.integrated = found.integrated != 0;
    info.architecture = facts.family().map(str::to_owned);
    Ok((info, facts))
}

impl HipFacts {
    /// The architecture without its features, such as `gfx942`.
    pub(crate) fn family(&self) -> Option<&str> {
        let name = self.architecture.split(':').next();
        name.filter(|name| !name.is_empty())
    }
}

/// Whether a device says yes to an attribute; one that the driver does not know is a no.
pub(crate) fn has(driver: &Driver, device: c_int, attribute: c_int) -> bool {
    let mut value = 0;
    // SAFETY: the out-parameter outlives the call.
    let status = unsafe { (driver.symbols.core.hipDeviceGetAttribute)(&raw mut value, attribute, device) };
    driver.check("hipDeviceGetAttribute", status).is_ok() && value != 0
}

/// The mode that the features of an architecture name.
fn xnack(architecture: &str) -> Option<bool> {
    architecture.split(':').find_map(|feature| match feature {
        "xnack+" => Some(true),
        "xnack-" => Some(false),
        _ => None,
    })
}

/// A text that ends at its zero byte, or at its end.
fn text(characters: &[c_char]) -> String {
    let bytes: Vec<u8> = characters.iter().map(|c| c.to_ne_bytes()[0]).chain([0]).collect();
    let text = CStr::from_bytes_until_nul(&bytes).unwrap_or_default();
    text.to_string_lossy().into_owned()
}

/// A count, which drivers give as a signed number.
fn count(number: c_int) -> u32 {
    u32::try_from(number).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_of_an_architecture_are_read() {
        assert_eq!(xnack("gfx942:sramecc+:xnack-"), Some(false));
        assert_eq!(xnack("gfx90a:sramecc+:xnack+"), Some(true));
        assert_eq!(xnack("gfx1100"), None);
    }

    #[test]
    fn a_text_without_an_end_ends_with_its_array() {
        assert_eq!(text(&[0x41, 0x42, 0, 0x43]), "AB");
        assert_eq!(text(&[0x41, 0x42]), "AB");
        assert_eq!(text(&[]), "");
    }
}
