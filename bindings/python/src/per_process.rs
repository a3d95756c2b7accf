//! Values that a forked child makes anew.

use std::marker::PhantomData;
use std::ptr;
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::{AcqRel, Acquire};

use cachette::fork::ProcessGuard;

/// A value of this process; a forked child has another one, which begins as the default.
///
/// It is for locks that threads hold without the GIL. A child cannot use those of its parent, because no thread
/// releases a lock that was held during the fork. The value of the parent stays in the child's memory untouched.
pub(crate) struct PerProcess<T> {
    /// Null, or a box that only the drop of this object frees.
    made: AtomicPtr<Made<T>>,
    owns: PhantomData<Made<T>>,
}

struct Made<T> {
    origin: ProcessGuard,
    value: T,
}

impl<T: Default + Send + Sync> PerProcess<T> {
    pub(crate) const fn new() -> Self {
        Self { made: AtomicPtr::new(ptr::null_mut()), owns: PhantomData }
    }

    /// The value of this process.
    pub(crate) fn get(&self) -> &T {
        let made = self.made.load(Acquire);
        // SAFETY: null, or a box that lives as long as this object.
        match unsafe { made.as_ref() } {
            Some(made) if !made.origin.is_inherited() => &made.value,
            _ => self.make(made),
        }
    }

    #[cold]
    fn make(&self, before: *mut Made<T>) -> &T {
        let new = Box::into_raw(Box::new(Made { origin: ProcessGuard::here(), value: T::default() }));
        // Release, with the loads of other threads. Acquire, because another thread may have been first.
        let Err(first) = self.made.compare_exchange(before, new, AcqRel, Acquire) else {
            // SAFETY: the box is in place now, and lives as long as this object.
            return unsafe { &(*new).value };
        };
        // SAFETY: no other thread has seen this box.
        drop(unsafe { Box::from_raw(new) });
        // SAFETY: only a box of this process replaces what was there, and it lives as long as this object.
        unsafe { &(*first).value }
    }
}

impl<T: Default + Send + Sync> Default for PerProcess<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Drop for PerProcess<T> {
    fn drop(&mut self) {
        let made = *self.made.get_mut();
        // Another thread of the parent may have been changing the value during the fork.
        // SAFETY: null, or a box that lives until the next line.
        if unsafe { made.as_ref() }.is_some_and(|made| !made.origin.is_inherited()) {
            // SAFETY: a box of this process, which no one else refers to any more.
            drop(unsafe { Box::from_raw(made) });
        }
    }
}
