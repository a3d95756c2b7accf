//! The host library of NVSHMEM and its initialisation.

use std::ffi::{c_int, c_uint, c_void};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use cachette::source::SourceError;
use cachette_hal::load::Library;
use cachette_hal::{Ordinal, Vendor, symbol_table};

use super::Nvshmem;
use super::abi::{InitAttributes, UniqueId};
use crate::current_device::CurrentDevice;
use crate::library::VendorLibrary;

const NVSHMEM: VendorLibrary = VendorLibrary {
    product: "NVSHMEM 3",
    names: &["libnvshmem_host.so.3", "libnvshmem_host.so"],
    variable: "CACHETTE_NVSHMEM_LIBRARY",
};
/// `NVSHMEMX_INIT_WITH_UNIQUEID`.
const WITH_UNIQUE_ID: c_uint = 1 << 3;

symbol_table! {
    /// The functions that allocate, and that join ranks.
    pub(crate) struct NvshmemCalls {
        required {
            allocate as "nvshmem_malloc": fn(bytes: usize) -> *mut c_void;
            allocate_aligned as "nvshmem_align": fn(alignment: usize, bytes: usize) -> *mut c_void;
            free as "nvshmem_free": fn(ptr: *mut c_void);
            rank as "nvshmem_my_pe": fn() -> c_int;
            ranks as "nvshmem_n_pes": fn() -> c_int;
            status as "nvshmemx_init_status": fn() -> c_int;
            unique_id as "nvshmemx_get_uniqueid": fn(id: *mut UniqueId) -> c_int;
            init as "nvshmemx_hostlib_init_attr":
                fn(flags: c_uint, attributes: *mut InitAttributes) -> c_int;
            finalize as "nvshmemx_hostlib_finalize": fn();
        }
    }
}

/// The state of the library's initialisation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NvshmemStatus {
    /// It is not initialised.
    NotInitialised,
    /// The ranks are connected, and no device is set up.
    Bootstrapped,
    /// It can allocate memory.
    Initialised,
}

/// The host library of NVSHMEM, loaded.
#[derive(Debug)]
pub struct NvshmemLibrary {
    pub(crate) name: String,
    pub(crate) calls: NvshmemCalls,
}

impl NvshmemLibrary {
    /// Finds the library.
    ///
    /// `CACHETTE_NVSHMEM_LIBRARY` names its file. By default it is the copy that the process has loaded, or the
    /// one that the system finds.
    pub fn find() -> Result<Self, SourceError> {
        Self::with(&NVSHMEM.find()?)
    }

    /// Opens the library at `path`.
    ///
    /// # Safety
    ///
    /// 1. The file is NVSHMEM's host library, or has its C interface.
    pub unsafe fn open(path: impl AsRef<Path>) -> Result<Self, SourceError> {
        // SAFETY: 1. is the caller's promise.
        Self::with(&unsafe { NVSHMEM.open(path.as_ref()) }?)
    }

    fn with(library: &Library) -> Result<Self, SourceError> {
        Ok(Self {
            calls: NvshmemCalls::resolve(library).map_err(|error| NVSHMEM.missing(error))?,
            name: library.name().to_owned(),
        })
    }

    /// The name or path of the library.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The state of the library's initialisation.
    #[must_use]
    pub fn status(&self) -> NvshmemStatus {
        self.status_locked(&lock_library())
    }

    /// The same, under the library's lock.
    pub(crate) fn status_locked(&self, _lock: &LibraryLock) -> NvshmemStatus {
        // SAFETY: it reads the library's state.
        match unsafe { (self.calls.status)() } {
            0 => NvshmemStatus::NotInitialised,
            1 => NvshmemStatus::Bootstrapped,
            // Initialised, perhaps with several ranks on one device.
            _ => NvshmemStatus::Initialised,
        }
    }

    /// Creates the id that joins ranks. One rank creates it and sends its bytes to the others.
    pub fn unique_id(&self) -> Result<UniqueId, SourceError> {
        let _lock = lock_library();
        let mut id = UniqueId::empty();
        // SAFETY: it writes one id.
        let status = unsafe { (self.calls.unique_id)(&raw mut id) };
        if status == 0 {
            return Ok(id);
        }
        Err(SourceError::unavailable(
            format!("nvshmemx_get_uniqueid failed with status {status}"),
            "check that nvshmem_bootstrap_uid.so.3 lies beside the library and that the host has a \
             network interface, such as lo; NVSHMEM_DEBUG=INFO says more",
        ))
    }

    /// Uses a library that other code of the process has initialised and will finalise.
    ///
    /// # Safety
    ///
    /// 1. It was initialised for `device`.
    pub unsafe fn adopt(self, device: Ordinal) -> Result<Nvshmem, SourceError> {
        if self.status() != NvshmemStatus::Initialised {
            return Err(SourceError::unavailable(
                format!("{} is not initialised", self.name),
                "initialise it first, or use `single` or `join`",
            ));
        }
        let current = CurrentDevice::load(Vendor::Nvidia)?;
        Ok(Nvshmem::new(self, current, device))
    }

    /// Initialises the library for this process alone: one rank, on `device`.
    pub fn single(self, device: Ordinal) -> Result<Nvshmem, SourceError> {
        self.check_unused()?;
        // First, because it names the cause if there is no driver.
        let current = CurrentDevice::load(Vendor::Nvidia)?;
        let id = self.unique_id()?;
        self.start(current, device, id, 0, 1)
    }

    /// Initialises the library for one of several ranks, on `device`; returns when all of them have joined.
    pub fn join(self, device: Ordinal, id: UniqueId, rank: u32, ranks: u32) -> Result<Nvshmem, SourceError> {
        self.check_unused()?;
        let (Ok(rank), Ok(ranks), true) = (c_int::try_from(rank), c_int::try_from(ranks), rank < ranks) else {
            return Err(SourceError::other(
                format!("there is no rank {rank} of {ranks}"),
                "ranks count from zero, and each is less than their number",
            ));
        };
        let current = CurrentDevice::load(Vendor::Nvidia)?;
        self.start(current, device, id, rank, ranks)
    }

    /// Refuses a second initialisation: the library would count it and ignore its arguments.
    fn check_unused(&self) -> Result<(), SourceError> {
        if self.status() == NvshmemStatus::NotInitialised {
            return Ok(());
        }
        Err(SourceError::other(format!("{} is initialised already", self.name), "use `adopt`"))
    }

    fn start(
        self,
        current: CurrentDevice,
        device: Ordinal,
        mut id: UniqueId,
        rank: c_int,
        ranks: c_int,
    ) -> Result<Nvshmem, SourceError> {
        let lock = lock_library();
        let guard = current.enter(device)?;
        let mut attributes = InitAttributes::new(&raw mut id, rank, ranks);
        // SAFETY: the attributes have the layout of their version, and the id outlives the call.
        let status = unsafe { (self.calls.init)(WITH_UNIQUE_ID, &raw mut attributes) };
        drop(guard);
        // The library also reports success when it has found no usable device.
        if status != 0 || self.status_locked(&lock) != NvshmemStatus::Initialised {
            return Err(SourceError::unavailable(
                format!("nvshmemx_hostlib_init_attr did not set up device {device} (status {status})"),
                "run with NVSHMEM_DEBUG=INFO to see why; without InfiniBand, \
                 NVSHMEM_REMOTE_TRANSPORT=none may help",
            ));
        }
        drop(lock);
        Ok(Nvshmem::new(self, current, device))
    }
}

/// The lock of the library.
pub(crate) type LibraryLock = MutexGuard<'static, ()>;

/// Locks the library, which is not thread-safe.
pub(crate) fn lock_library() -> LibraryLock {
    static LOCK: Mutex<()> = Mutex::new(());
    LOCK.lock().unwrap_or_else(PoisonError::into_inner)
}
