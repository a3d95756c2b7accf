//! Memory of NCCL and RCCL, which their collectives use without a copy.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::Path;
use std::ptr;

use cachette::source::checks::{aligned, check_bytes, not_null};
use cachette::source::{ALIGNMENT, AllocContext, Source, SourceError};
use cachette_hal::load::Library;
use cachette_hal::{DevicePtr, Vendor, symbol_table};

use crate::convert::{address, pointer, size};
use crate::library::VendorLibrary;

const NCCL: VendorLibrary = VendorLibrary {
    product: "NCCL 2.19 or newer",
    names: &["libnccl.so.2", "libnccl.so"],
    variable: "CACHETTE_NCCL_LIBRARY",
};
const RCCL: VendorLibrary = VendorLibrary {
    product: "RCCL 2.19 or newer",
    names: &["librccl.so.1", "librccl.so"],
    variable: "CACHETTE_RCCL_LIBRARY",
};
/// A call of the driver failed; it may have been out of memory.
const UNHANDLED_DEVICE_ERROR: c_int = 1;

symbol_table! {
    /// The functions of NCCL and RCCL, which have the same names in both.
    struct NcclCalls {
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

/// Memory of `ncclMemAlloc`: from NCCL on NVIDIA devices, from RCCL on AMD devices.
///
/// It needs no communicator. To use a segment without copies, register it with the communicator (`ncclCommRegister`,
/// `ncclCommWindowRegister`).
#[derive(Debug)]
#[doc(alias = "ncclMemAlloc")]
#[doc(alias = "ncclMemFree")]
pub struct Nccl {
    name: &'static str,
    library: String,
    calls: NcclCalls,
}

impl Nccl {
    /// Finds the library for devices of `vendor`.
    ///
    /// `CACHETTE_NCCL_LIBRARY` or `CACHETTE_RCCL_LIBRARY` names its file. By default it is the copy that the process
    /// has loaded, or the one that the system finds.
    pub fn load(vendor: Vendor) -> Result<Self, SourceError> {
        let names = library_names(vendor)?;
        Self::with(vendor, names, &names.find()?)
    }

    /// Opens the library at `path` for devices of `vendor`.
    ///
    /// # Safety
    ///
    /// 1. The file is NCCL or RCCL, or has their C interface.
    pub unsafe fn open(vendor: Vendor, path: impl AsRef<Path>) -> Result<Self, SourceError> {
        let names = library_names(vendor)?;
        // SAFETY: 1. is the caller's promise.
        let library = unsafe { names.open(path.as_ref()) }?;
        Self::with(vendor, names, &library)
    }

    fn with(vendor: Vendor, names: VendorLibrary, library: &Library) -> Result<Self, SourceError> {
        Ok(Self {
            name: if vendor == Vendor::Amd { "RCCL" } else { "NCCL" },
            calls: NcclCalls::resolve(library).map_err(|error| names.missing(error))?,
            library: library.name().to_owned(),
        })
    }

    /// The name or path of the library.
    #[must_use]
    pub fn library(&self) -> &str {
        &self.library
    }

    /// The library's version number: 22705 is 2.27.5. `None` if the library lacks the function.
    #[must_use]
    pub fn version(&self) -> Option<u32> {
        let version = self.calls.version().ok()?;
        let mut number = 0;
        // SAFETY: it writes one number.
        let status = unsafe { version(&raw mut number) };
        (status == 0).then_some(number.unsigned_abs())
    }

    /// # Safety
    ///
    /// The promises of [`Source::free`].
    unsafe fn free_memory(&self, ptr: *mut c_void) -> Result<(), SourceError> {
        // SAFETY: the caller's promises.
        let status = unsafe { (self.calls.free)(ptr) };
        if status == 0 {
            return Ok(());
        }
        let why = self.describe(status);
        Err(SourceError::other(
            format!("ncclMemFree failed: {why}"),
            "deregister the memory from every communicator before it is freed",
        ))
    }

    /// A status with the library's texts for it and for the last failure.
    fn describe(&self, status: c_int) -> String {
        let mut words = format!("status {status}");
        if let Ok(status_text) = self.calls.status_text() {
            // SAFETY: it takes any number, and returns a static string.
            let text = unsafe { status_text(status) };
            // SAFETY: the line above.
            words = unsafe { append(words, text) };
        }
        if let Ok(last_error) = self.calls.last_error() {
            // SAFETY: the library does not look at the communicator.
            let text = unsafe { last_error(ptr::null_mut()) };
            // SAFETY: it is a buffer of the library, which always ends with a zero.
            words = unsafe { append(words, text) };
        }
        words
    }

    /// The error for a failure of `ncclMemAlloc`.
    ///
    /// The library has no status for out-of-memory, but its text contains the driver's. Without a text the failure
    /// counts as out-of-memory, because a retry after freeing memory does no harm.
    fn allocate_error(&self, status: c_int, bytes: u64) -> SourceError {
        let why = self.describe(status);
        let text = format!("ncclMemAlloc failed for {bytes} bytes: {why}");
        let has_no_text = self.calls.last_error().is_err();
        if status == UNHANDLED_DEVICE_ERROR && (has_no_text || why.contains("out of memory")) {
            return SourceError::out_of_memory(text);
        }
        SourceError::other(text, "run with NCCL_DEBUG=WARN to see why")
    }
}

// SAFETY: 1. 2. 3. the library documents them for `ncclMemAlloc` and `ncclMemFree`; earlier failures change nothing.
unsafe impl Source for Nccl {
    fn name(&self) -> &str {
        self.name
    }

    unsafe fn allocate(&self, bytes: u64, context: &AllocContext) -> Result<DevicePtr, SourceError> {
        check_bytes(self.name, bytes)?;
        let mut at = ptr::null_mut();
        // SAFETY: it writes one address.
        let status = unsafe { (self.calls.allocate)(&raw mut at, size(bytes)) };
        if status != 0 {
            return Err(self.allocate_error(status, bytes));
        }
        let ptr = not_null(self.name, address(at), bytes, context)?;
        // SAFETY: it was allocated above, and no other code has it.
        aligned(self.name, ptr, ALIGNMENT, || unsafe { self.free_memory(at) })
    }

    unsafe fn free(&self, ptr: DevicePtr, _bytes: u64, _context: &AllocContext) -> Result<(), SourceError> {
        // SAFETY: the caller's promises are passed on unchanged.
        unsafe { self.free_memory(pointer(ptr)) }
    }
}

fn library_names(vendor: Vendor) -> Result<VendorLibrary, SourceError> {
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
