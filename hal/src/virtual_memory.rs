//! Addresses and physical memory apart.

use std::fmt::{self, Debug};
use std::os::fd::{BorrowedFd, OwnedFd};

use crate::{Backing, DevicePtr, Ordinal, Reason, Result};

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
    /// As a file descriptor, to another process of this host.
    FileDescriptor,
    /// As a [`FabricHandle`], to another process on any host of the same fabric.
    Fabric,
}

impl Sharing {
    /// Every kind, in order of declaration.
    pub const ALL: [Self; 3] = [Self::Private, Self::FileDescriptor, Self::Fabric];

    /// The name that reports use.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Private => "private backing",
            Self::FileDescriptor => "file descriptors",
            Self::Fabric => "fabric handles",
        }
    }
}

impl fmt::Display for Sharing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A backing's name in another process of the same fabric; its bytes mean something to the driver alone.
///
/// It is good while the backing or a mapping of it lives, and is no secret: who knows it and is on the
/// fabric may import it.
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

/// Addresses and physical memory apart.
///
/// The life of a mapping: [`reserve`](Self::reserve) addresses,
/// [`create_backing`](Self::create_backing), [`map`](Self::map), [`set_access`](Self::set_access); then
/// [`unmap`](Self::unmap), [`destroy_backing`](Self::destroy_backing), [`release`](Self::release). A
/// backing may be mapped at several addresses at once: they are aliases of the same bytes, coherent in
/// stream order.
///
/// No call here waits for queued work: whoever gives something back knows that nothing uses it.
pub trait VirtualMemory: Debug + Send + Sync {
    /// What sizes and addresses here are multiples of; no driver call.
    fn granularity(&self) -> Granularity;

    /// Whether backing may leave the process in this way, or why it may not; no driver call.
    ///
    /// [`Sharing::Private`] is always there. A fabric that the device has may still be out of this
    /// process's reach: then [`create_backing`](Self::create_backing) says so.
    fn shares(&self, sharing: Sharing) -> Result<(), Reason>;

    /// Whether a backing that is mapped at several addresses shows the same bytes at each, in stream order, or
    /// why not; no driver call.
    ///
    /// Where it does not, memory must be unmapped at one place before it is used at another.
    fn aliases(&self) -> Result<(), Reason>;

    /// Whether memory that is unmapped and destroyed comes free while its addresses stay reserved, or why not; no
    /// driver call.
    ///
    /// Where it does not, the reservation must be released to give the memory back, and made anew.
    fn frees_under_reservation(&self) -> Result<(), Reason>;

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
    ///
    /// For a fabric that is not there, or that this process may not use,
    /// [`ErrorKind::NoFabric`](crate::ErrorKind::NoFabric); for another kind of sharing that is not there,
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported).
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
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported), from here or from `set_access`, where the backing
    /// is mapped elsewhere and the driver will not have it at a second address now, whatever
    /// [`aliases`](Self::aliases) says in general. The way is clear once it is unmapped there.
    ///
    /// # Safety
    ///
    /// Promise 1 for `backing`.
    #[doc(alias = "cuMemMap")]
    #[doc(alias = "hipMemMap")]
    unsafe fn map(&self, at: DevicePtr, backing: &Backing) -> Result<()>;

    /// Undoes one [`map`](Self::map), whole.
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

    /// Names a backing made with [`Sharing::Fabric`] for another process of the fabric.
    ///
    /// # Safety
    ///
    /// Promise 1.
    #[doc(alias = "cuMemExportToShareableHandle")]
    unsafe fn export_fabric(&self, backing: &Backing) -> Result<FabricHandle>;

    /// Makes a backing of `bytes` bytes from an exported name.
    ///
    /// [`ErrorKind::InvalidValue`](crate::ErrorKind::InvalidValue) where nothing has this name.
    #[doc(alias = "cuMemImportFromShareableHandle")]
    fn import_fabric(&self, handle: &FabricHandle, bytes: u64) -> Result<Backing>;
}

const _: Option<&dyn VirtualMemory> = None;
