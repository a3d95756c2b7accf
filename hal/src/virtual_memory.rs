//! Addresses and physical memory apart.

use std::fmt::Debug;
use std::os::fd::{BorrowedFd, OwnedFd};

use crate::{Backing, DevicePtr, Ordinal, Result};

/// Sizes that backings, reservations and their addresses are multiples of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Granularity {
    /// Smallest legal; a power of two.
    pub minimum: u64,
    /// Best for speed; a multiple of `minimum`.
    pub recommended: u64,
}

/// Who may touch a mapped range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Access {
    /// This device may not.
    None(Ordinal),
    /// This device reads.
    Read(Ordinal),
    /// This device reads and writes.
    ReadWrite(Ordinal),
}

/// How backing may leave the process; fixed when it is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Sharing {
    /// It may not.
    Private,
    /// As a file descriptor.
    FileDescriptor,
}

/// Addresses and physical memory apart.
///
/// The life of a mapping: [`reserve`](Self::reserve) addresses,
/// [`create_backing`](Self::create_backing), [`map`](Self::map), [`set_access`](Self::set_access); then
/// [`unmap`](Self::unmap), [`destroy_backing`](Self::destroy_backing), [`release`](Self::release). A
/// backing may be mapped at several addresses at once: they are aliases of the same bytes, coherent in
/// stream order.
pub trait VirtualMemory: Debug + Send + Sync {
    /// What sizes and addresses here are multiples of; no driver call.
    fn granularity(&self) -> Granularity;

    /// Reserves addresses, aligned to the recommended granularity; `wish` is only a wish.
    #[doc(alias = "cuMemAddressReserve")]
    #[doc(alias = "hipMemAddressReserve")]
    fn reserve(&self, bytes: u64, wish: Option<DevicePtr>) -> Result<DevicePtr>;

    /// Releases a whole reservation.
    ///
    /// [`ErrorKind::InvalidValue`](crate::ErrorKind::InvalidValue) while anything is mapped in it.
    ///
    /// # Safety
    ///
    /// Promise 1; `start` and `bytes` are those of one [`reserve`](Self::reserve).
    #[doc(alias = "cuMemAddressFree")]
    #[doc(alias = "hipMemAddressFree")]
    unsafe fn release(&self, start: DevicePtr, bytes: u64) -> Result<()>;

    /// Makes physical memory of this device.
    #[doc(alias = "cuMemCreate")]
    #[doc(alias = "hipMemCreate")]
    fn create_backing(&self, bytes: u64, sharing: Sharing) -> Result<Backing>;

    /// Gives the handle back; the memory itself goes with its last mapping.
    ///
    /// # Safety
    ///
    /// Promise 1.
    #[doc(alias = "cuMemRelease")]
    #[doc(alias = "hipMemRelease")]
    unsafe fn destroy_backing(&self, backing: Backing) -> Result<()>;

    /// Maps a backing whole. Nobody may touch it before [`set_access`](Self::set_access).
    ///
    /// [`ErrorKind::InvalidValue`](crate::ErrorKind::InvalidValue) where the range is not reserved or
    /// something is mapped already; a driver that reports this only from `set_access` reports it there.
    ///
    /// # Safety
    ///
    /// Promise 1 for `backing`.
    #[doc(alias = "cuMemMap")]
    #[doc(alias = "hipMemMap")]
    unsafe fn map(&self, at: DevicePtr, backing: &Backing) -> Result<()>;

    /// Undoes one [`map`](Self::map), whole; does not wait for work.
    ///
    /// [`ErrorKind::InvalidValue`](crate::ErrorKind::InvalidValue) where exactly this range is not one mapping.
    ///
    /// # Safety
    ///
    /// Promise 2.
    #[doc(alias = "cuMemUnmap")]
    #[doc(alias = "hipMemUnmap")]
    unsafe fn unmap(&self, at: DevicePtr, bytes: u64) -> Result<()>;

    /// Sets who may touch a range made of one or more whole, adjacent mappings.
    ///
    /// # Safety
    ///
    /// Promise 2 for a right that is taken away.
    #[doc(alias = "cuMemSetAccess")]
    #[doc(alias = "hipMemSetAccess")]
    unsafe fn set_access(&self, at: DevicePtr, bytes: u64, access: &[Access]) -> Result<()>;

    /// Gives a backing made with [`Sharing::FileDescriptor`] a descriptor for another process.
    ///
    /// # Safety
    ///
    /// Promise 1.
    #[doc(alias = "cuMemExportToShareableHandle")]
    #[doc(alias = "hipMemExportToShareableHandle")]
    unsafe fn export_backing(&self, backing: &Backing) -> Result<OwnedFd>;

    /// Makes a backing of `bytes` bytes from an exported descriptor; the descriptor stays the caller's.
    ///
    /// [`ErrorKind::InvalidValue`](crate::ErrorKind::InvalidValue) where the descriptor is something else.
    #[doc(alias = "cuMemImportFromShareableHandle")]
    #[doc(alias = "hipMemImportFromShareableHandle")]
    fn import_backing(&self, fd: BorrowedFd<'_>, bytes: u64) -> Result<Backing>;
}

const _: Option<&dyn VirtualMemory> = None;
