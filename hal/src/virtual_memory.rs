//! Virtual memory: addresses and physical memory are separate.

use std::fmt::{self, Debug};
use std::os::fd::{BorrowedFd, OwnedFd};

use crate::enum_with_text::enum_with_text;
use crate::{Backing, DevicePtr, Ordinal, Reason, Result};

/// Backings, reservations and their addresses are multiples of these sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Granularity {
    /// The smallest legal size; a power of two.
    pub minimum: u64,
    /// The fastest size; a multiple of `minimum`.
    pub recommended: u64,
}

/// The right of one device to access a mapped range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Access {
    /// No access for this device.
    None(Ordinal),
    /// This device may read.
    Read(Ordinal),
    /// This device may read and write.
    ReadWrite(Ordinal),
}

enum_with_text! {
    /// How a backing can be exported; fixed when it is created.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Sharing {
        /// Not at all.
        Private = "private backing",
        /// As a file descriptor, to another process of this host.
        FileDescriptor = "file descriptors",
        /// As a [`FabricHandle`], to another process on any host of the same fabric.
        Fabric = "fabric handles",
    }
    /// The name that reports use.
    name
}

impl fmt::Display for Sharing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A backing's name in another process of the same fabric; its bytes are opaque.
///
/// It is valid while the backing or a mapping of it lives. It is not a secret: every process of the fabric that has it
/// can import the backing.
#[doc(alias = "CUmemFabricHandle")]
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct FabricHandle(pub [u8; 64]);

impl Debug for FabricHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FabricHandle(")?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str(")")
    }
}

/// Virtual memory: addresses and physical memory are separate.
///
/// The life of a mapping: [`reserve`](Self::reserve) addresses,
/// [`create_backing`](Self::create_backing), [`map`](Self::map), [`set_access`](Self::set_access); then
/// [`unmap`](Self::unmap), [`destroy_backing`](Self::destroy_backing), [`release`](Self::release). A
/// backing may be mapped at several addresses at once: they are aliases of the same bytes, coherent in
/// stream order.
///
/// No call here waits for queued work, except as [`maps_without_wait`](VirtualMemory::maps_without_wait) says. The caller
/// promises that no work uses what is released.
pub trait VirtualMemory: Debug + Send + Sync {
    /// The granularity of sizes and addresses, without a driver call.
    fn granularity(&self) -> Granularity;

    /// Returns whether a backing can be exported in this way, or why not. Makes no driver call.
    ///
    /// [`Sharing::Private`] always succeeds. Even if the device has a fabric, this process may have no access to it:
    /// then [`create_backing`](Self::create_backing) fails.
    fn shares(&self, sharing: Sharing) -> Result<(), Reason>;

    /// Returns whether a backing that is mapped at several addresses shows the same bytes at each, in stream order, or
    /// why not. Makes no driver call.
    ///
    /// If not, memory must be unmapped at one address before it is used at another.
    fn aliases(&self) -> Result<(), Reason>;

    /// Returns whether memory that is unmapped and destroyed becomes free while its addresses stay reserved, or why
    /// not. Makes no driver call.
    ///
    /// If not, the reservation must be released and made again before the memory becomes free.
    fn frees_under_reservation(&self) -> Result<(), Reason>;

    /// Returns whether mappings of different sizes can share a reservation, or why not. Makes no driver call.
    ///
    /// If not, all mappings of a reservation must have one size, and none may be added after a map failed there.
    /// Otherwise [`set_access`](Self::set_access) may fail.
    fn mixes_sizes(&self) -> Result<(), Reason>;

    /// Returns whether [`map`](Self::map) and [`unmap`](Self::unmap) return without a wait for work of the default
    /// stream, or why not. Makes no driver call.
    ///
    /// If not, they wait for all work of that stream, and of the streams that it waits for.
    fn maps_without_wait(&self) -> Result<(), Reason>;

    /// Reserves addresses, aligned to the recommended granularity; `wish` is a hint.
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

    /// Creates physical memory of this device.
    ///
    /// With `rdma`, other devices such as network cards can access the memory directly, if the device supports that. A
    /// backend that finds a network card creates all memory so.
    ///
    /// [`ErrorKind::NoFabric`](crate::ErrorKind::NoFabric) if there is no fabric, or this process may not use it.
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if another kind of sharing is missing.
    #[doc(alias = "cuMemCreate")]
    #[doc(alias = "hipMemCreate")]
    fn create_backing(&self, bytes: u64, sharing: Sharing, rdma: bool) -> Result<Backing>;

    /// Destroys the handle; the memory is freed with its last mapping.
    ///
    /// # Safety
    ///
    /// Promise 1.
    #[doc(alias = "cuMemRelease")]
    #[doc(alias = "hipMemRelease")]
    unsafe fn destroy_backing(&self, backing: Backing) -> Result<()>;

    /// Maps a whole backing. No device may access it before [`set_access`](Self::set_access).
    ///
    /// [`ErrorKind::InvalidValue`](crate::ErrorKind::InvalidValue) if the range is not reserved or has a mapping. Some
    /// drivers report this only from `set_access`. After a failure here nothing is mapped.
    ///
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported), from here or from `set_access`, if the backing is
    /// mapped elsewhere and the driver refuses a second address now. This can happen even if
    /// [`aliases`](Self::aliases) succeeds. The call succeeds once the backing is unmapped there.
    ///
    /// # Safety
    ///
    /// Promise 1 for `backing`.
    #[doc(alias = "cuMemMap")]
    #[doc(alias = "hipMemMap")]
    unsafe fn map(&self, at: DevicePtr, backing: &Backing) -> Result<()>;

    /// Removes one whole mapping.
    ///
    /// [`ErrorKind::InvalidValue`](crate::ErrorKind::InvalidValue) unless the range is exactly one mapping.
    ///
    /// # Safety
    ///
    /// Promise 2.
    #[doc(alias = "cuMemUnmap")]
    #[doc(alias = "hipMemUnmap")]
    unsafe fn unmap(&self, at: DevicePtr, bytes: u64) -> Result<()>;

    /// Sets the access rights of a range that consists of whole, adjacent mappings.
    ///
    /// [`ErrorKind::OutOfMemory`](crate::ErrorKind::OutOfMemory) if the driver has no memory for its tables. After a
    /// failure the mappings stay, with their previous rights, and must be unmapped.
    ///
    /// # Safety
    ///
    /// Promise 2 for every right that is removed.
    #[doc(alias = "cuMemSetAccess")]
    #[doc(alias = "hipMemSetAccess")]
    unsafe fn set_access(&self, at: DevicePtr, bytes: u64, access: &[Access]) -> Result<()>;

    /// Exports a backing created with [`Sharing::FileDescriptor`] as a descriptor for another process.
    ///
    /// # Safety
    ///
    /// Promise 1.
    #[doc(alias = "cuMemExportToShareableHandle")]
    #[doc(alias = "hipMemExportToShareableHandle")]
    unsafe fn export_backing(&self, backing: &Backing) -> Result<OwnedFd>;

    /// Imports a backing of `bytes` bytes from an exported descriptor; the caller keeps the descriptor.
    ///
    /// [`ErrorKind::InvalidValue`](crate::ErrorKind::InvalidValue) if the descriptor does not name a backing.
    #[doc(alias = "cuMemImportFromShareableHandle")]
    #[doc(alias = "hipMemImportFromShareableHandle")]
    fn import_backing(&self, fd: BorrowedFd<'_>, bytes: u64) -> Result<Backing>;

    /// Exports a backing created with [`Sharing::Fabric`] as a handle for another process of the fabric.
    ///
    /// # Safety
    ///
    /// Promise 1.
    #[doc(alias = "cuMemExportToShareableHandle")]
    unsafe fn export_fabric(&self, backing: &Backing) -> Result<FabricHandle>;

    /// Imports a backing of `bytes` bytes from an exported handle.
    ///
    /// [`ErrorKind::InvalidValue`](crate::ErrorKind::InvalidValue) if the handle names no backing.
    #[doc(alias = "cuMemImportFromShareableHandle")]
    fn import_fabric(&self, handle: &FabricHandle, bytes: u64) -> Result<Backing>;
}
