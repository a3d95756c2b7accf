//! Facts about a device, read when it is opened.

use std::ffi::{CStr, c_char};

use cachette_hal::{DeviceInfo, Ordinal, Result, Vendor};

use crate::context::Context;
use crate::device::current_memory;
use crate::types::DeviceProp;

/// The alignment of every allocation; real addresses are multiples of a page.
const BASE_ALIGNMENT: u64 = 512;

/// The facts of the device that is current.
pub(crate) fn facts(context: &Context, ordinal: Ordinal) -> Result<DeviceInfo> {
    let mut found = DeviceProp::zeroed();
    // SAFETY: the driver writes one structure of this size.
    let status = unsafe { (context.core().hipGetDevicePropertiesR0600)(&raw mut found, context.device) };
    context.check("hipGetDevicePropertiesR0600", status)?;
    let total = current_memory(context)?.total;
    let mut info = DeviceInfo::new(ordinal, Vendor::Amd, text(&found.name), total, BASE_ALIGNMENT);
    info.driver = Some(context.driver.info.version);
    info.uuid = found.uuid;
    info.integrated = found.integrated != 0;
    info.architecture = family(&text(&found.gcn_arch_name));
    Ok(info)
}

/// An architecture without its features: `gfx942` for `gfx942:sramecc+:xnack-`.
fn family(architecture: &str) -> Option<String> {
    let name = architecture.split(':').next();
    name.filter(|name| !name.is_empty()).map(str::to_owned)
}

/// A text that ends at its zero byte, or at its end.
fn text(characters: &[c_char]) -> String {
    let bytes: Vec<u8> = characters.iter().map(|c| c.to_ne_bytes()[0]).chain([0]).collect();
    CStr::from_bytes_until_nul(&bytes).unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_are_cut_off_the_architecture() {
        assert_eq!(family("gfx942:sramecc+:xnack-").as_deref(), Some("gfx942"));
        assert_eq!(family("gfx1100").as_deref(), Some("gfx1100"));
        assert_eq!(family(""), None);
    }

    #[test]
    fn a_text_without_an_end_ends_with_its_array() {
        assert_eq!(text(&[0x41, 0x42, 0, 0x43]), "AB");
        assert_eq!(text(&[0x41, 0x42]), "AB");
        assert_eq!(text(&[]), "");
    }
}
