//! Facts about a device.

use std::fmt;
use std::str::FromStr;

/// A driver's or runtime's version, as the vendor numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// Major number.
    pub major: u32,
    /// Minor number.
    pub minor: u32,
}

impl Version {
    /// Version `major.minor`.
    #[must_use]
    pub const fn new(major: u32, minor: u32) -> Self {
        Self { major, minor }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// Position of a device in the driver's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ordinal(pub u32);

impl fmt::Display for Ordinal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Ordinal {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self)
    }
}

/// The vendor of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Vendor {
    /// Host memory in place of a device.
    Host,
    /// NVIDIA, through CUDA.
    Nvidia,
    /// AMD, through HIP.
    Amd,
    /// Another vendor, whose backend is not part of this project.
    Other,
}

impl fmt::Display for Vendor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Host => "host",
            Self::Nvidia => "NVIDIA",
            Self::Amd => "AMD",
            Self::Other => "other",
        })
    }
}

/// Facts about a device that never change.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceInfo {
    /// Position in the driver's list.
    pub ordinal: Ordinal,
    /// Its vendor.
    pub vendor: Vendor,
    /// Marketing name.
    pub name: String,
    /// Stable identity across processes; all zero if the driver has none.
    pub uuid: [u8; 16],
    /// Bytes of device memory.
    pub total_memory: u64,
    /// Alignment of every address that [`Device::allocate`](crate::Device::allocate) returns; a power of two.
    pub base_alignment: u64,
    /// The instruction set, as the vendor names it (`sm_90`, `gfx942`).
    pub architecture: Option<String>,
    /// Whether the device shares its memory with the host.
    pub integrated: bool,
    /// The version of its driver; `None` if it has none.
    pub driver: Option<Version>,
}

impl DeviceInfo {
    /// Facts for a device called `name`; the other fields have defaults and can be set.
    #[must_use]
    pub const fn new(ordinal: Ordinal, vendor: Vendor, name: String, total_memory: u64, base_alignment: u64) -> Self {
        Self {
            ordinal,
            vendor,
            name,
            uuid: [0; 16],
            total_memory,
            base_alignment,
            architecture: None,
            integrated: false,
            driver: None,
        }
    }
}

/// Memory of the device at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryInfo {
    /// Bytes free, for all processes together.
    pub free: u64,
    /// Bytes in all.
    pub total: u64,
}
