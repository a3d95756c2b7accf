//! Virtual memory: addresses and physical memory are separate.

use std::ffi::{c_int, c_void};
use std::fs;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use cachette_hal::{
    Access, Backing, DevicePtr, Error, ErrorKind, FabricHandle, Granularity, Ordinal, Reason, Result, Sharing,
    VirtualMemory, sized_call,
};
use cudarc::driver::sys::{
    CUdevice, CUmemAccess_flags as Flags, CUmemAllocationGranularity_flags as Which,
    CUmemAllocationHandleType as Handles,
};

use crate::context::Context;
use crate::device::device_ptr;
use crate::mappings::{alone, retried};
use crate::probe::Property;
use crate::status::{NOT_SUPPORTED, check};
use crate::symbols::VirtualMemoryCalls;
use crate::types::{AccessRight, BackingProperties, pointer, size};

const DESCRIPTOR: Handles = Handles::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
/// `CU_MEM_HANDLE_TYPE_FABRIC`; cudarc has the name only if it is built for CUDA 12.3 or newer.
const FABRIC: Handles = Handles(8);

#[derive(Debug)]
pub(crate) struct CudaVirtualMemory {
    context: Arc<Context>,
    calls: VirtualMemoryCalls,
    granularity: Granularity,
    /// Whether memory can be created for network cards.
    rdma: bool,
    /// Whether a network card was found, so that all memory is created for it.
    network_card: bool,
    /// Whether memory can be exported as a file descriptor, or why not.
    descriptors: Result<(), Reason>,
    /// Whether memory can be exported by a fabric handle, or why not.
    fabric: Result<(), Reason>,
}

impl CudaVirtualMemory {
    /// Checks the requirements of the group, and reads the granularity.
    pub(crate) fn probe(context: &Arc<Context>) -> Result<Self, Reason> {
        let (core, device) = (context.core(), context.device);
        let calls = context.symbols().virtual_memory?;
        Property::VIRTUAL_MEMORY.need(core, device)?;
        let rdma = Property::RDMA.has(core, device);
        let properties = BackingProperties::new(device, Handles::CU_MEM_HANDLE_TYPE_NONE, rdma);
        let granularity = |which| granularity(&calls, &properties, which);
        Ok(Self {
            granularity: Granularity {
                minimum: granularity(Which::CU_MEM_ALLOC_GRANULARITY_MINIMUM)?,
                recommended: granularity(Which::CU_MEM_ALLOC_GRANULARITY_RECOMMENDED)?,
            },
            descriptors: Property::FILE_DESCRIPTOR.need(core, device),
            fabric: Property::FABRIC.need(core, device),
            context: Arc::clone(context),
            calls,
            rdma,
            network_card: network_card(Path::new("/sys/class")),
        })
    }

    /// The handle of the backing that is mapped at an address; the caller holds [`alone`].
    fn mapped_at(&self, at: u64) -> Result<u64> {
        let call = "cuMemRetainAllocationHandle";
        let mut backing = 0;
        // SAFETY: the driver looks the address up without dereferencing it, and writes one handle.
        let status = unsafe { (self.calls.cuMemRetainAllocationHandle)(&raw mut backing, pointer(size(at))) };
        check(call, status)?;
        // SAFETY: the handle was just retained; its number stays valid for comparison.
        let status = unsafe { (self.calls.cuMemRelease)(backing) };
        check("cuMemRelease", status)?;
        Ok(backing)
    }

    /// Rejects a range that contains no mapping, or several.
    ///
    /// The driver unmaps every mapping in a range, and accepts an empty range; it only rejects a split of a mapping.
    /// Adjacent mappings of one backing count as one here.
    fn check_one_mapping(&self, at: DevicePtr, bytes: u64) -> Result<()> {
        let invalid = Error::new(ErrorKind::InvalidValue, "cuMemUnmap");
        let last = at.address().checked_add(bytes - 1).ok_or(invalid)?;
        if self.mapped_at(at.address())? == self.mapped_at(last)? { Ok(()) } else { Err(invalid) }
    }

    /// Creates memory that can be exported by these handles.
    fn create(&self, bytes: u64, handles: Handles, rdma: bool) -> Result<Backing> {
        let rdma = self.rdma && (self.network_card || rdma);
        let properties = BackingProperties::new(self.context.device, handles, rdma);
        let mut backing = 0;
        // SAFETY: the driver reads the properties and writes one handle.
        self.context.call("cuMemCreate", || unsafe {
            (self.calls.cuMemCreate)(&raw mut backing, size(bytes), &raw const properties, 0)
        })?;
        Ok(Backing::from_raw(size(backing), bytes))
    }

    /// Converts the access rights to the driver's form.
    fn rights(access: &[Access]) -> Result<Vec<AccessRight>> {
        let right = |access: &Access| match *access {
            Access::None(on) => Ok(AccessRight::new(number(on)?, Flags::CU_MEM_ACCESS_FLAGS_PROT_NONE)),
            Access::Read(on) => Ok(AccessRight::new(number(on)?, Flags::CU_MEM_ACCESS_FLAGS_PROT_READ)),
            Access::ReadWrite(on) => Ok(AccessRight::new(number(on)?, Flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE)),
            _ => Err(Error::new(ErrorKind::Unsupported, "cuMemSetAccess")),
        };
        access.iter().map(right).collect()
    }
}

/// Returns whether the system has a network card that can access device memory: `InfiniBand`, RoCE, EFA or Slingshot.
fn network_card(classes: &Path) -> bool {
    let has_entries = |class| fs::read_dir(classes.join(class)).is_ok_and(|mut entries| entries.next().is_some());
    ["infiniband", "cxi"].into_iter().any(has_entries)
}

/// The driver's number for a device; `cuDeviceGet` returns the same.
fn number(ordinal: Ordinal) -> Result<CUdevice> {
    let none = Error::new(ErrorKind::NoSuchDevice, "cuMemSetAccess");
    CUdevice::try_from(ordinal.0).map_err(|_| none)
}

fn granularity(calls: &VirtualMemoryCalls, properties: &BackingProperties, which: Which) -> Result<u64, Reason> {
    let mut bytes = 0;
    // SAFETY: the driver reads the properties and writes one size.
    let status = unsafe { (calls.cuMemGetAllocationGranularity)(&raw mut bytes, properties, which as u32) };
    let failed = Reason::SelfTestFailed("cuMemGetAllocationGranularity gave no size");
    check("cuMemGetAllocationGranularity", status).map_err(|_| failed)?;
    if bytes == 0 {
        return Err(failed);
    }
    Ok(bytes as u64)
}

impl VirtualMemory for CudaVirtualMemory {
    fn granularity(&self) -> Granularity {
        self.granularity
    }

    fn shares(&self, sharing: Sharing) -> Result<(), Reason> {
        match sharing {
            Sharing::Private => Ok(()),
            Sharing::FileDescriptor => self.descriptors,
            Sharing::Fabric => self.fabric,
            _ => Err(Reason::NotImplemented),
        }
    }

    fn aliases(&self) -> Result<(), Reason> {
        Ok(())
    }

    fn frees_under_reservation(&self) -> Result<(), Reason> {
        Ok(())
    }

    fn mixes_sizes(&self) -> Result<(), Reason> {
        Ok(())
    }

    fn maps_without_wait(&self) -> Result<(), Reason> {
        Ok(())
    }

    fn reserve(&self, bytes: u64, wish: Option<DevicePtr>) -> Result<DevicePtr> {
        let call = sized_call("cuMemAddressReserve", bytes)?;
        let alignment = size(self.granularity.recommended);
        let wish = wish.map_or(0, DevicePtr::address);
        let mut at = 0;
        let reserve = self.calls.cuMemAddressReserve;
        // SAFETY: the driver writes one address.
        self.context.call(call, || unsafe { reserve(&raw mut at, size(bytes), alignment, wish, 0) })?;
        device_ptr(call, at)
    }

    unsafe fn release(&self, start: DevicePtr, bytes: u64) -> Result<()> {
        // SAFETY: 1. is the caller's promise.
        self.context.call("cuMemAddressFree", || unsafe { (self.calls.cuMemAddressFree)(start.address(), size(bytes)) })
    }

    fn create_backing(&self, bytes: u64, sharing: Sharing, rdma: bool) -> Result<Backing> {
        let call = sized_call("cuMemCreate", bytes)?;
        match (sharing, self.shares(sharing)) {
            (Sharing::Private, _) => self.create(bytes, Handles::CU_MEM_HANDLE_TYPE_NONE, rdma),
            (Sharing::FileDescriptor, Ok(())) => self.create(bytes, DESCRIPTOR, rdma),
            (Sharing::Fabric, Ok(())) => self.create(bytes, FABRIC, rdma).map_err(unreached),
            (Sharing::Fabric, Err(_)) => Err(Error::new(ErrorKind::NoFabric, call)),
            _ => Err(Error::new(ErrorKind::Unsupported, call)),
        }
    }

    unsafe fn destroy_backing(&self, backing: Backing) -> Result<()> {
        let _entered = self.context.enter()?;
        let _alone = alone();
        // SAFETY: 1. is the caller's promise.
        let status = unsafe { (self.calls.cuMemRelease)(backing.raw() as u64) };
        check("cuMemRelease", status)
    }

    unsafe fn map(&self, at: DevicePtr, backing: &Backing) -> Result<()> {
        let _entered = self.context.enter()?;
        let (bytes, handle) = (size(backing.bytes()), backing.raw() as u64);
        let map = || {
            // SAFETY: 1. is the caller's promise; the driver refuses addresses that are not free for it.
            unsafe { (self.calls.cuMemMap)(at.address(), bytes, 0, handle, 0) }
        };
        retried("cuMemMap", map).map_err(|error| match error.status() {
            // The driver's status for a size that is not the backing's.
            Some(NOT_SUPPORTED) => error.with_kind(ErrorKind::InvalidValue),
            _ => error,
        })
    }

    unsafe fn unmap(&self, at: DevicePtr, bytes: u64) -> Result<()> {
        let call = sized_call("cuMemUnmap", bytes)?;
        let _entered = self.context.enter()?;
        let _alone = alone();
        self.check_one_mapping(at, bytes)?;
        // SAFETY: 2. is the caller's promise; the driver refuses a part of a mapping.
        let status = unsafe { (self.calls.cuMemUnmap)(at.address(), size(bytes)) };
        check(call, status)
    }

    unsafe fn set_access(&self, at: DevicePtr, bytes: u64, access: &[Access]) -> Result<()> {
        let call = sized_call("cuMemSetAccess", bytes)?;
        let rights = Self::rights(access)?;
        let _entered = self.context.enter()?;
        retried(call, || {
            // SAFETY: 2. is the caller's promise; the driver reads as many rights as there are.
            unsafe { (self.calls.cuMemSetAccess)(at.address(), size(bytes), rights.as_ptr(), rights.len()) }
        })
    }

    unsafe fn export_backing(&self, backing: &Backing) -> Result<OwnedFd> {
        let mut descriptor: c_int = -1;
        let place = (&raw mut descriptor).cast::<c_void>();
        let handle = backing.raw() as u64;
        let call = "cuMemExportToShareableHandle";
        let export = self.calls.cuMemExportToShareableHandle;
        // SAFETY: 1. is the caller's promise; for this kind of handle the driver writes a descriptor.
        self.context.call(call, || unsafe { export(place, handle, DESCRIPTOR, 0) })?;
        if descriptor < 0 {
            return Err(Error::new(ErrorKind::Other, call));
        }
        // SAFETY: the driver has opened it for this caller only.
        Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
    }

    fn import_backing(&self, fd: BorrowedFd<'_>, bytes: u64) -> Result<Backing> {
        let call = sized_call("cuMemImportFromShareableHandle", bytes)?;
        // The driver reads descriptor 0 as a null pointer; a copy never has that number.
        let copy = fd.try_clone_to_owned().map_err(|_| Error::new(ErrorKind::Refused, call))?;
        let invalid = Error::new(ErrorKind::InvalidValue, call);
        let descriptor = usize::try_from(copy.as_raw_fd()).map_err(|_| invalid)?;
        let mut backing = 0;
        let import = self.calls.cuMemImportFromShareableHandle;
        // SAFETY: for this kind of handle the pointer is the descriptor's number, and it is open.
        let answer = self.context.call(call, || unsafe { import(&raw mut backing, pointer(descriptor), DESCRIPTOR) });
        answer.map_err(foreign)?;
        Ok(Backing::from_raw(size(backing), bytes))
    }

    unsafe fn export_fabric(&self, backing: &Backing) -> Result<FabricHandle> {
        let call = "cuMemExportToShareableHandle";
        if self.fabric.is_err() {
            return Err(Error::new(ErrorKind::NoFabric, call));
        }
        let mut name = FabricHandle([0; 64]);
        let place = (&raw mut name).cast::<c_void>();
        let handle = backing.raw() as u64;
        // SAFETY: 1. is the caller's promise; for this kind of handle the driver writes 64 bytes.
        self.context.call(call, || unsafe { (self.calls.cuMemExportToShareableHandle)(place, handle, FABRIC, 0) })?;
        Ok(name)
    }

    fn import_fabric(&self, handle: &FabricHandle, bytes: u64) -> Result<Backing> {
        let call = sized_call("cuMemImportFromShareableHandle", bytes)?;
        if self.fabric.is_err() {
            return Err(Error::new(ErrorKind::NoFabric, call));
        }
        let mut name = *handle;
        let place = (&raw mut name).cast::<c_void>();
        let mut backing = 0;
        let import = self.calls.cuMemImportFromShareableHandle;
        // SAFETY: for this kind of handle the driver reads 64 bytes, and writes one handle.
        let answer = self.context.call(call, || unsafe { import(&raw mut backing, place, FABRIC) });
        answer.map_err(unreached).map_err(foreign)?;
        Ok(Backing::from_raw(size(backing), bytes))
    }
}

/// The error of a call that failed because this process has no channel to the fabric.
fn unreached(error: Error) -> Error {
    match error.kind() {
        ErrorKind::Refused | ErrorKind::Unsupported => error.with_kind(ErrorKind::NoFabric),
        _ => error,
    }
}

/// The error of an import whose handle is not from the driver.
///
/// The driver reports a rejection by the operating system, an unknown device or an unknown failure, depending on the
/// kind of descriptor.
fn foreign(error: Error) -> Error {
    match error.kind() {
        ErrorKind::Refused | ErrorKind::NoSuchDevice | ErrorKind::InvalidHandle | ErrorKind::Other => {
            error.with_kind(ErrorKind::InvalidValue)
        }
        _ => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_card_is_an_entry_of_its_class() {
        let classes = std::env::temp_dir().join(format!("cachette-classes-{}", std::process::id()));
        assert!(!network_card(&classes), "there is no class");
        fs::create_dir_all(classes.join("infiniband")).unwrap();
        assert!(!network_card(&classes), "the class is empty");
        fs::create_dir(classes.join("infiniband/mlx5_0")).unwrap();
        assert!(network_card(&classes));
        fs::remove_dir_all(&classes).unwrap();
    }
}
