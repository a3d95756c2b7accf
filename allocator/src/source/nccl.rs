//! Memory of NCCL and RCCL, which their collectives can use without copying it.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::Path;
use std::ptr;

use cachette_hal::load::Library;
use cachette_hal::{DevicePtr, Vendor, symbol_table};

use super::accept::{aligned, check_bytes, not_null};
use super::convert::{address, pointer, size};
use super::current::Current;
use super::library::Sought;
use super::{ALIGNMENT, AllocContext, Source, SourceError};

const NCCL: Sought =
    Sought { what: "NCCL 2.19 or newer", names: &["libnccl.so.2", "libnccl.so"], variable: "CACHETTE_NCCL_LIBRARY" };
const RCCL: Sought =
    Sought { what: "RCCL 2.19 or newer", names: &["librccl.so.1", "librccl.so"], variable: "CACHETTE_RCCL_LIBRARY" };
/// A call of the driver failed, for want of memory perhaps.
const UNHANDLED_DEVICE_ERROR: c_int = 1;

symbol_table! {
    /// The functions of NCCL and RCCL, which have the same names in both.
    struct Calls {
        required {
            allocate as "ncclMemAlloc": fn(ptr: *mut *mut c_void, bytes: usize) -> c_int;
            free as "ncclMemFree": fn(ptr: *mut c_void) -> c_int;
        }
        optional {
            version as "ncclGetVersion": fn(version: *mut c_int) -> c_int;
            status_text as "ncclGetErrorString": fn(status: c_int) -> *const c_char;
            last_error as "ncclGetLastError": fn(communicator: *mut c_void) -> *const c_char;
        }
    }
}

/// Memory of `ncclMemAlloc`: NCCL's on NVIDIA's devices, RCCL's on AMD's.
///
/// No communicator is needed to make it. A communicator that is to use it without copies has each segment
/// registered with it (`ncclCommRegister`, `ncclCommWindowRegister`).
#[derive(Debug)]
#[doc(alias = "ncclMemAlloc")]
#[doc(alias = "ncclMemFree")]
pub struct Nccl {
    name: &'static str,
    library: String,
    calls: Calls,
    current: Current,
}

impl Nccl {
    /// Finds the library for devices of `vendor`.
    ///
    /// `CACHETTE_NCCL_LIBRARY` or `CACHETTE_RCCL_LIBRARY` names its file. Otherwise it is the copy that the process
    /// has loaded, or the one that the system finds.
    pub fn load(vendor: Vendor) -> Result<Self, SourceError> {
        let sought = sought(vendor)?;
        Self::with(vendor, sought, &sought.find()?)
    }

    /// Opens the library at `path` for devices of `vendor`.
    ///
    /// # Safety
    ///
    /// 1. The file is NCCL or RCCL, or keeps to their C interface.
    pub unsafe fn open(vendor: Vendor, path: impl AsRef<Path>) -> Result<Self, SourceError> {
        let sought = sought(vendor)?;
        // SAFETY: 1. is the caller's promise.
        let library = unsafe { sought.open(path.as_ref()) }?;
        Self::with(vendor, sought, &library)
    }

    fn with(vendor: Vendor, sought: Sought, library: &Library) -> Result<Self, SourceError> {
        Ok(Self {
            name: if vendor == Vendor::Amd { "RCCL" } else { "NCCL" },
            calls: Calls::resolve(library).map_err(|error| sought.missing(error))?,
            current: Current::load(vendor)?,
            library: library.name().to_owned(),
        })
    }

    /// The name or path of the library.
    #[must_use]
    pub fn library(&self) -> &str {
        &self.library
    }

    /// The library's version, as it numbers it: 22705 is 2.27.5. `None` where it does not say.
    #[must_use]
    pub fn version(&self) -> Option<u32> {
        let version = self.calls.version().ok()?;
        let mut number = 0;
        // SAFETY: it writes one number.
        let status = unsafe { version(&raw mut number) };
        (status == 0).then_some(number.unsigned_abs())
    }

    /// Takes memory back; the device is current.
    ///
    /// # Safety
    ///
    /// The promises of [`Source::free`].
    unsafe fn give_back(&self, ptr: *mut c_void) -> Result<(), SourceError> {
        // SAFETY: the caller's promises.
        let status = unsafe { (self.calls.free)(ptr) };
        if status == 0 {
            return Ok(());
        }
        let why = self.describe(status);
        Err(SourceError::other(
            format!("ncclMemFree failed: {why}"),
            "deregister the memory from every communicator before it goes back",
        ))
    }

    /// A status in the library's own words, with what it knows about the last failure.
    fn describe(&self, status: c_int) -> String {
        let mut words = format!("status {status}");
        if let Ok(status_text) = self.calls.status_text() {
            // SAFETY: it takes any number, and returns a string that lives for ever.
            let text = unsafe { status_text(status) };
            // SAFETY: the line above.
            words = unsafe { append(words, text) };
        }
        if let Ok(last_error) = self.calls.last_error() {
            // SAFETY: the library does not look at the communicator.
            let text = unsafe { last_error(ptr::null_mut()) };
            // SAFETY: it is the library's own buffer, which always ends with a zero.
            words = unsafe { append(words, text) };
        }
        words
    }

    /// Tells a failure of `ncclMemAlloc`.
    ///
    /// The library has no status for want of memory: the driver's is in its text, and where there is no text it is
    /// taken for that, since asking once more after giving memory back does no harm.
    fn no_memory(&self, status: c_int, bytes: u64) -> SourceError {
        let why = self.describe(status);
        let text = format!("ncclMemAlloc failed for {bytes} bytes: {why}");
        let silent = self.calls.last_error().is_err();
        if status == UNHANDLED_DEVICE_ERROR && (silent || why.contains("out of memory")) {
            return SourceError::out_of_memory(text);
        }
        SourceError::other(text, "run with NCCL_DEBUG=WARN to see why")
    }
}

// SAFETY: 1. 2. 3. the library documents them of `ncclMemAlloc` and `ncclMemFree`; what fails before a call changes nothing.
unsafe impl Source for Nccl {
    fn name(&self) -> &str {
        self.name
    }

    unsafe fn allocate(&self, bytes: u64, place: &AllocContext) -> Result<DevicePtr, SourceError> {
        check_bytes(self.name, bytes)?;
        let _entered = self.current.enter(place.device)?;
        let mut at = ptr::null_mut();
        // SAFETY: it writes one address.
        let status = unsafe { (self.calls.allocate)(&raw mut at, size(bytes)) };
        if status != 0 {
            return Err(self.no_memory(status, bytes));
        }
        let ptr = not_null(self.name, address(at), bytes, place)?;
        // SAFETY: it was made above, and nobody knows it.
        aligned(self.name, ptr, ALIGNMENT, || unsafe { self.give_back(at) })
    }

    unsafe fn free(&self, ptr: DevicePtr, _bytes: u64, place: &AllocContext) -> Result<(), SourceError> {
        let _entered = self.current.enter(place.device)?;
        // SAFETY: the caller's promises are passed on unchanged.
        unsafe { self.give_back(pointer(ptr)) }
    }
}

fn sought(vendor: Vendor) -> Result<Sought, SourceError> {
    match vendor {
        Vendor::Nvidia => Ok(NCCL),
        Vendor::Amd => Ok(RCCL),
        other => Err(SourceError::unavailable(
            format!("neither NCCL nor RCCL has memory for {other} devices"),
            "use a FunctionSource",
        )),
    }
}

/// Adds a C string to `words`, if there is one.
///
/// # Safety
///
/// 1. `text` is null or a string that lives during the call.
unsafe fn append(words: String, text: *const c_char) -> String {
    if text.is_null() {
        return words;
    }
    // SAFETY: 1. is the caller's promise.
    let text = unsafe { CStr::from_ptr(text) };
    match text.to_string_lossy().trim() {
        "" => words,
        text => format!("{words}, {text}"),
    }
}
