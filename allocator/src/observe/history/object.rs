//! The object file of an address: the program, or a shared library.

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::path::Path;
use std::ptr;
use std::sync::LazyLock;

/// An object file in the memory of this process.
struct Object {
    start: usize,
    path: String,
}

/// The start of the shared library that contains this crate; `None` if the main program contains it.
static OWN: LazyLock<Option<usize>> = LazyLock::new(|| {
    // SAFETY: it reads a number of this process.
    let entry = unsafe { libc::getauxval(libc::AT_ENTRY) };
    let program = object_of(usize::try_from(entry).ok()?)?;
    let own = object_of((&raw const OWN).addr())?;
    (own.start != program.start).then_some(own.start)
});

/// Returns whether an address lies in the shared library that contains this crate.
pub(super) fn is_own(address: usize) -> bool {
    OWN.is_some_and(|start| object_of(address).is_some_and(|object| object.start == start))
}

/// Returns the place of an address in its object file, such as `libcuda.so.1+0x1f00`.
pub(super) fn place(address: usize) -> String {
    let Some(Object { start, path }) = object_of(address) else { return format!("{address:#x}") };
    let file = Path::new(&path).file_name().unwrap_or_default();
    format!("{}+{:#x}", file.display(), address - start)
}

fn object_of(address: usize) -> Option<Object> {
    let mut info = MaybeUninit::<libc::Dl_info>::uninit();
    // SAFETY: it reads no memory at the address, and `info` has room for what it writes.
    let found = unsafe { libc::dladdr(ptr::without_provenance(address), info.as_mut_ptr()) };
    if found == 0 {
        return None;
    }
    // SAFETY: the call succeeded, so it has written all fields.
    let info = unsafe { info.assume_init() };
    if info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: the loader's text ends with a zero and lives as long as the object, which has a frame on some stack.
    let path = unsafe { CStr::from_ptr(info.dli_fname) };
    Some(Object { start: info.dli_fbase.addr(), path: path.to_string_lossy().into_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_place_in_its_object() {
        let own = place((&raw const OWN).addr());
        let (file, offset) = own.rsplit_once("+0x").unwrap();
        assert!(file.starts_with("cachette-") && u64::from_str_radix(offset, 16).is_ok(), "{own}");
        assert!(place((libc::getpid as unsafe extern "C" fn() -> libc::pid_t as *const ()).addr()).contains("libc"));
        assert_eq!(place(16), "0x10");
    }

    #[test]
    fn a_program_is_no_shared_library() {
        assert!(!is_own((&raw const OWN).addr()));
    }
}
