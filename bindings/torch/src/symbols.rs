//! Finds symbols in the libraries of this process.

use std::ffi::{CStr, CString, c_int, c_void};
use std::mem;

/// The stems of the libraries that contain PyTorch's exceptions, the library of the class itself first. A search
/// includes the dependencies of a library, so the first one also finds the C++ runtime that PyTorch uses.
const STEMS: [&[u8]; 8] = [
    b"libc10",
    b"libc10_cuda",
    b"libc10_hip",
    b"libtorch_cuda",
    b"libtorch_hip",
    b"libtorch_python",
    b"libtorch_cpu",
    b"libstdc++",
];

/// The loaded libraries of [`STEMS`], and the global scope.
#[derive(Debug)]
pub(crate) struct Symbols {
    handles: Vec<*mut c_void>,
}

impl Symbols {
    /// Finds the libraries that are already loaded.
    ///
    /// They stay loaded from now on, as PyTorch's do in any case.
    pub(crate) fn look() -> Self {
        let open = |path: &&CString| {
            let flags = libc::RTLD_LAZY | libc::RTLD_NOLOAD;
            // SAFETY: the flags prevent loading, so no initialiser runs.
            unsafe { libc::dlopen(path.as_ptr(), flags) }
        };
        let paths = loaded();
        let wanted = STEMS.iter().flat_map(|stem| paths.iter().filter(|path| has_stem(path, stem)));
        let handles = wanted.map(|path| open(&path));
        let everyone = libc::RTLD_DEFAULT;
        Self { handles: handles.filter(|handle| !handle.is_null()).chain([everyone]).collect() }
    }

    /// Returns the address of an object.
    pub(crate) fn object(&self, name: &CStr) -> Option<*mut c_void> {
        let find = |handle: &*mut c_void| {
            // SAFETY: the handle comes from the loader, and the name ends with a zero.
            let found = unsafe { libc::dlsym(*handle, name.as_ptr()) };
            (!found.is_null()).then_some(found)
        };
        self.handles.iter().find_map(find)
    }

    /// Returns a function.
    ///
    /// # Safety
    ///
    /// 1. `F` is a function pointer type, and the symbol is a function of that type.
    pub(crate) unsafe fn function<F: Copy>(&self, name: &CStr) -> Option<F> {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
        let found = self.object(name)?;
        // SAFETY: 1. is the caller's promise, and it is not null.
        Some(unsafe { mem::transmute_copy(&found) })
    }
}

/// Returns the paths of all loaded libraries. The loader finds a library only by the name that it was linked with,
/// which includes the version in distributions.
fn loaded() -> Vec<CString> {
    unsafe extern "C" fn add(object: *mut libc::dl_phdr_info, _: usize, paths: *mut c_void) -> c_int {
        // SAFETY: the loader passes a complete object, whose name ends with a zero or is null.
        let name = unsafe { (*object).dlpi_name };
        if !name.is_null() {
            // SAFETY: as above; it lives during the call.
            let name = unsafe { CStr::from_ptr(name) };
            // SAFETY: the pointer refers to the vector below, which no other code uses during the call.
            let paths = unsafe { &mut *paths.cast::<Vec<CString>>() };
            paths.push(name.to_owned());
        }
        0
    }

    let mut paths = Vec::<CString>::new();
    // SAFETY: the function has the required type, and the vector outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(add), (&raw mut paths).cast()) };
    paths
}

/// Returns whether a library has this name, with any suffix: `libc10.so`, `libc10.so.2.12`, `libc10-1a2b3c.so`.
fn has_stem(path: &CStr, stem: &[u8]) -> bool {
    let path = path.to_bytes();
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
    let rest = name.strip_prefix(stem).unwrap_or_default();
    rest.starts_with(b".so") || rest.starts_with(b"-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_is_known_by_its_stem_alone() {
        for path in [c"libc10.so", c"/usr/lib/libc10.so.2.12", c"/a-b/libc10-1a2b.so"] {
            assert!(has_stem(path, b"libc10"), "{path:?}");
        }
        for path in [c"", c"/x/libc10_cuda.so", c"/libc10/libm.so.6", c"libc10"] {
            assert!(!has_stem(path, b"libc10"), "{path:?}");
        }
    }
}
