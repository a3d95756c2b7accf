//! The host library of NVSHMEM, and the ways to initialise it.

use std::ffi::{c_int, c_uint, c_void};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use cachette_hal::load::Library;
use cachette_hal::{Ordinal, Vendor, symbol_table};

use super::Nvshmem;
use super::abi::{InitAttributes, UniqueId};
use crate::source::SourceError;
use crate::source::current::Current;
use crate::source::library::Sought;

const NVSHMEM: Sought = Sought {
    what: "NVSHMEM 3",
    names: &["libnvshmem_host.so.3", "libnvshmem_host.so"],
    variable: "CACHETTE_NVSHMEM_LIBRARY",
};
/// `NVSHMEMX_INIT_WITH_UNIQUEID`.
const WITH_UNIQUE_ID: c_uint = 1 << 3;

symbol_table! {
    /// The functions that making memory and joining ranks need.
    pub(crate) struct Calls {
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
        optional {}
    }
}

/// How far the library is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NvshmemStatus {
    /// Nobody has initialised it.
    NotInitialised,
    /// The ranks know each other, and no device is set up.
    Bootstrapped,
    /// It can make memory.
    Initialised,
}

/// The host library of NVSHMEM, loaded.
#[derive(Debug)]
pub struct NvshmemLibrary {
    pub(crate) name: String,
    pub(crate) calls: Calls,
}

impl NvshmemLibrary {
    /// Finds the library.
    ///
    /// `CACHETTE_NVSHMEM_LIBRARY` names its file. Otherwise it is the copy that the process has loaded, or the one
    /// that the system finds.
    pub fn find() -> Result<Self, SourceError> {
        Self::with(&NVSHMEM.find()?)
    }

    /// Opens the library at `path`.
    ///
    /// # Safety
    ///
    /// 1. The file is NVSHMEM's host library, or keeps to its C interface.
    pub unsafe fn open(path: impl AsRef<Path>) -> Result<Self, SourceError> {
        // SAFETY: 1. is the caller's promise.
        Self::with(&unsafe { NVSHMEM.open(path.as_ref()) }?)
    }

    fn with(library: &Library) -> Result<Self, SourceError> {
        Ok(Self {
            calls: Calls::resolve(library).map_err(|error| NVSHMEM.missing(error))?,
            name: library.name().to_owned(),
        })
    }

    /// The name or path of the library.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How far the library is.
    #[must_use]
    pub fn status(&self) -> NvshmemStatus {
        self.status_under(&one_at_a_time())
    }

    /// The same, by whoever has the turn.
    pub(crate) fn status_under(&self, _turn: &Turn) -> NvshmemStatus {
        // SAFETY: it reads the library's own state.
        match unsafe { (self.calls.status)() } {
            0 => NvshmemStatus::NotInitialised,
            1 => NvshmemStatus::Bootstrapped,
            // Initialised, or that with several ranks on one device.
            _ => NvshmemStatus::Initialised,
        }
    }

    /// Makes an id by which ranks find each other; one rank does it and sends the others the bytes.
    pub fn unique_id(&self) -> Result<UniqueId, SourceError> {
        let _turn = one_at_a_time();
        let mut id = UniqueId::empty();
        // SAFETY: it writes one id.
        let status = unsafe { (self.calls.unique_id)(&raw mut id) };
        if status == 0 {
            return Ok(id);
        }
        Err(SourceError::unavailable(
            format!("nvshmemx_get_uniqueid failed with status {status}"),
            "see that nvshmem_bootstrap_uid.so.3 lies beside the library and that the host has a \
             network interface, such as lo; NVSHMEM_DEBUG=INFO says more",
        ))
    }

    /// Takes over a library that somebody else in the process has initialised, and will finalise.
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
        let current = Current::load(Vendor::Nvidia)?;
        Ok(Nvshmem::new(self, current, device))
    }

    /// Initialises the library for this process alone: one rank, on `device`.
    pub fn single(self, device: Ordinal) -> Result<Nvshmem, SourceError> {
        self.check_unused()?;
        // Before the id: it is what fails where there is no driver.
        let current = Current::load(Vendor::Nvidia)?;
        let id = self.unique_id()?;
        self.start(current, device, id, 0, 1)
    }

    /// Initialises the library for one of several ranks, on `device`; returns when all of them have come.
    pub fn join(self, device: Ordinal, id: UniqueId, rank: u32, ranks: u32) -> Result<Nvshmem, SourceError> {
        self.check_unused()?;
        let (Ok(rank), Ok(ranks), true) = (c_int::try_from(rank), c_int::try_from(ranks), rank < ranks) else {
            return Err(SourceError::other(
                format!("there is no rank {rank} of {ranks}"),
                "ranks count from zero, and each is less than their number",
            ));
        };
        let current = Current::load(Vendor::Nvidia)?;
        self.start(current, device, id, rank, ranks)
    }

    /// A second initialisation would be counted, and its arguments ignored.
    fn check_unused(&self) -> Result<(), SourceError> {
        if self.status() == NvshmemStatus::NotInitialised {
            return Ok(());
        }
        Err(SourceError::other(format!("{} is initialised already", self.name), "use `adopt`"))
    }

    fn start(
        self,
        current: Current,
        device: Ordinal,
        mut id: UniqueId,
        rank: c_int,
        ranks: c_int,
    ) -> Result<Nvshmem, SourceError> {
        let turn = one_at_a_time();
        let entered = current.enter(device)?;
        let mut attributes = InitAttributes::new(&raw mut id, rank, ranks);
        // SAFETY: the attributes are of the version they say, and the id outlives the call.
        let status = unsafe { (self.calls.init)(WITH_UNIQUE_ID, &raw mut attributes) };
        drop(entered);
        // The library reports success also where it met no device that it can use.
        if status != 0 || self.status_under(&turn) != NvshmemStatus::Initialised {
            return Err(SourceError::unavailable(
                format!("nvshmemx_hostlib_init_attr did not set up device {device} (status {status})"),
                "run with NVSHMEM_DEBUG=INFO to see why; without InfiniBand, \
                 NVSHMEM_REMOTE_TRANSPORT=none may help",
            ));
        }
        drop(turn);
        Ok(Nvshmem::new(self, current, device))
    }
}

/// The right to call the library.
pub(crate) type Turn = MutexGuard<'static, ()>;

/// Waits until no other thread is in the library, which does not stand two at once.
pub(crate) fn one_at_a_time() -> Turn {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}
