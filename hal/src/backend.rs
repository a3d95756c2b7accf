//! A vendor's driver, loaded.

use std::fmt::Debug;

use crate::{AnyDevice, Ordinal, Result, Vendor, Version};

/// Facts about a loaded driver.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BackendInfo {
    /// The name by which users choose it: `host`, `cuda`, `hip`.
    pub name: &'static str,
    /// The vendor of its devices.
    pub vendor: Vendor,
    /// The driver's version.
    pub version: Version,
    /// The loaded library, or a text in its place.
    pub library: String,
    /// Whether the library emulates the vendor's. Its results say nothing about the vendor's.
    pub emulated: bool,
}

impl BackendInfo {
    /// Facts for the driver called `name`, loaded from `library`.
    #[must_use]
    pub const fn new(name: &'static str, vendor: Vendor, version: Version, library: String, emulated: bool) -> Self {
        Self { name, vendor, version, library, emulated }
    }
}

/// A vendor's driver, loaded.
///
/// Each backend has its constructor (a library to search, a configuration), which is not part of the trait. A backend
/// also has an inherent method that opens its device type, for static dispatch.
pub trait Backend: Debug + Send + Sync {
    /// The facts, without a driver call.
    fn info(&self) -> &BackendInfo;

    /// The number of visible devices.
    fn device_count(&self) -> Result<u32>;

    /// Opens one device; [`ErrorKind::NoSuchDevice`](crate::ErrorKind::NoSuchDevice) if there is none.
    ///
    /// Opening a device twice returns two objects for one device: memory, streams and events of one are valid with the
    /// other.
    fn open(&self, ordinal: Ordinal) -> Result<AnyDevice>;
}

// Dyn-compatibility is part of the contract.
const _: Option<&dyn Backend> = None;
