//! Properties that a device has or lacks, and guards against known defects.

use std::env;
use std::ffi::c_int;
use std::fs::{self, File};
use std::ops::Range;
use std::path::Path;

use cachette_hal::{BackendInfo, Reason, Result, Version};
use rustix::ioctl::{Opcode, Updater, ioctl, opcode};

use crate::context::Context;
use crate::types::{ATTRIBUTE_MEMORY_POOLS, ATTRIBUTE_VIRTUAL_MEMORY};

/// Set to 1, it overrides the guards of virtual memory.
pub const FORCE_VIRTUAL_MEMORY: &str = "CACHETTE_HIP_FORCE_VIRTUAL_MEMORY";
/// Set to 1, it overrides the guard and the test of the stream-ordered pool.
pub const FORCE_STREAM_ORDERED: &str = "CACHETTE_HIP_FORCE_STREAM_ORDERED";
/// Set to 1, it overrides the guard of memory that is mapped at two addresses.
pub const FORCE_ALIASES: &str = "CACHETTE_HIP_FORCE_ALIASES";

/// The first version of the amdgpu kernel module in which `hipMemSetAccess` does not hang.
const OLDEST_DRM: Version = Version::new(3, 64);
const OLD_DRM: Reason = Reason::Guarded(
    "hipMemSetAccess hangs forever on amdgpu kernel modules before DRM 3.64; update the kernel, or set \
     CACHETTE_HIP_FORCE_VIRTUAL_MEMORY=1",
);
/// The oldest runtime whose virtual memory was run.
const OLDEST_RUNTIME: Version = Version::new(6, 4);
const OLD_RUNTIME: Reason = Reason::Guarded(
    "virtual memory was never run on HIP before 6.4; update ROCm, or set CACHETTE_HIP_FORCE_VIRTUAL_MEMORY=1",
);
/// The newest runtime whose answers are known; ROCm 10.0 has it.
const NEWEST_RUNTIME: Version = Version::new(7, 15);
const NEW_RUNTIME: Reason = Reason::Guarded(
    "virtual memory was never run on HIP after 7.15; update Cachette, or set CACHETTE_HIP_FORCE_VIRTUAL_MEMORY=1",
);
/// The runtimes in which the sizes of all mappings of a reservation must be equal.
const SUMS: Range<Version> = Version::new(7, 0)..Version::new(7, 14);
const SUM: Reason = Reason::Guarded(
    "hipMemSetAccess of HIP 7.0 to 7.13 refuses mappings of several sizes in one reservation; update ROCm to 7.14",
);
/// The first runtime in which unmapped memory becomes free while its addresses stay reserved. The first release with this
/// behaviour is unknown; an unnecessary new reservation does no harm.
pub(crate) const FREES_UNDER_RESERVATION: Version = Version::new(7, 14);
/// The runtimes that never close the descriptor of an exportable backing.
const LEAKS: Range<Version> = Version::new(7, 14)..Version::new(7, 15);
/// The runtimes in which a failed map keeps its reference to the backing.
const KEEPS_REFERENCES: Range<Version> = Version::new(6, 1)..Version::new(7, 14);
const LOST_STORES: Reason = Reason::Guarded(
    "stores to freshly mapped memory are lost on gfx1201; set CACHETTE_HIP_FORCE_VIRTUAL_MEMORY=1 to use \
     it all the same",
);
const INCOHERENT: Reason = Reason::Guarded(
    "caches of RDNA devices (gfx10, gfx11, gfx12) do not agree on memory mapped at two addresses; set \
     CACHETTE_HIP_FORCE_ALIASES=1 to rely on it all the same",
);
const BAD_POOL: Reason = Reason::Guarded(
    "hipMallocAsync hangs, crashes or corrupts memory on gfx90c, gfx1100, gfx1101 and gfx1201; set \
     CACHETTE_HIP_FORCE_STREAM_ORDERED=1 to use it all the same",
);

fn is_forced(variable: &str) -> bool {
    env::var_os(variable).is_some_and(|value| value == "1")
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Property {
    attribute: c_int,
    name: &'static str,
}

impl Property {
    /// Addresses and physical memory are separate.
    pub(crate) const VIRTUAL_MEMORY: Self =
        Self { attribute: ATTRIBUTE_VIRTUAL_MEMORY, name: "hipDeviceAttributeVirtualMemoryManagementSupported" };
    /// The device has stream-ordered pools.
    pub(crate) const POOLS: Self =
        Self { attribute: ATTRIBUTE_MEMORY_POOLS, name: "hipDeviceAttributeMemoryPoolsSupported" };

    /// Fails with the reason why a feature is absent, unless the device has the property.
    pub(crate) fn need(self, context: &Context) -> Result<(), Reason> {
        let mut value = 0;
        // SAFETY: the driver writes one number.
        let status = unsafe { (context.core().hipDeviceGetAttribute)(&raw mut value, self.attribute, context.device) };
        match context.check("hipDeviceGetAttribute", status) {
            Ok(()) if value != 0 => Ok(()),
            _ => Err(Reason::DeviceLacks(self.name)),
        }
    }
}

/// Fails with the reason why virtual memory is not offered, unless the user forces it.
pub(crate) fn check_virtual_memory(driver: &BackendInfo, architecture: Option<&str>) -> Result<(), Reason> {
    // An emulated device has no kernel module.
    let drm = if driver.emulated { None } else { drm_version(Path::new("/dev/dri")) };
    match virtual_memory_guard(architecture, drm, driver.version) {
        Some(reason) if !is_forced(FORCE_VIRTUAL_MEMORY) => Err(reason),
        _ => Ok(()),
    }
}

/// Why virtual memory is not offered; an unknown architecture or kernel module is accepted.
fn virtual_memory_guard(architecture: Option<&str>, drm: Option<Version>, runtime: Version) -> Option<Reason> {
    if runtime < OLDEST_RUNTIME {
        return Some(OLD_RUNTIME);
    }
    if runtime > NEWEST_RUNTIME {
        return Some(NEW_RUNTIME);
    }
    if drm.is_some_and(|version| version < OLDEST_DRM) {
        return Some(OLD_DRM);
    }
    (architecture == Some("gfx1201")).then_some(LOST_STORES)
}

/// Fails with the reason why memory that is mapped at two addresses is not coherent, unless the user forces it.
pub(crate) fn check_aliases(architecture: Option<&str>) -> Result<(), Reason> {
    let incoherent = ["gfx10", "gfx11", "gfx12"];
    let is_rdna = architecture.is_some_and(|name| incoherent.iter().any(|family| name.starts_with(family)));
    if is_rdna && !is_forced(FORCE_ALIASES) {
        return Err(INCOHERENT);
    }
    Ok(())
}

/// Returns whether mappings of several sizes can share a reservation.
pub(crate) fn mixes_sizes(found: Version) -> Result<(), Reason> {
    if SUMS.contains(&found) { Err(SUM) } else { Ok(()) }
}

/// Returns whether the runtime never closes the descriptor of an exportable backing.
pub(crate) fn leaks_descriptors(found: Version) -> bool {
    LEAKS.contains(&found)
}

/// Returns whether a map that fails keeps the reference to its backing that a mapping would have.
pub(crate) fn keeps_references(found: Version) -> bool {
    KEEPS_REFERENCES.contains(&found)
}

/// Fails if the runtime is older than `needs`.
pub(crate) fn needs(needs: Version, found: Version) -> Result<(), Reason> {
    if found < needs {
        return Err(Reason::DriverTooOld { needs, found });
    }
    Ok(())
}

/// Fails with the reason why the pool is not even tested, unless the user forces it.
pub(crate) fn check_pool(architecture: Option<&str>) -> Result<(), Reason> {
    match stream_ordered_guard(architecture) {
        Some(reason) if !is_pool_forced() => Err(reason),
        _ => Ok(()),
    }
}

/// Whether the pool is offered without a test.
pub(crate) fn is_pool_forced() -> bool {
    is_forced(FORCE_STREAM_ORDERED)
}

fn stream_ordered_guard(architecture: Option<&str>) -> Option<Reason> {
    let bad = ["gfx90c", "gfx1100", "gfx1101", "gfx1201"];
    architecture.is_some_and(|name| bad.contains(&name)).then_some(BAD_POOL)
}

/// `struct drm_version` of Linux.
#[repr(C)]
struct DrmVersion {
    major: c_int,
    minor: c_int,
    patch: c_int,
    name_bytes: usize,
    name: *mut u8,
    date_bytes: usize,
    date: *mut u8,
    description_bytes: usize,
    description: *mut u8,
}

/// `DRM_IOCTL_VERSION`.
const DRM_IOCTL_VERSION: Opcode = opcode::read_write::<DrmVersion>(b'd', 0);

/// The oldest version of the amdgpu nodes in a folder; `None` if there are none.
fn drm_version(folder: &Path) -> Option<Version> {
    let entries = fs::read_dir(folder).ok()?;
    let nodes = entries.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with("renderD"));
    nodes.filter_map(|node| amdgpu_version(&node.path())).min()
}

/// The version of a node's kernel module; `None` if it is not amdgpu.
fn amdgpu_version(node: &Path) -> Option<Version> {
    let file = File::open(node).ok()?;
    let mut name = [0_u8; 16];
    let mut answer = DrmVersion {
        major: 0,
        minor: 0,
        patch: 0,
        name_bytes: name.len(),
        name: name.as_mut_ptr(),
        date_bytes: 0,
        date: std::ptr::null_mut(),
        description_bytes: 0,
        description: std::ptr::null_mut(),
    };
    // SAFETY: the structure is the one of this request.
    let request = unsafe { Updater::<DRM_IOCTL_VERSION, DrmVersion>::new(&mut answer) };
    // SAFETY: the structure and the name outlive the call, and the other texts have a length of zero.
    unsafe { ioctl(&file, request) }.ok()?;
    let (major, minor) = (u32::try_from(answer.major).ok()?, u32::try_from(answer.minor).ok()?);
    name.starts_with(b"amdgpu").then_some(Version::new(major, minor))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_kernel_modules_hold_virtual_memory_back() {
        let at = |minor| virtual_memory_guard(Some("gfx942"), Some(Version::new(3, minor)), NEWEST_RUNTIME);
        assert_eq!(at(59), Some(OLD_DRM));
        assert_eq!(at(63), Some(OLD_DRM));
        assert_eq!(at(64), None);
        assert_eq!(virtual_memory_guard(Some("gfx942"), None, NEWEST_RUNTIME), None);
    }

    #[test]
    fn runtimes_that_were_never_run_hold_virtual_memory_back() {
        let at = |major, minor| virtual_memory_guard(Some("gfx942"), None, Version::new(major, minor));
        assert_eq!(at(6, 3), Some(OLD_RUNTIME));
        assert_eq!(at(6, 4), None);
        assert_eq!(at(7, 15), None);
        assert_eq!(at(7, 16), Some(NEW_RUNTIME));
        assert_eq!(at(8, 0), Some(NEW_RUNTIME));
    }

    #[test]
    fn defects_are_those_of_their_versions() {
        let mixes = |minor| mixes_sizes(Version::new(7, minor));
        assert_eq!(
            [mixes_sizes(Version::new(6, 4)), mixes(0), mixes(13), mixes(14)],
            [Ok(()), Err(SUM), Err(SUM), Ok(())]
        );
        let leaks = |minor| leaks_descriptors(Version::new(7, minor));
        assert_eq!([leaks(13), leaks(14), leaks(15)], [false, true, false]);
        let keeps = |major, minor| keeps_references(Version::new(major, minor));
        assert_eq!([keeps(6, 0), keeps(6, 1), keeps(7, 13), keeps(7, 14)], [false, true, true, false]);
    }

    #[test]
    fn architectures_that_lose_data_are_held_back() {
        assert_eq!(virtual_memory_guard(Some("gfx1201"), None, NEWEST_RUNTIME), Some(LOST_STORES));
        assert_eq!(stream_ordered_guard(Some("gfx90c")), Some(BAD_POOL));
        assert_eq!(stream_ordered_guard(Some("gfx942")), None);
        assert_eq!(stream_ordered_guard(None), None);
    }

    #[test]
    fn every_guard_names_the_variable_that_overrides_it() {
        assert!(OLD_DRM.to_string().contains(FORCE_VIRTUAL_MEMORY));
        assert!(OLD_RUNTIME.to_string().contains(FORCE_VIRTUAL_MEMORY));
        assert!(NEW_RUNTIME.to_string().contains(FORCE_VIRTUAL_MEMORY));
        assert!(LOST_STORES.to_string().contains(FORCE_VIRTUAL_MEMORY));
        assert!(BAD_POOL.to_string().contains(FORCE_STREAM_ORDERED));
    }

    #[test]
    fn what_is_no_node_of_amdgpu_has_no_version() {
        let folder = env::temp_dir().join(format!("cachette-drm-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("renderD128"), "not a device").unwrap();
        fs::write(folder.join("card0"), "not a device").unwrap();
        assert_eq!(drm_version(&folder), None);
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(drm_version(&folder), None);
    }
}
