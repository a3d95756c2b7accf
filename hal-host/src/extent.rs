//! One piece of device memory, from its allocation to its free.

use std::ffi::CStr;
use std::sync::{Arc, RwLock, RwLockWriteGuard};

use cachette_hal::ErrorKind;

use crate::addresses::Addresses;
use crate::checks::write;
use crate::mapping::{Memory, Region, Writes, kind_of, page_bytes};
use crate::physical::{Charge, Physical};
use crate::space::Space;

/// The name of memory with a token in the lists of open files.
pub(crate) const DIRECT: &CStr = c"cachette-memory";

/// One piece of device memory: whole pages, freed when dropped.
#[derive(Debug)]
pub(crate) struct Extent {
    pub(crate) start: u64,
    pub(crate) bytes: u64,
    alignment: u64,
    /// `None` if memory is phantom.
    pub(crate) memory: Option<Memory>,
    /// `None` if memory is phantom.
    _region: Option<Region>,
    /// `None` if the memory is accounted for in another process.
    _charge: Option<Charge>,
}

impl Extent {
    /// Allocates memory of a device, at an address that is a multiple of `alignment`.
    ///
    /// Returns with the lock held: the caller enters the range before another thread can see the address.
    pub(crate) fn take<'a>(
        physical: &Arc<Physical>,
        bytes: u64,
        alignment: u64,
        space: &'a RwLock<Space>,
        phantom: bool,
    ) -> Result<(Self, RwLockWriteGuard<'a, Space>), ErrorKind> {
        let bytes = bytes.max(1).checked_next_multiple_of(page_bytes()).ok_or(ErrorKind::OutOfMemory)?;
        let charge = physical.take(bytes).ok_or(ErrorKind::OutOfMemory)?;
        let alignment = alignment.max(page_bytes());
        let memory = (!phantom).then(|| Memory::create(DIRECT, bytes)).transpose().map_err(kind_of)?;
        let mut space = write(space);
        let (start, region) = space.take(bytes, alignment, None).map_err(kind_of)?;
        if let (Some(region), Some(memory)) = (&region, &memory) {
            region.place(start, bytes, memory, Writes::Shared).map_err(kind_of)?;
        }
        let extent = Self { start, bytes, alignment, memory, _region: region, _charge: Some(charge) };
        Ok((extent, space))
    }

    /// Maps memory of another process, which accounts for it.
    pub(crate) fn open(memory: Memory, bytes: u64, writes: Writes) -> Result<Self, ErrorKind> {
        let alignment = page_bytes();
        let region = Region::of(&memory, bytes, alignment, writes).map_err(kind_of)?;
        Ok(Self { start: region.start(), bytes, alignment, memory: Some(memory), _region: Some(region), _charge: None })
    }

    /// Frees phantom addresses.
    pub(crate) fn give_back(&self, addresses: &mut Addresses) {
        addresses.give_back(self.start, self.bytes, self.alignment);
    }
}
