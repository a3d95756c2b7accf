//! Regions of the process's address space, and the files behind them.
//!
//! With [`touch`](crate::touch) and [`fork`](crate::fork) this is the only code of the crate with `unsafe`.

use std::ffi::{CStr, c_void};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr;
use std::sync::Once;

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};
use rustix::process::{Resource, Rlimit};

use cachette_hal::ErrorKind;

pub(crate) fn page_bytes() -> u64 {
    rustix::param::page_size() as u64
}

/// Converts `bytes` to a length of host memory. A size that does not fit becomes one that cannot be allocated.
pub(crate) fn host_len(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

pub(crate) fn kind_of(error: Errno) -> ErrorKind {
    match error {
        Errno::NOMEM | Errno::NOSPC | Errno::FBIG | Errno::INVAL | Errno::OVERFLOW => ErrorKind::OutOfMemory,
        _ => ErrorKind::Refused,
    }
}

/// A memory file, whose pages can be mapped at several addresses.
#[derive(Debug)]
pub(crate) struct Memory {
    descriptor: OwnedFd,
    /// A number that is unique among the live memory of the host.
    pub(crate) inode: u64,
}

impl Memory {
    /// Creates `bytes` bytes of zeroed memory; other processes recognise it by `name`.
    ///
    /// The size is sealed: an access to a mapping of shrunk memory would kill the process.
    pub(crate) fn create(name: &CStr, bytes: u64) -> Result<Self, Errno> {
        raise_descriptor_limit();
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let descriptor = rustix::fs::memfd_create(name, flags)?;
        rustix::fs::ftruncate(&descriptor, bytes)?;
        rustix::fs::fcntl_add_seals(&descriptor, SealFlags::SHRINK | SealFlags::GROW)?;
        let inode = rustix::fs::fstat(&descriptor)?.st_ino;
        Ok(Self { descriptor, inode })
    }

    /// Adopts a descriptor of another process's memory. Returns `None` unless [`create`](Self::create) made it with
    /// this name and exactly this size.
    pub(crate) fn adopt(descriptor: OwnedFd, name: &CStr, bytes: u64) -> Option<Self> {
        let link = format!("/proc/self/fd/{}", raw(descriptor.as_fd()));
        let target = rustix::fs::readlink(link, Vec::new()).ok()?;
        let wanted = [b"/memfd:".as_slice(), name.to_bytes(), b" (deleted)"].concat();
        let status = rustix::fs::fstat(&descriptor).ok()?;
        let seals = rustix::fs::fcntl_get_seals(&descriptor).ok()?;
        let ours = target.to_bytes() == wanted
            && u64::try_from(status.st_size) == Ok(bytes)
            && seals.contains(SealFlags::SHRINK);
        ours.then_some(Self { descriptor, inode: status.st_ino })
    }

    pub(crate) fn descriptor(&self) -> i32 {
        raw(self.descriptor.as_fd())
    }

    pub(crate) fn duplicate(&self) -> Result<OwnedFd, Errno> {
        rustix::io::fcntl_dupfd_cloexec(&self.descriptor, 0)
    }
}

fn raw(descriptor: BorrowedFd<'_>) -> i32 {
    std::os::fd::AsRawFd::as_raw_fd(&descriptor)
}

/// Raises the process's limit on descriptors, because every allocation has one.
fn raise_descriptor_limit() {
    static RAISED: Once = Once::new();
    RAISED.call_once(|| {
        let limit = rustix::process::getrlimit(Resource::Nofile);
        let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
        // If it cannot be raised, exhaustion is reported later.
        let _ = rustix::process::setrlimit(Resource::Nofile, raised);
    });
}

/// Whether writes through a mapping reach the memory itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writes {
    /// They do, and are visible in every mapping.
    Shared,
    /// They stay in the mapping.
    Private,
}

impl Writes {
    const fn flags(self) -> MapFlags {
        match self {
            Self::Shared => MapFlags::SHARED,
            Self::Private => MapFlags::PRIVATE,
        }
    }
}

/// Addresses of this process that only this value uses. A drop unmaps them.
#[derive(Debug)]
pub(crate) struct Region {
    start: u64,
    bytes: u64,
}

impl Region {
    /// Reserves addresses without memory, at `wish` if those addresses are free.
    ///
    /// `alignment` is a power of two, and `bytes` a multiple of the page size; an empty region is an error.
    pub(crate) fn reserve(bytes: u64, alignment: u64, wish: Option<u64>) -> Result<Self, Errno> {
        if bytes == 0 {
            return Err(Errno::INVAL);
        }
        if let Some(region) = wish.and_then(|at| Self::reserve_at(at, bytes, alignment)) {
            return Ok(region);
        }
        if alignment <= page_bytes() {
            return Self::anywhere(bytes, ProtFlags::empty());
        }
        let whole = Self::anywhere(bytes.checked_add(alignment).ok_or(Errno::NOMEM)?, ProtFlags::empty())?;
        Ok(whole.cut(bytes, alignment))
    }

    pub(crate) fn anonymous(bytes: u64) -> Result<Self, Errno> {
        Self::anywhere(bytes, ProtFlags::READ | ProtFlags::WRITE)
    }

    pub(crate) fn of(memory: &Memory, bytes: u64, alignment: u64, writes: Writes) -> Result<Self, Errno> {
        let region = Self::reserve(bytes, alignment, None)?;
        region.place(region.start, bytes, memory, writes)?;
        Ok(region)
    }

    pub(crate) const fn start(&self) -> u64 {
        self.start
    }

    /// Maps the first `bytes` bytes of `memory` at the address `at` of this region.
    pub(crate) fn place(&self, at: u64, bytes: u64, memory: &Memory, writes: Writes) -> Result<(), Errno> {
        let address = self.inside(at, bytes)?;
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        let flags = writes.flags() | MapFlags::FIXED | MapFlags::NORESERVE;
        // SAFETY: the replaced range lies inside this region, which no other code uses.
        unsafe { mmap(address, host_len(bytes), rights, flags, &memory.descriptor, 0) }?;
        Ok(())
    }

    /// Removes the memory at the address `at` of this region; the addresses stay reserved.
    pub(crate) fn clear(&self, at: u64, bytes: u64) -> Result<(), Errno> {
        self.replace(at, bytes, ProtFlags::empty())
    }

    /// Maps new zeroed memory at the address `at` of this region.
    pub(crate) fn renew(&self, at: u64, bytes: u64) -> Result<(), Errno> {
        self.replace(at, bytes, ProtFlags::READ | ProtFlags::WRITE)
    }

    fn replace(&self, at: u64, bytes: u64, rights: ProtFlags) -> Result<(), Errno> {
        let address = self.inside(at, bytes)?;
        let flags = MapFlags::PRIVATE | MapFlags::FIXED | MapFlags::NORESERVE;
        // SAFETY: what is replaced lies inside this region, which is used only here.
        unsafe { mmap_anonymous(address, host_len(bytes), rights, flags) }?;
        Ok(())
    }

    /// Returns the pointer to `at`, if all of `bytes` lies in this region.
    fn inside(&self, at: u64, bytes: u64) -> Result<*mut c_void, Errno> {
        let end = at.checked_add(bytes).ok_or(Errno::FAULT)?;
        if at < self.start || end > self.start + self.bytes {
            return Err(Errno::FAULT);
        }
        Ok(pointer(at))
    }

    fn anywhere(bytes: u64, rights: ProtFlags) -> Result<Self, Errno> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: without a fixed address no existing mapping is replaced.
        let start = unsafe { mmap_anonymous(ptr::null_mut(), host_len(bytes), rights, flags) }?;
        let start = start.expose_provenance() as u64;
        Ok(Self { start, bytes })
    }

    /// Reserves exactly at `at`; `None` if that is not possible.
    fn reserve_at(at: u64, bytes: u64, alignment: u64) -> Option<Self> {
        if at == 0 || !at.is_multiple_of(alignment) {
            return None;
        }
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED_NOREPLACE;
        let (address, none) = (pointer(at), ProtFlags::empty());
        // SAFETY: with this flag no existing mapping is replaced.
        let start = unsafe { mmap_anonymous(address, host_len(bytes), none, flags) }.ok()?;
        let start = start.expose_provenance() as u64;
        // A kernel without the flag treats the address as a hint.
        let region = Self { start, bytes };
        (start == at).then_some(region)
    }

    /// Keeps `bytes` bytes aligned to `alignment` and unmaps the rest before and after.
    fn cut(self, bytes: u64, alignment: u64) -> Self {
        let (start, end) = (self.start, self.start + self.bytes);
        let kept = start.next_multiple_of(alignment);
        let _ = std::mem::ManuallyDrop::new(self);
        for (from, to) in [(start, kept), (kept + bytes, end)] {
            if from < to {
                drop(Self { start: from, bytes: to - from });
            }
        }
        Self { start: kept, bytes }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: this value owns the region, and it is not used after its drop.
        let unmapped = unsafe { munmap(pointer(self.start), host_len(self.bytes)) };
        debug_assert!(unmapped.is_ok(), "a region could not be unmapped");
    }
}

/// An address of host memory as a pointer.
pub(crate) fn pointer<T>(address: u64) -> *mut T {
    ptr::with_exposed_provenance_mut(host_len(address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reservation_is_aligned_and_a_free_wish_is_honoured() {
        let alignment = 32 << 20;
        let first = Region::reserve(alignment, alignment, None).unwrap();
        assert_eq!(first.start() % alignment, 0);
        let wish = first.start();
        let second = Region::reserve(alignment, alignment, Some(wish)).unwrap();
        assert_ne!(second.start(), wish);
        drop(first);
        let third = Region::reserve(alignment, alignment, Some(wish)).unwrap();
        assert_eq!(third.start(), wish);
    }

    #[test]
    fn nothing_is_placed_outside_its_region() {
        let page = page_bytes();
        let region = Region::reserve(2 * page, page, None).unwrap();
        let memory = Memory::create(c"cachette-test", 2 * page).unwrap();
        let at = region.start() + page;
        let placed = region.place(at, 2 * page, &memory, Writes::Shared);
        assert_eq!(placed, Err(Errno::FAULT));
        assert_eq!(region.clear(at - 2 * page, page), Err(Errno::FAULT));
    }

    #[test]
    fn only_memory_of_the_same_name_and_size_is_adopted() {
        let page = page_bytes();
        let memory = Memory::create(c"cachette-test", page).unwrap();
        let adopt = |name, bytes| Memory::adopt(memory.duplicate().unwrap(), name, bytes);
        assert!(adopt(c"cachette-test", page).is_some());
        assert!(adopt(c"cachette-test", 2 * page).is_none());
        assert!(adopt(c"cachette-rest", page).is_none());
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        assert!(Memory::adopt(file.into(), c"cachette-test", page).is_none());
    }
}
