//! How a handle names a device.

#![forbid(unsafe_code)]

use cachette_hal::{DeviceInfo, Vendor};
use cachette_ipc::DeviceTag;

use super::error::IpcError;

/// The device as a handle names it.
pub(super) const fn tag(device: &DeviceInfo) -> DeviceTag {
    let vendor = match device.vendor {
        Vendor::Host => b'h',
        Vendor::Nvidia => b'n',
        Vendor::Amd => b'a',
        _ => b'?',
    };
    DeviceTag { vendor, uuid: device.uuid }
}

/// Whether memory of the device `exporter` can be opened on `device`.
pub(super) fn check(exporter: DeviceTag, device: &DeviceInfo) -> Result<(), IpcError> {
    let own = tag(device);
    if exporter.vendor != own.vendor {
        return Err(IpcError::OtherVendor { here: device.vendor });
    }
    // A driver that knows no UUID reports zero.
    let unknown = [0; 16];
    if exporter.uuid != own.uuid && exporter.uuid != unknown && own.uuid != unknown {
        return Err(IpcError::OtherDevice);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use cachette_hal::Ordinal;

    use super::*;

    fn device(vendor: Vendor, uuid: u8) -> DeviceInfo {
        let mut info = DeviceInfo::new(Ordinal(0), vendor, "one".to_owned(), 1 << 30, 512);
        info.uuid = [uuid; 16];
        info
    }

    #[test]
    fn another_device_is_rejected_if_both_have_a_uuid() {
        let check = |vendor, uuid| check(tag(&device(Vendor::Host, 7)), &device(vendor, uuid));
        assert_eq!(check(Vendor::Host, 7), Ok(()));
        assert_eq!(check(Vendor::Host, 0), Ok(()));
        assert_eq!(check(Vendor::Host, 8), Err(IpcError::OtherDevice));
        let here = Vendor::Amd;
        assert_eq!(check(here, 7), Err(IpcError::OtherVendor { here }));
    }
}
