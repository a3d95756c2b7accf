//! The configuration of a host device.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use cachette_hal::{Feature, Granularity, Sharing};

use crate::defect::Defect;
use crate::mapping::page_bytes;

/// The maximum number of devices: the rights to a mapping are stored as one bit for each device.
const MOST_DEVICES: u32 = 64;

const DEFAULT_CAPACITY: u64 = 1 << 30;
const DEFAULT_GRANULARITY: u64 = 2 << 20;
const DEFAULT_ALIGNMENT: u64 = 512;

/// Settings of a [`HostBackend`](crate::HostBackend); the crate's documentation lists them.
#[derive(Clone, Debug)]
pub struct HostConfig {
    pub(crate) devices: u32,
    pub(crate) capacity: u64,
    pub(crate) granularity: Granularity,
    pub(crate) alignment: u64,
    pub(crate) seed: Option<u64>,
    pub(crate) phantom: bool,
    pub(crate) without: Vec<Feature>,
    pub(crate) without_sharing: Vec<Sharing>,
    pub(crate) habits: Habits,
    pub(crate) peers: bool,
    /// The file by which processes share the devices.
    pub(crate) shared: Option<PathBuf>,
    /// Bytes that programs of the host use, if the devices share their memory with it.
    pub(crate) host: Option<Arc<AtomicU64>>,
    /// Whether `free` returns while work runs.
    pub(crate) frees_at_once: bool,
    #[cfg(feature = "defects")]
    defects: Vec<Defect>,
}

/// Restrictions of mapped memory that some drivers have.
#[derive(Clone, Copy, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a restriction that a driver has or lacks")]
pub(crate) struct Habits {
    /// Aliases are reported as incoherent.
    pub(crate) no_aliases: bool,
    /// Every so many backings, one cannot be mapped a second time; zero for none.
    pub(crate) refuses_aliases: usize,
    /// Unmapped memory becomes free only when its addresses are released.
    pub(crate) withholds: bool,
    /// Rights are refused in a reservation with mappings of several sizes.
    pub(crate) one_size: bool,
    /// Mapping and unmapping wait for the default stream.
    pub(crate) mapping_waits: bool,
}

impl Default for HostConfig {
    fn default() -> Self {
        Self {
            devices: 1,
            capacity: DEFAULT_CAPACITY,
            granularity: Granularity { minimum: DEFAULT_GRANULARITY, recommended: DEFAULT_GRANULARITY },
            alignment: DEFAULT_ALIGNMENT,
            seed: None,
            phantom: false,
            without: Vec::new(),
            without_sharing: Vec::new(),
            habits: Habits::default(),
            peers: true,
            shared: None,
            host: None,
            frees_at_once: false,
            #[cfg(feature = "defects")]
            defects: Vec::new(),
        }
    }
}

/// Declares methods of [`HostConfig`] that set one field each.
macro_rules! setters {
    ($($(#[$doc:meta])* $name:ident($($argument:ident: $type:ty),*) => $($field:ident).+ = $value:expr;)*) => {
        impl HostConfig {
            $(
                $(#[$doc])*
                #[must_use]
                pub const fn $name(mut self $(, $argument: $type)*) -> Self {
                    self.$($field).+ = $value;
                    self
                }
            )*
        }
    };
}

setters! {
    /// Reports aliases as incoherent, as some devices do; they stay coherent here.
    without_aliases() => habits.no_aliases = true;
    /// Rejects a second mapping of one in `every` backings without announcing it, as some drivers sometimes do.
    refusing_aliases(every: usize) => habits.refuses_aliases = every;
    /// Frees unmapped memory only when its addresses are released, as some drivers do.
    withholding() => habits.withholds = true;
    /// Refuses rights in a reservation whose mappings have several sizes, as some drivers do.
    mapping_one_size() => habits.one_size = true;
    /// Makes mapping and unmapping wait for the default stream, as some drivers do.
    mapping_with_wait() => habits.mapping_waits = true;
    /// Lets `free` return while work runs, as in some drivers.
    ///
    /// Queued work that has not finished and uses the freed memory then makes its device fault.
    free_without_waiting() => frees_at_once = true;
    /// Sets the number of devices.
    devices(devices: u32) => devices = devices;
    /// Sets the memory of each device, in bytes.
    capacity(bytes: u64) => capacity = bytes;
    /// Sets the smallest and the recommended granularity of virtual memory, in bytes.
    granularity(minimum: u64, recommended: u64) => granularity = Granularity { minimum, recommended };
    /// Sets the alignment of every allocation, in bytes.
    base_alignment(bytes: u64) => alignment = bytes;
    /// Runs queued work only on request, in an order drawn from `seed`.
    stepped(seed: u64) => seed = Some(seed);
    /// Makes memory phantom: only addresses and accounting, never read or written.
    phantom(phantom: bool) => phantom = phantom;
    /// Sets whether the devices can access each other's memory.
    peers(peers: bool) => peers = peers;
}

impl HostConfig {
    /// The default with as much memory as the machine has.
    #[must_use]
    pub fn of_machine() -> Self {
        let machine = rustix::system::sysinfo();
        Self::default().capacity(machine.totalram * u64::from(machine.mem_unit))
    }

    /// Shares the devices with all processes that have the same file: together they use at most the capacity.
    ///
    /// Each process has memory that the others cannot read. Its bytes are free again when the process ends.
    #[must_use]
    pub fn shared(mut self, file: impl Into<PathBuf>) -> Self {
        self.shared = Some(file.into());
        self
    }

    /// Makes the devices integrated: they share their memory with a host whose programs use `used` bytes of it.
    ///
    /// The driver does not know of these bytes: they are free in [`memory_info`](cachette_hal::Device::memory_info), and
    /// [`host_available`](cachette_hal::Device::host_available) does not count them.
    #[must_use]
    pub fn integrated(mut self, used: Arc<AtomicU64>) -> Self {
        self.host = Some(used);
        self
    }

    /// Removes a feature from the devices.
    #[must_use]
    pub fn without(mut self, feature: Feature) -> Self {
        self.without.push(feature);
        self
    }

    /// Removes a kind of sharing from the devices; private backings are always available.
    #[must_use]
    pub fn without_sharing(mut self, sharing: Sharing) -> Self {
        self.without_sharing.push(sharing);
        self
    }

    /// Plants one defect in the devices.
    #[cfg(feature = "defects")]
    #[must_use]
    pub fn defect(mut self, defect: Defect) -> Self {
        self.defects.push(defect);
        self
    }

    #[cfg(feature = "defects")]
    pub(crate) fn lies(&self, defect: Defect) -> bool {
        self.defects.contains(&defect)
    }

    /// Returns whether the devices have this defect: never, without the feature that plants them.
    #[cfg(not(feature = "defects"))]
    #[expect(clippy::unused_self, reason = "the same signature with and without defects")]
    pub(crate) const fn lies(&self, _: Defect) -> bool {
        false
    }

    /// Fails if no device can have this configuration.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        if !(1..=MOST_DEVICES).contains(&self.devices) {
            return Err(ConfigError::Devices(self.devices));
        }
        if self.capacity == 0 {
            return Err(ConfigError::Capacity);
        }
        if !self.alignment.is_power_of_two() {
            return Err(ConfigError::Alignment(self.alignment));
        }
        let Granularity { minimum, recommended } = self.granularity;
        let smallest = if self.phantom { 1 } else { page_bytes() };
        if !minimum.is_power_of_two() || !recommended.is_power_of_two() || recommended < minimum {
            return Err(ConfigError::Granularity { minimum, recommended });
        }
        if minimum < smallest {
            return Err(ConfigError::GranularityBelowPage { minimum, smallest });
        }
        Ok(())
    }
}

/// Why no device can have a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// Too few or too many devices.
    #[error("{0} devices were asked for; 1 to {MOST_DEVICES} are allowed")]
    Devices(u32),
    /// Devices without memory.
    #[error("a capacity of 0 bytes was asked for; at least 1 is needed")]
    Capacity,
    /// An alignment that is not a power of two.
    #[error("a base alignment of {0} bytes was asked for; it must be a power of two")]
    Alignment(u64),
    /// Granularities that do not match each other.
    #[error(
        "granularities of {minimum} and {recommended} bytes were asked for; both must be powers of two, \
         and the recommended one a multiple of the minimum"
    )]
    Granularity {
        /// The smallest granularity.
        minimum: u64,
        /// The recommended granularity.
        recommended: u64,
    },
    /// The file by which processes share the devices cannot be opened.
    #[error("the file of the shared memory cannot be opened: {0}; choose one that can be created and written")]
    Shared(io::ErrorKind),
    /// A granularity finer than the host can map.
    #[error(
        "a minimum granularity of {minimum} bytes was asked for; real memory is mapped in pages of \
         {smallest} bytes"
    )]
    GranularityBelowPage {
        /// The requested granularity.
        minimum: u64,
        /// The host's page size.
        smallest: u64,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_a_possible_device() {
        assert_eq!(HostConfig::default().check(), Ok(()));
    }

    #[test]
    fn impossible_devices_are_refused_with_what_is_allowed() {
        let bad = [
            HostConfig::default().devices(0),
            HostConfig::default().devices(65),
            HostConfig::default().capacity(0),
            HostConfig::default().base_alignment(0),
            HostConfig::default().base_alignment(96),
            HostConfig::default().granularity(3 << 20, 3 << 20),
            HostConfig::default().granularity(2 << 20, 1 << 20),
            HostConfig::default().granularity(2 << 20, 3 << 20),
            HostConfig::default().granularity(512, 512),
        ];
        for config in bad {
            let error = config.check().unwrap_err().to_string();
            assert!(error.contains("asked for"), "{error}");
        }
        assert_eq!(
            HostConfig::default().devices(0).check().unwrap_err().to_string(),
            "0 devices were asked for; 1 to 64 are allowed"
        );
    }

    #[test]
    fn phantom_memory_may_be_finer_than_a_page() {
        assert_eq!(HostConfig::default().phantom(true).granularity(512, 1024).check(), Ok(()));
    }
}
