//! Why a feature is missing on a device.

use std::env;
use std::ffi::c_int;
use std::fs::{self, File};
use std::path::Path;

use rustix::ioctl::{Opcode, Updater, ioctl, opcode};

use cachette_hal::{Granularity, Reason, Result, Version};

use crate::facts::{HipFacts, has};
use crate::library::Driver;
use crate::symbols::VirtualMemorySymbols;
use crate::types::{
    ATTRIBUTE_MEMORY_POOLS, ATTRIBUTE_VIRTUAL_MEMORY, MEM_GRANULARITY_MINIMUM, MEM_GRANULARITY_RECOMMENDED,
};
use crate::virtual_memory::properties;

/// Set to 1, it gives out virtual memory where this crate would hold it back.
pub const FORCE_VIRTUAL_MEMORY: &str = "CACHETTE_HIP_FORCE_VIRTUAL_MEMORY";
/// Set to 1, it gives out the stream-ordered pool where this crate would hold it back.
pub const FORCE_STREAM_ORDERED: &str = "CACHETTE_HIP_FORCE_STREAM_ORDERED";

/// Set to 1, it lets memory be mapped at two places at once where this crate would hold that back.
pub const FORCE_ALIASES: &str = "CACHETTE_HIP_FORCE_ALIASES";

/// The first version of the amdgpu kernel module on which setting rights does not hang.
const OLDEST_DRM: Version = Version::new(3, 64);
const OLD_DRM: Reason = Reason::Guarded(
    "hipMemSetAccess hangs for ever on amdgpu kernel modules before DRM 3.64; update the kernel, or set \
     CACHETTE_HIP_FORCE_VIRTUAL_MEMORY=1",
);
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

/// Sizes are multiples of this at least: a descriptor goes with every backing, and 4 KiB would use them up.
const FLOOR: u64 = 2 << 20;

/// Whether a variable overrides a guard.
fn is_forced(variable: &str) -> bool {
    env::var_os(variable).is_some_and(|value| value == "1")
}

/// The granularity of a device's virtual memory, or why it has none; the device is the current one.
pub(crate) fn virtual_memory(driver: &Driver, device: c_int, facts: &HipFacts) -> Result<Granularity, Reason> {
    let table = driver.symbols.virtual_memory?;
    if !has(driver, device, ATTRIBUTE_VIRTUAL_MEMORY) {
        return Err(Reason::DeviceLacks("hipDeviceAttributeVirtualMemoryManagementSupported"));
    }
    // An emulated device has no kernel module.
    let drm = if driver.info.emulated { None } else { drm_version(Path::new("/dev/dri")) };
    if let Some(reason) = virtual_memory_guard(facts.family(), drm)
        && !is_forced(FORCE_VIRTUAL_MEMORY)
    {
        return Err(reason);
    }
    granularity(driver, &table, device)
        .map_err(|_| Reason::SelfTestFailed("hipMemGetAllocationGranularity did not answer"))
}

/// Why virtual memory is held back; what is not known holds nothing back.
fn virtual_memory_guard(family: Option<&str>, drm: Option<Version>) -> Option<Reason> {
    if drm.is_some_and(|version| version < OLDEST_DRM) {
        return Some(OLD_DRM);
    }
    (family == Some("gfx1201")).then_some(LOST_STORES)
}

/// Whether memory mapped at two addresses shows the same bytes at both.
pub(crate) fn aliases(family: Option<&str>) -> Result<(), Reason> {
    let incoherent = ["gfx10", "gfx11", "gfx12"];
    let is_rdna = family.is_some_and(|family| incoherent.iter().any(|of| family.starts_with(of)));
    if is_rdna && !is_forced(FORCE_ALIASES) {
        return Err(INCOHERENT);
    }
    Ok(())
}

/// Whether unmapped memory comes free while its addresses stay reserved. Which release brought that is not known;
/// to reserve anew where it is not needed does no harm.
pub(crate) fn frees_under_reservation(found: Version) -> Result<(), Reason> {
    let needs = Version::new(7, 14);
    if found < needs {
        return Err(Reason::DriverTooOld { needs, found });
    }
    Ok(())
}

/// Asks for both granularities and takes the coarser, which must also reach the floor.
fn granularity(driver: &Driver, table: &VirtualMemorySymbols, device: c_int) -> Result<Granularity> {
    let mut coarsest = FLOOR;
    for option in [MEM_GRANULARITY_MINIMUM, MEM_GRANULARITY_RECOMMENDED] {
        let (wanted, mut found) = (properties(device, 0), 0);
        // SAFETY: both structures outlive the call.
        let status = unsafe { (table.hipMemGetAllocationGranularity)(&raw mut found, &raw const wanted, option) };
        driver.check("hipMemGetAllocationGranularity", status)?;
        coarsest = coarsest.max(found.next_power_of_two());
    }
    Ok(Granularity { minimum: coarsest, recommended: coarsest })
}

/// Why the pool is not even tried; a device that passes must still pass the test of its pool.
pub(crate) fn stream_ordered(driver: &Driver, device: c_int, facts: &HipFacts) -> Result<(), Reason> {
    driver.symbols.stream_ordered?;
    if !has(driver, device, ATTRIBUTE_MEMORY_POOLS) {
        return Err(Reason::DeviceLacks("hipDeviceAttributeMemoryPoolsSupported"));
    }
    match stream_ordered_guard(facts.family()) {
        Some(reason) if !is_pool_forced() => Err(reason),
        _ => Ok(()),
    }
}

/// Whether the pool is given out untested.
pub(crate) fn is_pool_forced() -> bool {
    is_forced(FORCE_STREAM_ORDERED)
}

fn stream_ordered_guard(family: Option<&str>) -> Option<Reason> {
    let bad = ["gfx90c", "gfx1100", "gfx1101", "gfx1201"];
    family.is_some_and(|family| bad.contains(&family)).then_some(BAD_POOL)
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

/// The oldest version that the amdgpu nodes of a folder answer with; `None` if none answers.
fn drm_version(folder: &Path) -> Option<Version> {
    let entries = fs::read_dir(folder).ok()?;
    let nodes = entries.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with("renderD"));
    nodes.filter_map(|node| amdgpu_version(&node.path())).min()
}

/// The version of the module behind a node; `None` if it is not amdgpu.
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
    // SAFETY: the request's structure is the one that its number promises.
    let request = unsafe { Updater::<DRM_IOCTL_VERSION, DrmVersion>::new(&mut answer) };
    // SAFETY: the structure and the name outlive the call, and the other texts have no room to be written.
    unsafe { ioctl(&file, request) }.ok()?;
    let (major, minor) = (u32::try_from(answer.major).ok()?, u32::try_from(answer.minor).ok()?);
    name.starts_with(b"amdgpu").then_some(Version::new(major, minor))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_kernel_modules_hold_virtual_memory_back() {
        let at = |minor| virtual_memory_guard(Some("gfx942"), Some(Version::new(3, minor)));
        assert_eq!(at(59), Some(OLD_DRM));
        assert_eq!(at(63), Some(OLD_DRM));
        assert_eq!(at(64), None);
        assert_eq!(virtual_memory_guard(Some("gfx942"), None), None);
    }

    #[test]
    fn architectures_that_lose_data_are_held_back() {
        assert_eq!(virtual_memory_guard(Some("gfx1201"), None), Some(LOST_STORES));
        assert_eq!(stream_ordered_guard(Some("gfx90c")), Some(BAD_POOL));
        assert_eq!(stream_ordered_guard(Some("gfx942")), None);
        assert_eq!(stream_ordered_guard(None), None);
    }

    #[test]
    fn every_guard_names_the_variable_that_overrides_it() {
        assert!(OLD_DRM.to_string().contains(FORCE_VIRTUAL_MEMORY));
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
