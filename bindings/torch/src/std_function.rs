//! A C++ `std::function<bool(stream)>`, copied and called.
//!
//! libstdc++ lays it out as 16 bytes of storage, a function that manages what is stored, and a function that calls it.
//! All three are part of its stable ABI.

use std::ffi::{c_int, c_void};
use std::fmt;
use std::mem::MaybeUninit;

use cachette::hal::StreamRef;

/// What is stored: a small function object, or the address of a large one.
type Storage = [MaybeUninit<usize>; 2];
/// Does `operation` with what is stored.
type Manage = unsafe extern "C-unwind" fn(to: *mut Storage, from: *const Storage, operation: c_int) -> bool;
/// Calls what is stored; the argument goes by its address.
type Invoke = unsafe extern "C-unwind" fn(stored: *const Storage, stream: *mut *mut c_void) -> bool;

/// Copies what is stored into other storage.
const CLONE: c_int = 2;
/// Destroys what is stored.
const DESTROY: c_int = 3;

/// A `std::function<bool(stream)>` of libstdc++, as a caller lends it.
#[repr(C)]
pub struct StdFunction {
    storage: Storage,
    /// `None` of an empty function.
    manage: Option<Manage>,
    invoke: Option<Invoke>,
}

impl fmt::Debug for StdFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StdFunction").field("empty", &self.manage.is_none()).finish_non_exhaustive()
    }
}

/// A copy of a function, owned.
#[derive(Debug)]
pub(crate) struct Owned {
    /// In a box, since it may refer to itself.
    function: Box<StdFunction>,
    manage: Manage,
    invoke: Invoke,
}

// SAFETY: what it calls is made to be called by any thread, several at once: PyTorch's own allocator does.
unsafe impl Send for Owned {}
// SAFETY: as above.
unsafe impl Sync for Owned {}

impl StdFunction {
    /// Copies the function; `None` if it is empty.
    ///
    /// # Safety
    ///
    /// 1. It is a `std::function<bool(stream)>` of libstdc++.
    /// 2. What it holds may be called and destroyed by any thread.
    pub(crate) unsafe fn copy(&self) -> Option<Owned> {
        let (manage, invoke) = (self.manage?, self.invoke?);
        let mut function =
            Box::new(Self { storage: [MaybeUninit::uninit(); 2], manage: Some(manage), invoke: Some(invoke) });
        // SAFETY: 1. says what it does: it copies into storage that holds nothing yet.
        unsafe { manage(&raw mut function.storage, &raw const self.storage, CLONE) };
        Some(Owned { function, manage, invoke })
    }
}

impl Owned {
    /// Calls the function.
    pub(crate) fn call(&self, stream: StreamRef) -> bool {
        let mut stream = std::ptr::without_provenance_mut(stream.raw());
        // SAFETY: the promises of `copy`; the storage holds what was copied.
        unsafe { (self.invoke)(&raw const self.function.storage, &raw mut stream) }
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        let storage = &raw mut self.function.storage;
        // SAFETY: the promises of `copy`; what was copied is destroyed once.
        unsafe { (self.manage)(storage, storage.cast_const(), DESTROY) };
    }
}
