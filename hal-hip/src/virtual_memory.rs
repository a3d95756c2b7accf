//! Addresses and physical memory apart.
//!
//! Every mapping is whole, and the driver is asked about it exactly once for each thing that is done to it,
//! with exactly its size; the ledger refuses everything else first.

use std::ffi::{c_int, c_void};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;

use cachette_hal::{
    Access, Backing, DevicePtr, Error, ErrorKind, FabricHandle, Granularity, Ordinal, Reason, Result, Sharing, Version,
    VirtualMemory,
};

use crate::device::{HipDevice, address};
use crate::ledger::{Mapping, Proof};
use crate::limits;
use crate::symbols::VirtualMemorySymbols;
use crate::types::{
    MEM_ACCESS_NONE, MEM_ACCESS_READ, MEM_ACCESS_READ_WRITE, MEM_ALLOCATION_TYPE_PINNED,
    MEM_HANDLE_TYPE_FILE_DESCRIPTOR, MEM_HANDLE_TYPE_NONE, MEM_LOCATION_TYPE_DEVICE, MemAccessDesc, MemAllocationFlags,
    MemAllocationProp, MemLocation, Status,
};

/// Since this version a descriptor is imported by value, before it by a pointer to it.
const DESCRIPTOR_BY_VALUE: Version = Version::new(7, 1);

/// What physical memory of a device is made like.
pub(crate) const fn properties(device: c_int, handle_type: c_int) -> MemAllocationProp {
    MemAllocationProp {
        kind: MEM_ALLOCATION_TYPE_PINNED,
        requested_handle_type: handle_type,
        location: location(device),
        win32_handle_meta_data: ptr::null_mut(),
        flags: MemAllocationFlags { compression_type: 0, gpu_direct_rdma_capable: 0, usage: 0 },
    }
}

const fn location(device: c_int) -> MemLocation {
    MemLocation { kind: MEM_LOCATION_TYPE_DEVICE, id: device }
}

const fn invalid(call: &'static str) -> Error {
    Error::new(ErrorKind::InvalidValue, call)
}

impl HipDevice {
    fn vm_call(&self, call: &'static str, make: impl FnOnce(&VirtualMemorySymbols) -> Status) -> Result<()> {
        self.call_in(&self.driver.symbols.virtual_memory, call, make)
    }

    /// Refuses what is zero or no multiple of the granularity.
    fn check_granularity(&self, call: &'static str, value: u64) -> Result<()> {
        if value == 0 || !value.is_multiple_of(self.granularity().minimum) {
            return Err(invalid(call));
        }
        Ok(())
    }

    /// Reserves addresses, at the wished place or at none.
    fn reserve_at(&self, bytes: u64, wish: u64) -> Result<DevicePtr> {
        let call = "hipMemAddressReserve";
        let alignment = self.granularity().recommended;
        let mut start = 0;
        // SAFETY: the out-parameter outlives the call.
        self.vm_call(call, |hip| unsafe { (hip.hipMemAddressReserve)(&raw mut start, bytes, alignment, wish, 0) })?;
        let start = address(call, start)?;
        self.driver.ledger.reserve(start.address(), bytes);
        if start.address().is_multiple_of(alignment) {
            return Ok(start);
        }
        // SAFETY: 1. it was reserved just now, and nobody else knows of it.
        unsafe { self.release(start, bytes) }?;
        Err(Error::new(ErrorKind::OutOfMemory, call))
    }

    /// Rights in the driver's terms; a device that does not exist is refused here, for the driver might not.
    fn rights(&self, access: &[Access]) -> Result<Vec<MemAccessDesc>> {
        let call = "hipMemSetAccess";
        let count = self.driver.count()?;
        let right = |access: &Access| {
            let (Ordinal(ordinal), flags) = match *access {
                Access::None(ordinal) => (ordinal, MEM_ACCESS_NONE),
                Access::Read(ordinal) => (ordinal, MEM_ACCESS_READ),
                Access::ReadWrite(ordinal) => (ordinal, MEM_ACCESS_READ_WRITE),
                _ => return Err(Error::new(ErrorKind::Unsupported, call)),
            };
            let known = c_int::try_from(ordinal).ok().filter(|_| ordinal < count);
            let device = known.ok_or(Error::new(ErrorKind::NoSuchDevice, call))?;
            let location = location(device);
            Ok(MemAccessDesc { location, flags })
        };
        access.iter().map(right).collect()
    }

    /// Sets rights to exactly one mapping.
    fn set_rights(&self, at: u64, bytes: u64, access: &[MemAccessDesc]) -> Result<()> {
        // SAFETY: the list outlives the call. 2. That no work needs a right taken away is the promise of
        // whoever sets access.
        self.vm_call("hipMemSetAccess", |hip| unsafe {
            (hip.hipMemSetAccess)(at, bytes, access.as_ptr(), access.len())
        })
    }

    /// Sets rights to one mapping, and notes what that says of it.
    fn grant(&self, at: u64, mapping: &Mapping, access: &[MemAccessDesc]) -> Result<()> {
        let ledger = &self.driver.ledger;
        let granted = self.set_rights(at, mapping.bytes, access);
        if granted.is_ok() {
            ledger.granted(at, access);
        } else if mapping.proof == Proof::Unproven {
            // It may be another's right alone that was refused; then it is mapped, and nobody's yet.
            let own = self.own_right(MEM_ACCESS_READ_WRITE);
            let nothing = [self.own_right(MEM_ACCESS_NONE)];
            let mapped = access != [own] && self.set_rights(at, mapping.bytes, &[own]).is_ok();
            if mapped && self.set_rights(at, mapping.bytes, &nothing).is_ok() {
                ledger.granted(at, &nothing);
            } else if mapped {
                ledger.granted(at, &[own]);
            } else {
                ledger.refused(at);
            }
        }
        granted
    }

    /// A right of this device.
    fn own_right(&self, flags: c_int) -> MemAccessDesc {
        MemAccessDesc { location: location(self.unit.device), flags }
    }

    /// Whether something is really mapped.
    ///
    /// A mapping that never had rights set may have failed in silence, and must then not be unmapped.
    fn is_mapped(&self, at: u64, bytes: u64, proof: Proof) -> bool {
        let own = self.own_right(MEM_ACCESS_READ_WRITE);
        match proof {
            Proof::Proven => true,
            Proof::Unproven => self.set_rights(at, bytes, &[own]).is_ok(),
            Proof::Refused | Proof::Busy => false,
        }
    }
}

/// Explains a failure to create a backing: without descriptors it reads as without memory.
fn explain(error: Error) -> Error {
    match error.status() {
        Some(status) if error.kind() == ErrorKind::OutOfMemory && limits::is_exhausted() => {
            Error::from_status(ErrorKind::Refused, error.call(), status)
        }
        _ => error,
    }
}

impl VirtualMemory for HipDevice {
    fn granularity(&self) -> Granularity {
        // Without the feature no size is a multiple of it.
        self.unit.granularity.unwrap_or(Granularity { minimum: 1 << 63, recommended: 1 << 63 })
    }

    /// Fabric handles are not used: HIP has none before 7.14, and nobody has proven those of 7.14.
    fn shares(&self, sharing: Sharing) -> Result<(), Reason> {
        match sharing {
            Sharing::Private | Sharing::FileDescriptor => Ok(()),
            _ => Err(Reason::NotImplemented),
        }
    }

    fn aliases(&self) -> Result<(), Reason> {
        crate::probe::aliases(self.facts().family())
    }

    fn frees_under_reservation(&self) -> Result<(), Reason> {
        crate::probe::frees_under_reservation(self.driver.info.version)
    }

    fn reserve(&self, bytes: u64, wish: Option<DevicePtr>) -> Result<DevicePtr> {
        self.check_granularity("hipMemAddressReserve", bytes)?;
        match wish {
            // Whether a place that is taken fails or gives another differs by version.
            Some(wish) => self.reserve_at(bytes, wish.address()).or_else(|_| self.reserve_at(bytes, 0)),
            None => self.reserve_at(bytes, 0),
        }
    }

    unsafe fn release(&self, start: DevicePtr, bytes: u64) -> Result<()> {
        let call = "hipMemAddressFree";
        let start = start.address();
        if !self.driver.ledger.begin_release(start, bytes) {
            return Err(invalid(call));
        }
        // SAFETY: 1. the caller's promise, and the ledger agrees.
        let released = self.vm_call(call, |hip| unsafe { (hip.hipMemAddressFree)(start, bytes) });
        if released.is_err() {
            self.driver.ledger.reserve(start, bytes);
        }
        released
    }

    fn create_backing(&self, bytes: u64, sharing: Sharing) -> Result<Backing> {
        let call = "hipMemCreate";
        self.check_granularity(call, bytes)?;
        let kind = match sharing {
            Sharing::Private => MEM_HANDLE_TYPE_NONE,
            Sharing::FileDescriptor => MEM_HANDLE_TYPE_FILE_DESCRIPTOR,
            Sharing::Fabric => return Err(Error::new(ErrorKind::NoFabric, call)),
            _ => return Err(Error::new(ErrorKind::Unsupported, call)),
        };
        let wanted = properties(self.unit.device, kind);
        let mut handle = 0;
        // SAFETY: both structures outlive the call.
        let created =
            self.vm_call(call, |hip| unsafe { (hip.hipMemCreate)(&raw mut handle, bytes, &raw const wanted, 0) });
        created.map_err(explain)?;
        Ok(Backing::from_raw(handle, bytes))
    }

    unsafe fn destroy_backing(&self, backing: Backing) -> Result<()> {
        // SAFETY: 1. the caller's promise.
        self.vm_call("hipMemRelease", |hip| unsafe { (hip.hipMemRelease)(backing.raw()) })
    }

    unsafe fn map(&self, at: DevicePtr, backing: &Backing) -> Result<()> {
        let call = "hipMemMap";
        let (at, bytes) = (at.address(), backing.bytes());
        self.check_granularity(call, at)?;
        self.check_granularity(call, bytes)?;
        if !self.driver.ledger.begin_map(at, bytes) {
            return Err(invalid(call));
        }
        // SAFETY: 1. the caller's promise; the range is reserved and free.
        let mapped = self.vm_call(call, |hip| unsafe { (hip.hipMemMap)(at, bytes, 0, backing.raw(), 0) });
        self.driver.ledger.end_map(at, mapped.is_ok());
        mapped
    }

    unsafe fn unmap(&self, at: DevicePtr, bytes: u64) -> Result<()> {
        let call = "hipMemUnmap";
        let ledger = &self.driver.ledger;
        let at = at.address();
        let proof = ledger.begin_unmap(at, bytes).ok_or(invalid(call))?;
        let unmapped = if self.is_mapped(at, bytes, proof) {
            // SAFETY: 2. the caller's promise; exactly this range is one mapping.
            self.vm_call(call, |hip| unsafe { (hip.hipMemUnmap)(at, bytes) })
        } else {
            Ok(())
        };
        ledger.end_unmap(at, unmapped.err().map(|_| proof));
        unmapped
    }

    unsafe fn set_access(&self, at: DevicePtr, bytes: u64, access: &[Access]) -> Result<()> {
        let call = "hipMemSetAccess";
        let rights = self.rights(access)?;
        let mappings = self.driver.ledger.mappings(at.address(), bytes);
        let mappings = mappings.filter(|_| !rights.is_empty()).ok_or(invalid(call))?;
        for (done, (at, mapping)) in mappings.iter().enumerate() {
            let Err(error) = self.grant(*at, mapping, &rights) else {
                continue;
            };
            for (at, mapping) in &mappings[..done] {
                // What cannot be put back stays granted; the first failure is the one to tell.
                let _ = self.grant(*at, mapping, &mapping.before(&rights));
            }
            return Err(error);
        }
        Ok(())
    }

    unsafe fn export_backing(&self, backing: &Backing) -> Result<OwnedFd> {
        let (handle, kind) = (backing.raw(), MEM_HANDLE_TYPE_FILE_DESCRIPTOR);
        let mut descriptor: RawFd = -1;
        let out = (&raw mut descriptor).cast::<c_void>();
        // SAFETY: 1. the caller's promise; the out-parameter is an `int` that outlives the call.
        self.vm_call("hipMemExportToShareableHandle", |hip| unsafe {
            (hip.hipMemExportToShareableHandle)(out, handle, kind, 0)
        })?;
        // SAFETY: the driver has opened it for this call, so nobody else owns it.
        Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
    }

    fn import_backing(&self, fd: BorrowedFd<'_>, bytes: u64) -> Result<Backing> {
        let call = "hipMemImportFromShareableHandle";
        self.check_granularity(call, bytes)?;
        // By value, descriptor 0 reads as null; a copy never has that number.
        let copy = fd.try_clone_to_owned();
        let copy = copy.map_err(|_| Error::new(ErrorKind::Refused, call))?;
        let mut descriptor: RawFd = copy.as_raw_fd();
        let shareable = if self.driver.info.version >= DESCRIPTOR_BY_VALUE {
            let number = usize::try_from(descriptor).map_err(|_| invalid(call))?;
            ptr::without_provenance_mut(number)
        } else {
            (&raw mut descriptor).cast::<c_void>()
        };
        let mut handle = 0;
        // SAFETY: the out-parameter and the descriptor outlive the call, and the latter is passed as this
        // version wants it.
        self.vm_call(call, |hip| unsafe {
            (hip.hipMemImportFromShareableHandle)(&raw mut handle, shareable, MEM_HANDLE_TYPE_FILE_DESCRIPTOR)
        })?;
        Ok(Backing::from_raw(handle, bytes))
    }

    unsafe fn export_fabric(&self, _: &Backing) -> Result<FabricHandle> {
        Err(Error::new(ErrorKind::NoFabric, "hipMemExportToShareableHandle"))
    }

    fn import_fabric(&self, _: &FabricHandle, _: u64) -> Result<Backing> {
        Err(Error::new(ErrorKind::NoFabric, "hipMemImportFromShareableHandle"))
    }
}
