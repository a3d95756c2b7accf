//! Symmetric memory of NVSHMEM: every rank has it, at the same offset.

mod abi;
mod library;

use std::ffi::c_void;

use cachette_hal::{DevicePtr, Ordinal};

use super::accept::{aligned, check_bytes, not_null};
use super::convert::{address, pointer, size};
use super::current::Current;
use super::{ALIGNMENT, AllocContext, Source, SourceError};
pub use abi::UniqueId;
pub use library::{NvshmemLibrary, NvshmemStatus};
use library::{Turn, one_at_a_time};

const NAME: &str = "NVSHMEM";

/// Symmetric memory on one NVIDIA device.
///
/// Making and freeing it is collective: every rank does it in the same order with the same sizes, and each waits for
/// the others. An allocator asks in an order that depends on its requests alone, so ranks that run the same program
/// agree.
///
/// The library serves one device a process. It makes the driver wait for each copy and fill in that device's context
/// (`CU_CTX_SYNC_MEMOPS`), from its initialisation on.
#[derive(Debug)]
#[doc(alias = "nvshmem_malloc")]
#[doc(alias = "nvshmem_free")]
pub struct Nvshmem {
    library: NvshmemLibrary,
    current: Current,
    device: Ordinal,
}

impl Nvshmem {
    /// Finds the library and initialises it for this process alone; see [`NvshmemLibrary::single`].
    pub fn single(device: Ordinal) -> Result<Self, SourceError> {
        NvshmemLibrary::find()?.single(device)
    }

    /// Finds the library, which somebody else has initialised; see [`NvshmemLibrary::adopt`].
    ///
    /// # Safety
    ///
    /// 1. It was initialised for `device`.
    pub unsafe fn adopt(device: Ordinal) -> Result<Self, SourceError> {
        // SAFETY: 1. is the caller's promise.
        unsafe { NvshmemLibrary::find()?.adopt(device) }
    }

    pub(crate) const fn new(library: NvshmemLibrary, current: Current, device: Ordinal) -> Self {
        Self { library, current, device }
    }

    /// The library.
    #[must_use]
    pub const fn library(&self) -> &NvshmemLibrary {
        &self.library
    }

    /// The device that it serves.
    #[must_use]
    pub const fn device(&self) -> Ordinal {
        self.device
    }

    /// This process among its peers, and their number.
    #[must_use]
    pub fn rank(&self) -> (u32, u32) {
        let _turn = one_at_a_time();
        // SAFETY: it reads the library's own state.
        let rank = unsafe { (self.library.calls.rank)() };
        // SAFETY: it reads the library's own state.
        let ranks = unsafe { (self.library.calls.ranks)() };
        (rank.unsigned_abs(), ranks.unsigned_abs())
    }

    /// Finalises the library, with all ranks at once.
    ///
    /// Dropping does not, for the library ends the process where it fails. It does nothing where somebody else has
    /// initialised the library too, who has yet to finalise it.
    ///
    /// # Safety
    ///
    /// 1. No memory of the library is in use, by whomever.
    /// 2. Whoever else has initialised it does not count on this source's turn: it was made by
    ///    [`single`](NvshmemLibrary::single) or [`join`](NvshmemLibrary::join), not adopted.
    pub unsafe fn close(self) -> Result<(), SourceError> {
        let turn = one_at_a_time();
        self.check_ready(&turn)?;
        let _entered = self.current.enter(self.device)?;
        // SAFETY: 1. and 2. are the caller's promises.
        unsafe { (self.library.calls.finalize)() };
        Ok(())
    }

    /// The library ends the process where it is asked for memory before it is ready.
    fn check_ready(&self, turn: &Turn) -> Result<(), SourceError> {
        if self.library.status_under(turn) == NvshmemStatus::Initialised {
            return Ok(());
        }
        Err(SourceError::other(
            "NVSHMEM was finalised by somebody else",
            "keep it initialised as long as its memory is used",
        ))
    }

    fn check_place(&self, place: &AllocContext) -> Result<(), SourceError> {
        if place.device == self.device {
            return Ok(());
        }
        let (asked, device) = (place.device, self.device);
        Err(SourceError::other(
            format!("NVSHMEM serves device {device} in this process, not device {asked}"),
            "use it on its own device alone",
        ))
    }

    /// Makes memory that begins where blocks may; the device is current.
    fn make(&self, bytes: u64) -> *mut c_void {
        let calls = &self.library.calls;
        // SAFETY: the library is initialised, and this thread has the turn.
        let at = unsafe { (calls.allocate)(size(bytes)) };
        if address(at).is_multiple_of(ALIGNMENT) {
            return at;
        }
        // SAFETY: it was made above, and nobody knows it.
        unsafe { (calls.free)(at) };
        // SAFETY: the library is initialised, and this thread has the turn.
        unsafe { (calls.allocate_aligned)(size(ALIGNMENT), size(bytes)) }
    }
}

// SAFETY: 1. 2. 3. the library documents them of `nvshmem_malloc` and `nvshmem_free`; what fails before a call changes nothing.
unsafe impl Source for Nvshmem {
    fn name(&self) -> &str {
        NAME
    }

    unsafe fn allocate(&self, bytes: u64, place: &AllocContext) -> Result<DevicePtr, SourceError> {
        check_bytes(NAME, bytes)?;
        self.check_place(place)?;
        let turn = one_at_a_time();
        self.check_ready(&turn)?;
        let _entered = self.current.enter(self.device)?;
        let at = self.make(bytes);
        let ptr = not_null(NAME, address(at), bytes, place)?;
        aligned(NAME, ptr, ALIGNMENT, || {
            // SAFETY: it was made above, and nobody knows it.
            unsafe { (self.library.calls.free)(at) };
            Ok(())
        })
    }

    unsafe fn free(&self, ptr: DevicePtr, _bytes: u64, place: &AllocContext) -> Result<(), SourceError> {
        self.check_place(place)?;
        let turn = one_at_a_time();
        self.check_ready(&turn)?;
        let _entered = self.current.enter(self.device)?;
        // SAFETY: the caller's promises, and this thread has the turn.
        unsafe { (self.library.calls.free)(pointer(ptr)) };
        Ok(())
    }
}
