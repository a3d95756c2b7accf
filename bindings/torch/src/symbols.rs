//! Finds what the libraries of this process export.

use std::ffi::{CStr, c_void};
use std::mem;

/// The libraries that PyTorch's exceptions are in, that of the class itself first. What a library needs is searched
/// with it, so the first leads to the C++ runtime that PyTorch uses.
const LIBRARIES: [&CStr; 8] = [
    c"libc10.so",
    c"libc10_cuda.so",
    c"libc10_hip.so",
    c"libtorch_cuda.so",
    c"libtorch_hip.so",
    c"libtorch_python.so",
    c"libtorch_cpu.so",
    c"libstdc++.so.6",
];

/// The libraries among [`LIBRARIES`] that are loaded, and what is visible to all.
#[derive(Debug)]
pub(crate) struct Symbols {
    handles: Vec<*mut c_void>,
}

impl Symbols {
    /// Looks which libraries are loaded, and loads none.
    ///
    /// They stay loaded from now on, which PyTorch's do in any case.
    pub(crate) fn look() -> Self {
        let open = |name: &&CStr| {
            let flags = libc::RTLD_LAZY | libc::RTLD_NOLOAD;
            // SAFETY: nothing is loaded, so no initialiser runs.
            unsafe { libc::dlopen(name.as_ptr(), flags) }
        };
        let loaded = LIBRARIES
            .iter()
            .map(open)
            .filter(|handle| !handle.is_null());
        let everyone = libc::RTLD_DEFAULT;
        Self {
            handles: loaded.chain([everyone]).collect(),
        }
    }

    /// The address of an object.
    pub(crate) fn object(&self, name: &CStr) -> Option<*mut c_void> {
        let find = |handle: &*mut c_void| {
            // SAFETY: the handle is the loader's own, and the name ends with a zero.
            let found = unsafe { libc::dlsym(*handle, name.as_ptr()) };
            (!found.is_null()).then_some(found)
        };
        self.handles.iter().find_map(find)
    }

    /// A function.
    ///
    /// # Safety
    ///
    /// 1. `F` is the type of a pointer to a function, and what has this name is such a function.
    pub(crate) unsafe fn function<F: Copy>(&self, name: &CStr) -> Option<F> {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
        let found = self.object(name)?;
        // SAFETY: 1. is the caller's promise, and it is not null.
        Some(unsafe { mem::transmute_copy(&found) })
    }
}
