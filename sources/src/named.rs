//! Libraries by name, as the bindings take them.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use cachette::source::{Source, SourceError};
use cachette_hal::{Ordinal, Vendor};

use crate::{Nccl, Nvshmem, Rocshmem};

/// A library that has a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NamedSource {
    /// NCCL, on NVIDIA devices.
    Nccl,
    /// NVSHMEM, on the NVIDIA device that it was initialised for.
    Nvshmem,
    /// RCCL, on AMD devices.
    Rccl,
    /// rocSHMEM, on the AMD device that it was initialised for.
    Rocshmem,
}

impl NamedSource {
    const ALL: [Self; 4] = [Self::Nccl, Self::Nvshmem, Self::Rccl, Self::Rocshmem];

    /// The name that [`FromStr`] reads.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nccl => "nccl",
            Self::Nvshmem => "nvshmem",
            Self::Rccl => "rccl",
            Self::Rocshmem => "rocshmem",
        }
    }

    /// The vendor whose devices the library serves.
    #[must_use]
    pub const fn vendor(self) -> Vendor {
        match self {
            Self::Nccl | Self::Nvshmem => Vendor::Nvidia,
            Self::Rccl | Self::Rocshmem => Vendor::Amd,
        }
    }

    /// Opens the library as a source of memory on `device`, a device of its vendor.
    ///
    /// # Safety
    ///
    /// 1. NVSHMEM and rocSHMEM are initialised for the device, and stay so while the source is used.
    pub unsafe fn open(self, device: Ordinal) -> Result<Arc<dyn Source>, SourceError> {
        Ok(match self {
            Self::Nccl | Self::Rccl => Arc::new(Nccl::load(self.vendor())?),
            // SAFETY: 1. is the caller's promise.
            Self::Nvshmem => Arc::new(unsafe { Nvshmem::adopt(device) }?),
            // SAFETY: 1. is the caller's promise.
            Self::Rocshmem => Arc::new(unsafe { Rocshmem::adopt(device) }?),
        })
    }
}

impl fmt::Display for NamedSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for NamedSource {
    type Err = UnknownSource;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let named = Self::ALL.into_iter().find(|source| source.name() == name);
        named.ok_or_else(|| UnknownSource { name: name.to_owned() })
    }
}

/// A name that no source has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no source named '{name}'; choose nccl, nvshmem, rccl or rocshmem")]
pub struct UnknownSource {
    /// The name that was given.
    pub name: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for name in ["nccl", "nvshmem", "rccl", "rocshmem"] {
            let source: NamedSource = name.parse().unwrap();
            assert_eq!(source.to_string(), name);
        }
        let error = "mpi".parse::<NamedSource>().unwrap_err().to_string();
        assert!(error.contains("'mpi'; choose nccl"), "{error}");
    }
}
