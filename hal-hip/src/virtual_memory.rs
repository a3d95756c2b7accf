//! Virtual memory: addresses and physical memory are separate.
//!
//! Every call to the driver names exactly one whole mapping; the ledger rejects everything else first.

use std::ffi::{c_int, c_void};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::Arc;

use cachette_hal::{
    Access, Backing, DevicePtr, Error, ErrorKind, FabricHandle, Granularity, Ordinal, Reason, Result, Sharing, Version,
    VirtualMemory,
};
use rustix::fs::fstat;

use crate::context::Context;
use crate::device::device_ptr;
use crate::ledger::{Ledger, Mapping, MappingState};
use crate::limits;
use crate::probe::{self, Property};
use crate::status::NOT_FOUND;
use crate::symbols::VirtualMemoryCalls;
use crate::types::{
    MEM_ACCESS_NONE, MEM_ACCESS_READ, MEM_ACCESS_READ_WRITE, MEM_GRANULARITY_MINIMUM, MEM_GRANULARITY_RECOMMENDED,
    MEM_HANDLE_TYPE_FILE_DESCRIPTOR as DESCRIPTOR, MEM_HANDLE_TYPE_NONE, MemAccessDesc, MemAllocationProp,
};

/// Since this version a descriptor is imported by value, before it by a pointer to it.
const DESCRIPTOR_BY_VALUE: Version = Version::new(7, 1);

/// Since this version a failed map is reported, and mapping does not wait for the default stream.
pub(crate) const REPORTS_FAILURES: Version = Version::new(7, 14);

/// The minimum granularity: every backing holds a descriptor, and backings of 4 KiB would exhaust them.
const FLOOR: u64 = 2 << 20;

#[derive(Debug)]
pub(crate) struct HipVirtualMemory {
    context: Arc<Context>,
    calls: VirtualMemoryCalls,
    granularity: Granularity,
    /// Whether a failed map reports success.
    swallows_failures: bool,
    /// Whether a failed map keeps its reference to the backing.
    keeps_references: bool,
    /// Whether every exportable backing leaks a descriptor.
    leaks_descriptors: bool,
    /// Whether memory that is mapped at two addresses is coherent, or why not.
    aliases: Result<(), Reason>,
}

impl HipVirtualMemory {
    /// Checks the requirements of the group, and reads the granularity. The device is current.
    pub(crate) fn probe(context: &Arc<Context>, architecture: Option<&str>) -> Result<Self, Reason> {
        let calls = context.symbols().virtual_memory?;
        context.symbols().addresses?;
        Property::VIRTUAL_MEMORY.need(context)?;
        probe::check_virtual_memory(&context.driver.info, architecture)?;
        let failed = Reason::SelfTestFailed("hipMemGetAllocationGranularity did not answer");
        let granularity = granularity(context, &calls).map_err(|_| failed)?;
        limits::raise();
        let version = context.driver.info.version;
        Ok(Self {
            context: Arc::clone(context),
            calls,
            granularity,
            swallows_failures: version < REPORTS_FAILURES,
            keeps_references: probe::keeps_references(version),
            leaks_descriptors: probe::leaks_descriptors(version),
            aliases: probe::check_aliases(architecture),
        })
    }

    fn ledger(&self) -> &Ledger {
        &self.context.driver.ledger
    }

    /// Rejects zero, and values that are not multiples of the granularity.
    fn check_granularity(&self, call: &'static str, value: u64) -> Result<()> {
        if value == 0 || !value.is_multiple_of(self.granularity.minimum) {
            return Err(invalid(call));
        }
        Ok(())
    }

    /// Reserves addresses, at `wish` unless that is zero.
    fn reserve_at(&self, bytes: u64, wish: u64) -> Result<DevicePtr> {
        let call = "hipMemAddressReserve";
        let alignment = self.granularity.recommended;
        let mut at = 0;
        let reserve = self.calls.hipMemAddressReserve;
        // SAFETY: the driver writes one address.
        self.context.call(call, || unsafe { reserve(&raw mut at, bytes, alignment, wish, 0) })?;
        let start = device_ptr(call, at)?;
        self.ledger().reserve(start.address(), bytes);
        if start.address().is_multiple_of(alignment) {
            return Ok(start);
        }
        // SAFETY: 1. it was reserved just now, and is not used elsewhere.
        unsafe { self.release(start, bytes) }?;
        Err(Error::new(ErrorKind::OutOfMemory, call))
    }

    /// Converts the access rights to the driver's form. Rejects missing devices, because the driver may not.
    fn rights(&self, access: &[Access]) -> Result<Vec<MemAccessDesc>> {
        let call = "hipMemSetAccess";
        let count = self.context.driver.device_count()?;
        let right = |access: &Access| {
            let (Ordinal(ordinal), flags) = match *access {
                Access::None(on) => (on, MEM_ACCESS_NONE),
                Access::Read(on) => (on, MEM_ACCESS_READ),
                Access::ReadWrite(on) => (on, MEM_ACCESS_READ_WRITE),
                _ => return Err(Error::new(ErrorKind::Unsupported, call)),
            };
            let device = c_int::try_from(ordinal).ok().filter(|_| ordinal < count);
            let device = device.ok_or(Error::new(ErrorKind::NoSuchDevice, call))?;
            Ok(MemAccessDesc::new(device, flags))
        };
        access.iter().map(right).collect()
    }

    /// Sets the rights of a range of whole mappings. No work needs a right that this removes.
    fn set_rights(&self, at: u64, bytes: u64, rights: &[MemAccessDesc]) -> Result<()> {
        let set = self.calls.hipMemSetAccess;
        // SAFETY: the driver reads as many rights as there are. 2. The promise of the caller of `set_access`.
        self.context.call("hipMemSetAccess", || unsafe { set(at, bytes, rights.as_ptr(), rights.len()) })
    }

    /// Sets the rights of adjacent mappings, in one call if the driver accepts that. Returns the refused mapping.
    ///
    /// Versions that need mappings of one size accept several sizes in one call, if the reservation has no others.
    fn grant<'m>(
        &self,
        mappings: &'m [(u64, Mapping)],
        rights: &[MemAccessDesc],
    ) -> Result<(), (&'m (u64, Mapping), Error)> {
        let bytes = mappings.iter().map(|(_, mapping)| mapping.bytes).sum();
        let (first, _) = mappings[0];
        if self.set_rights(first, bytes, rights).is_ok() {
            return Ok(());
        }
        // Again for each, since the kernel's want of memory may have passed, and concerned one mapping of many.
        let again = |at, bytes| self.set_rights(at, bytes, rights).or_else(|_| self.set_rights(at, bytes, rights));
        mappings.iter().try_for_each(|one| again(one.0, one.1.bytes).map_err(|error| (one, error)))
    }

    /// The error of rights that the driver refused to a range that the ledger has as a mapping.
    ///
    /// The driver has one status for every failure. The caller was wrong only if another device cannot have access.
    /// Otherwise the kernel had no memory for its tables.
    fn refusal(&self, (at, mapping): &(u64, Mapping), error: Error, rights: &[MemAccessDesc]) -> Error {
        let (at, bytes) = (*at, mapping.bytes);
        if error.kind() != ErrorKind::InvalidValue {
            return error;
        }
        if self.swallows_failures && self.look(at, bytes) != Found::Exact {
            // Something else than this process has changed it, or the driver does not tell.
            self.ledger().end(at, Some(MappingState::Unknown));
            return error.with_kind(ErrorKind::OutOfMemory);
        }
        let own = [MemAccessDesc::new(self.context.device, MEM_ACCESS_READ_WRITE)];
        let is_full = rights == own || self.set_rights(at, bytes, &own).is_err();
        self.restore(at, mapping, &own);
        if is_full { error.with_kind(ErrorKind::OutOfMemory) } else { error }
    }

    /// Sets the rights again that a mapping had before a change, each in one call: the driver may refuse some of them.
    /// Those that cannot be restored stay set.
    fn restore(&self, at: u64, mapping: &Mapping, changed: &[MemAccessDesc]) {
        for right in mapping.before(changed) {
            let _ = self.set_rights(at, mapping.bytes, &[right]);
        }
    }

    /// Asks the driver what is mapped at an address.
    ///
    /// Before 7.14 no other call tells: a failed map or unmap reports success, and a refused right may have any cause.
    fn look(&self, at: u64, bytes: u64) -> Found {
        let ask = || match self.context.address_range(at) {
            Ok(range) if range == (at, bytes) => Found::Exact,
            Err(error) if error.status() == Some(NOT_FOUND) => Found::Nothing,
            _ => Found::Other,
        };
        // Again, since the driver may not tell at once.
        match ask() {
            Found::Other => ask(),
            found => found,
        }
    }
}

/// What the driver has at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    /// The mapping that was asked for.
    Exact,
    Nothing,
    /// Something else, or the driver does not tell.
    Other,
}

/// Returns the coarser of the driver's granularities, at least [`FLOOR`].
fn granularity(context: &Context, calls: &VirtualMemoryCalls) -> Result<Granularity> {
    let properties = MemAllocationProp::new(context.device, MEM_HANDLE_TYPE_NONE);
    let mut coarsest = FLOOR;
    for which in [MEM_GRANULARITY_MINIMUM, MEM_GRANULARITY_RECOMMENDED] {
        let mut bytes = 0;
        // SAFETY: the driver reads the properties and writes one size.
        let status = unsafe { (calls.hipMemGetAllocationGranularity)(&raw mut bytes, &raw const properties, which) };
        context.check("hipMemGetAllocationGranularity", status)?;
        coarsest = coarsest.max(bytes.next_power_of_two());
    }
    Ok(Granularity { minimum: coarsest, recommended: coarsest })
}

const fn invalid(call: &'static str) -> Error {
    Error::new(ErrorKind::InvalidValue, call)
}

/// The error of a create: the driver reports a lack of descriptors as a lack of memory.
fn explain(error: Error) -> Error {
    match error.status() {
        Some(_) if error.kind() == ErrorKind::OutOfMemory && limits::is_exhausted() => {
            error.with_kind(ErrorKind::Refused)
        }
        _ => error,
    }
}

impl VirtualMemory for HipVirtualMemory {
    fn granularity(&self) -> Granularity {
        self.granularity
    }

    /// Fabric handles are not used: HIP has none before 7.14, and those of 7.14 are untested.
    fn shares(&self, sharing: Sharing) -> Result<(), Reason> {
        match sharing {
            Sharing::Private | Sharing::FileDescriptor => Ok(()),
            _ => Err(Reason::NotImplemented),
        }
    }

    fn aliases(&self) -> Result<(), Reason> {
        self.aliases
    }

    fn frees_under_reservation(&self) -> Result<(), Reason> {
        probe::needs(probe::FREES_UNDER_RESERVATION, self.context.driver.info.version)
    }

    fn mixes_sizes(&self) -> Result<(), Reason> {
        probe::mixes_sizes(self.context.driver.info.version)
    }

    fn maps_without_wait(&self) -> Result<(), Reason> {
        probe::needs(REPORTS_FAILURES, self.context.driver.info.version)
    }

    fn reserve(&self, bytes: u64, wish: Option<DevicePtr>) -> Result<DevicePtr> {
        self.check_granularity("hipMemAddressReserve", bytes)?;
        match wish {
            // If the range is taken, some versions fail and others reserve another range.
            Some(wish) => self.reserve_at(bytes, wish.address()).or_else(|_| self.reserve_at(bytes, 0)),
            None => self.reserve_at(bytes, 0),
        }
    }

    unsafe fn release(&self, start: DevicePtr, bytes: u64) -> Result<()> {
        let call = "hipMemAddressFree";
        let start = start.address();
        self.ledger().begin_release(start, bytes).map_err(|kind| Error::new(kind, call))?;
        // SAFETY: 1. is the caller's promise, and the ledger agrees.
        let released = self.context.call(call, || unsafe { (self.calls.hipMemAddressFree)(start, bytes) });
        if released.is_err() {
            self.ledger().refuse_release(start, bytes);
        }
        released
    }

    fn create_backing(&self, bytes: u64, sharing: Sharing, _rdma: bool) -> Result<Backing> {
        let call = "hipMemCreate";
        self.check_granularity(call, bytes)?;
        let handles = match sharing {
            Sharing::Private => MEM_HANDLE_TYPE_NONE,
            Sharing::FileDescriptor if !self.leaks_descriptors || limits::may_leak() => DESCRIPTOR,
            Sharing::Fabric => return Err(Error::new(ErrorKind::NoFabric, call)),
            _ => return Err(Error::new(ErrorKind::Unsupported, call)),
        };
        let properties = MemAllocationProp::new(self.context.device, handles);
        let mut backing = 0;
        let create = self.calls.hipMemCreate;
        // SAFETY: the driver reads the properties and writes one handle.
        let created = self.context.call(call, || unsafe { create(&raw mut backing, bytes, &raw const properties, 0) });
        created.map_err(explain)?;
        if handles == DESCRIPTOR && self.leaks_descriptors {
            limits::note_leak();
        }
        Ok(Backing::from_raw(backing, bytes))
    }

    unsafe fn destroy_backing(&self, backing: Backing) -> Result<()> {
        // SAFETY: 1. is the caller's promise.
        self.context.call("hipMemRelease", || unsafe { (self.calls.hipMemRelease)(backing.raw()) })
    }

    unsafe fn map(&self, at: DevicePtr, backing: &Backing) -> Result<()> {
        let call = "hipMemMap";
        let (at, bytes, handle) = (at.address(), backing.bytes(), backing.raw());
        self.check_granularity(call, at)?;
        self.check_granularity(call, bytes)?;
        if !self.ledger().begin_map(at, bytes) {
            return Err(invalid(call));
        }
        let map = || {
            // SAFETY: 1. is the caller's promise; the range is reserved and free.
            let mapped = self.context.call(call, || unsafe { (self.calls.hipMemMap)(at, bytes, 0, handle, 0) });
            let found = match mapped {
                _ if self.swallows_failures => self.look(at, bytes),
                Ok(()) => Found::Exact,
                Err(_) => Found::Nothing,
            };
            if self.keeps_references && mapped.is_ok() && found == Found::Nothing {
                // Otherwise the memory would never be freed. The reference of the caller stays.
                // SAFETY: 1. is the caller's promise.
                let _ = self.context.call("hipMemRelease", || unsafe { (self.calls.hipMemRelease)(handle) });
            }
            (mapped, found)
        };
        // Again, since the kernel's want of memory may have passed.
        let answer = match map() {
            (_, Found::Nothing) => map(),
            answer => answer,
        };
        match answer {
            (mapped, Found::Nothing) => {
                self.ledger().end(at, None);
                // The arguments were checked, so it is the kernel that had no memory.
                let failed = mapped.err().unwrap_or(Error::new(ErrorKind::OutOfMemory, call));
                Err(if failed.kind() == ErrorKind::InvalidValue {
                    failed.with_kind(ErrorKind::OutOfMemory)
                } else {
                    failed
                })
            }
            (Ok(()), Found::Exact) => {
                self.ledger().end(at, Some(MappingState::Mapped));
                Ok(())
            }
            // The driver contradicts itself. `set_access` will fail, so that the caller unmaps the range. Nothing else is
            // mapped there before the driver says that it is free.
            _ => {
                self.ledger().end(at, Some(MappingState::Unknown));
                Ok(())
            }
        }
    }

    unsafe fn unmap(&self, at: DevicePtr, bytes: u64) -> Result<()> {
        let call = "hipMemUnmap";
        let at = at.address();
        let state = self.ledger().begin_unmap(at, bytes).ok_or(invalid(call))?;
        let found = if state == MappingState::Mapped { Found::Exact } else { self.look(at, bytes) };
        let (left, unmapped) = match (found, state) {
            (Found::Nothing, _) => (None, Ok(())),
            (Found::Exact, MappingState::Mapped | MappingState::Unknown) => {
                // SAFETY: 2. is the caller's promise; exactly this range is one mapping.
                let unmapped = self.context.call(call, || unsafe { (self.calls.hipMemUnmap)(at, bytes) });
                let is_gone = || self.look(at, bytes) == Found::Nothing;
                match unmapped {
                    Ok(()) if !self.swallows_failures || is_gone() => (None, Ok(())),
                    Ok(()) => (Some(MappingState::Ended), Err(Error::new(ErrorKind::Other, call))),
                    // An unmap of nothing can crash, so the next try asks first.
                    Err(_) if self.swallows_failures => (Some(MappingState::Unknown), unmapped),
                    Err(_) => (Some(state), unmapped),
                }
            }
            _ => (Some(state), Err(Error::new(ErrorKind::Other, call))),
        };
        self.ledger().end(at, left);
        unmapped
    }

    unsafe fn set_access(&self, at: DevicePtr, bytes: u64, access: &[Access]) -> Result<()> {
        let call = "hipMemSetAccess";
        let rights = self.rights(access)?;
        if self.ledger().is_unknown(at.address(), bytes) {
            // An unmap that the kernel refused has left the mapping and its rights.
            let kept = self.ledger().is_unknown_with(at.address(), bytes, &rights);
            if kept && self.look(at.address(), bytes) == Found::Exact {
                return Ok(());
            }
            // The caller was not wrong. It may map the backing elsewhere.
            return Err(Error::new(ErrorKind::OutOfMemory, call));
        }
        let mappings =
            self.ledger().mappings(at.address(), bytes).filter(|_| !rights.is_empty()).ok_or(invalid(call))?;
        let Err((refused, error)) = self.grant(&mappings, &rights) else {
            for (at, _) in &mappings {
                self.ledger().granted(*at, &rights);
            }
            return Ok(());
        };
        let error = self.refusal(refused, error, &rights);
        for (at, mapping) in &mappings {
            self.restore(*at, mapping, &rights);
        }
        Err(error)
    }

    unsafe fn export_backing(&self, backing: &Backing) -> Result<OwnedFd> {
        let call = "hipMemExportToShareableHandle";
        let mut descriptor: RawFd = -1;
        let place = (&raw mut descriptor).cast::<c_void>();
        let export = self.calls.hipMemExportToShareableHandle;
        // SAFETY: 1. is the caller's promise; for this kind of handle the driver writes a descriptor.
        self.context.call(call, || unsafe { export(place, backing.raw(), DESCRIPTOR, 0) })?;
        // SAFETY: the driver has opened it for this caller only.
        Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
    }

    fn import_backing(&self, fd: BorrowedFd<'_>, bytes: u64) -> Result<Backing> {
        let call = "hipMemImportFromShareableHandle";
        self.check_granularity(call, bytes)?;
        // By value, the driver reads descriptor 0 as a null pointer; a copy never has that number.
        let copy = fd.try_clone_to_owned().map_err(|_| Error::new(ErrorKind::Refused, call))?;
        // A map of more than the backing has fails without an error, and can spoil its reservation. Some kernels do not
        // tell the size.
        let found = fstat(&copy).ok().and_then(|found| u64::try_from(found.st_size).ok()).unwrap_or(0);
        if found != 0 && found < bytes {
            return Err(invalid(call));
        }
        let mut descriptor: RawFd = copy.as_raw_fd();
        let place = if self.context.driver.info.version >= DESCRIPTOR_BY_VALUE {
            ptr::without_provenance_mut(usize::try_from(descriptor).map_err(|_| invalid(call))?)
        } else {
            (&raw mut descriptor).cast::<c_void>()
        };
        let mut backing = 0;
        let import = self.calls.hipMemImportFromShareableHandle;
        // SAFETY: the descriptor is open, and is passed as this version requires; the driver writes one handle.
        self.context.call(call, || unsafe { import(&raw mut backing, place, DESCRIPTOR) })?;
        Ok(Backing::from_raw(backing, bytes))
    }

    unsafe fn export_fabric(&self, _: &Backing) -> Result<FabricHandle> {
        Err(Error::new(ErrorKind::NoFabric, "hipMemExportToShareableHandle"))
    }

    fn import_fabric(&self, _: &FabricHandle, _: u64) -> Result<Backing> {
        Err(Error::new(ErrorKind::NoFabric, "hipMemImportFromShareableHandle"))
    }
}
