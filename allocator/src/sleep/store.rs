//! Host memory that keeps the contents of what sleeps.

use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cachette_hal::{self as hal, Device};

use crate::lane::Lane;
use crate::shared::Shared;

/// The size of every piece but those for small contents: large enough for full speed, small enough to be found.
const SLAB: u64 = 64 << 20;

/// Host memory of one piece: page-locked where the device has such.
#[derive(Debug)]
pub(super) struct Slab<D: Device> {
    shared: Arc<Shared<D>>,
    start: NonNull<u8>,
    bytes: usize,
    pinned: bool,
}

// SAFETY: the memory has no thread of its own, and whoever has the slab is alone with it.
unsafe impl<D: Device> Send for Slab<D> {}

impl<D: Device> Slab<D> {
    /// Makes one; `None` if the host has no memory.
    fn allocate(shared: &Arc<Shared<D>>, bytes: usize) -> Option<Self> {
        let pinned = shared
            .device
            .host_memory()
            .ok()
            .and_then(|host| host.allocate_pinned(bytes).ok());
        let start = match pinned {
            Some(start) => start,
            None => ordinary(bytes)?,
        };
        Some(Self {
            shared: Arc::clone(shared),
            start,
            bytes,
            pinned: pinned.is_some(),
        })
    }

    pub(super) const fn start(&self) -> NonNull<u8> {
        self.start
    }

    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Memory of the host that is not page-locked: copies are slower, and right.
fn ordinary(bytes: usize) -> Option<NonNull<u8>> {
    let mut memory = Vec::new();
    memory.try_reserve_exact(bytes).ok()?;
    memory.resize(bytes, 0_u8);
    NonNull::new(Box::into_raw(memory.into_boxed_slice()).cast())
}

impl<D: Device> Drop for Slab<D> {
    fn drop(&mut self) {
        if !self.pinned {
            let memory = std::ptr::slice_from_raw_parts_mut(self.start.as_ptr(), self.bytes);
            // SAFETY: it is the box that was made in `ordinary`, and the slab was alone with it.
            drop(unsafe { Box::from_raw(memory) });
            return;
        }
        if let Ok(host) = self.shared.device.host_memory() {
            // SAFETY: 1. it was made by this device. 2. No copy is under way when a slab goes.
            // A destructor has nobody to tell of a failure.
            let _ = unsafe { host.free_pinned(self.start) };
        }
    }
}

/// Slabs that nobody needs now, for the next to sleep.
#[derive(Debug)]
pub(crate) struct Store<D: Device> {
    idle: Mutex<Vec<Slab<D>>>,
    /// The stream of all copies to the host and back.
    copies: Mutex<Option<Arc<Lane<D>>>>,
}

impl<D: Device> Default for Store<D> {
    fn default() -> Self {
        Self {
            idle: Mutex::new(Vec::new()),
            copies: Mutex::new(None),
        }
    }
}

impl<D: Device> Store<D> {
    /// The stream of all copies to the host and back.
    pub(super) fn copies(&self, shared: &Arc<Shared<D>>) -> hal::Result<Arc<Lane<D>>> {
        let mut copies = self.copies.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(lane) = &*copies {
            return Ok(Arc::clone(lane));
        }
        let lane = Arc::new(Lane::create(Arc::clone(shared))?);
        *copies = Some(Arc::clone(&lane));
        Ok(lane)
    }

    /// Slabs of `bytes` in all, at least; `None` if the host has too little memory.
    pub(super) fn take(&self, shared: &Arc<Shared<D>>, bytes: u64) -> Option<Vec<Slab<D>>> {
        let mut taken: Vec<Slab<D>> = Vec::new();
        let mut left = bytes;
        while left > 0 {
            let idle = self.idle().pop();
            let Some(slab) = idle.or_else(|| {
                let size = usize::try_from(left.min(SLAB)).ok()?;
                Slab::allocate(shared, size)
            }) else {
                self.put_back(taken);
                return None;
            };
            left = left.saturating_sub(slab.bytes() as u64);
            taken.push(slab);
        }
        Some(taken)
    }

    /// Keeps slabs for the next to sleep.
    pub(super) fn put_back(&self, slabs: Vec<Slab<D>>) {
        self.idle().extend(slabs);
    }

    /// Gives what is idle back to the host; its bytes.
    pub(crate) fn clear(&self) -> u64 {
        let idle = std::mem::take(&mut *self.idle());
        idle.iter().map(|slab| slab.bytes() as u64).sum()
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Slab<D>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
