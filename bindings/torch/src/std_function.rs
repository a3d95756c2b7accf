//! A C++ `std::function<bool(stream)>`, copied and called.
//!
//! libstdc++ lays it out as 16 bytes of storage, a function that manages the stored object, and a function that calls
//! it. All three are part of its stable ABI.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;

use cachette::hal::StreamRef;

/// The stored object: a small function object, or the address of a large one.
type Storage = [MaybeUninit<usize>; 2];
/// Performs `operation` on the stored object.
type Manage = unsafe extern "C-unwind" fn(to: *mut Storage, from: *const Storage, operation: c_int) -> bool;
/// Calls the stored object. The argument is passed by its address.
type Invoke = unsafe extern "C-unwind" fn(stored: *const Storage, stream: *mut *mut c_void) -> bool;

/// Copies the stored object into other storage.
const CLONE: c_int = 2;
/// Destroys the stored object.
const DESTROY: c_int = 3;

/// A borrowed `std::function<bool(stream)>` of libstdc++.
#[derive(Debug)]
#[repr(C)]
pub struct StdFunction {
    storage: Storage,
    /// `None` for an empty function.
    manage: Option<Manage>,
    invoke: Option<Invoke>,
}

/// A copy of a function, owned.
#[derive(Debug)]
pub(crate) struct Owned {
    /// Boxed, since it may contain a pointer to itself.
    function: Box<StdFunction>,
    manage: Manage,
    invoke: Invoke,
}

// SAFETY: any thread may call the stored object, several at once: PyTorch's own allocator does.
unsafe impl Send for Owned {}
// SAFETY: as above.
unsafe impl Sync for Owned {}

impl StdFunction {
    /// Copies the function; `None` if it is empty.
    ///
    /// # Safety
    ///
    /// 1. It is a `std::function<bool(stream)>` of libstdc++.
    /// 2. Any thread may call and destroy the stored function object.
    pub(crate) unsafe fn copy(&self) -> Option<Owned> {
        let (manage, invoke) = (self.manage?, self.invoke?);
        let mut function =
            Box::new(Self { storage: [MaybeUninit::uninit(); 2], manage: Some(manage), invoke: Some(invoke) });
        // SAFETY: by promise 1 it copies into storage that is still empty.
        unsafe { manage(&raw mut function.storage, &raw const self.storage, CLONE) };
        Some(Owned { function, manage, invoke })
    }
}

impl Owned {
    /// Calls the function.
    pub(crate) fn call(&self, stream: StreamRef) -> bool {
        let mut stream = std::ptr::without_provenance_mut(stream.raw());
        // SAFETY: the promises of `copy`; the storage holds the copied object.
        unsafe { (self.invoke)(&raw const self.function.storage, &raw mut stream) }
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        let storage = &raw mut self.function.storage;
        // SAFETY: the promises of `copy`; the copied object is destroyed once.
        unsafe { (self.manage)(storage, storage.cast_const(), DESTROY) };
    }
}
