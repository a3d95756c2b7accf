//! Objects that graphs own, and that are destroyed with the last of them.

use std::ffi::{c_uint, c_void};
use std::ptr;

use crate::capture::recording;
use crate::prelude::*;

/// The only flags, which must be set: no wait for the destructor, and the caller's reference is taken.
const NO_SYNC: c_uint = 1;
const MOVE: c_uint = 1;

type Destructor = unsafe extern "C" fn(*mut c_void);

/// An object of the caller; a drop destroys it.
pub(crate) struct UserObject {
    data: usize,
    destroy: Destructor,
}

impl Drop for UserObject {
    fn drop(&mut self) {
        // SAFETY: the caller has promised that the function takes the object, from any thread, once.
        unsafe { (self.destroy)(ptr::with_exposed_provenance_mut(self.data)) };
    }
}

abi! {
    /// Takes an object with one reference.
    fn cuUserObjectCreate(
        object: *mut *mut c_void,
        data: *mut c_void,
        destroy: Option<Destructor>,
        count: c_uint,
        flags: c_uint,
    ) => object {
        refuse_if(object.is_null() || count != 1 || flags != NO_SYNC, INVALID_VALUE)?;
        let made = UserObject { data: data.expose_provenance(), destroy: destroy.ok_or(INVALID_VALUE)? };
        let ledger = &driver()?.ledger;
        let handle = ledger.next_handle();
        ledger.objects.lock().insert(handle, made);
        Ok(ptr::without_provenance_mut(handle))
    }

    fn cuGraphRetainUserObject(graph: *mut c_void, object: *mut c_void, count: c_uint, flags: c_uint) {
        refuse_if(count != 1 || flags != MOVE, INVALID_VALUE)?;
        let recording = recording(graph)?;
        let object = driver()?.ledger.objects.lock().remove(&object.addr()).ok_or(INVALID_VALUE)?;
        recording.objects.lock().push(object);
        Ok(())
    }
}
