//! Page-locked host memory.

use std::ptr::NonNull;

use cachette_hal::{Call, DevicePtr, ErrorKind, HostMemory, Result};

use crate::checks::{check, error};
use crate::defect::Defect;
use crate::device::{HostDevice, device_ptr};
use crate::mapping::{Region, kind_of, page_bytes, pointer};
use crate::space::{Kind, Range};

impl HostDevice {
    /// Removes the range at `ptr`, if it belongs to this device and is `wanted`.
    fn remove_host(&self, call: Call, ptr: NonNull<u8>, wanted: impl FnOnce(&Range) -> bool) -> Result<Range> {
        let mut space = self.machine().write_space();
        space.remove(address(ptr), self.index, wanted).ok_or(error(call, ErrorKind::InvalidValue))
    }
}

impl HostMemory for HostDevice {
    fn allocate_pinned(&self, bytes: usize) -> Result<NonNull<u8>> {
        let call = self.enter(Call::AllocatePinned)?;
        let bytes = bytes as u64;
        self.check_size(call, bytes)?;
        let pages = bytes.max(1).checked_next_multiple_of(page_bytes());
        let pages = pages.ok_or_else(|| self.no_memory(call, ErrorKind::OutOfMemory))?;
        let region = Region::anonymous(pages).map_err(|error| self.no_memory(call, kind_of(error)))?;
        let start = region.start();
        let range = Range { bytes, owner: self.index, kind: Kind::Pinned { _region: region } };
        self.machine().write_space().ranges.insert(start, range);
        NonNull::new(pointer(start)).ok_or(error(call, ErrorKind::Other))
    }

    unsafe fn free_pinned(&self, ptr: NonNull<u8>) -> Result<()> {
        let call = self.enter(Call::FreePinned)?;
        let pinned = |range: &Range| matches!(range.kind, Kind::Pinned { .. });
        check(
            self.machine().read_space().ranges.get(&address(ptr)).is_some_and(pinned),
            call,
            ErrorKind::InvalidValue,
        )?;
        self.machine().wait_idle(call, self.index)?;
        self.remove_host(call, ptr, pinned).map(drop)
    }

    unsafe fn register(&self, ptr: NonNull<u8>, bytes: usize) -> Result<()> {
        let call = self.enter(Call::Register)?;
        let bytes = bytes as u64;
        self.check_size(call, bytes)?;
        let mut space = self.machine().write_space();
        let is_free = address(ptr).checked_add(bytes).is_some() && !space.overlaps(address(ptr), bytes);
        check(is_free, call, ErrorKind::InvalidValue)?;
        space.ranges.insert(address(ptr), Range { bytes, owner: self.index, kind: Kind::Registered });
        Ok(())
    }

    unsafe fn unregister(&self, ptr: NonNull<u8>) -> Result<()> {
        let call = self.enter(Call::Unregister)?;
        let registered = |range: &Range| matches!(range.kind, Kind::Registered);
        self.remove_host(call, ptr, registered).map(drop)
    }

    fn device_address(&self, ptr: NonNull<u8>) -> Result<DevicePtr> {
        let call = self.enter(Call::DeviceAddress)?;
        let locked = |range: &Range| matches!(range.kind, Kind::Pinned { .. } | Kind::Registered);
        let known = self.machine().read_space().containing(address(ptr)).is_some_and(|(_, range)| locked(range));
        check(known || self.lies(Defect::DeviceAddressOfAnything), call, ErrorKind::InvalidValue)?;
        device_ptr(call, address(ptr))
    }
}

/// Converts a host pointer to a key of the table. Host and device use one address for page-locked memory.
fn address(ptr: NonNull<u8>) -> u64 {
    ptr.as_ptr().expose_provenance() as u64
}
