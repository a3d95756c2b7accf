//! The state of a slot.

use std::ffi::c_int;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use cachette::hal::{Ordinal, StreamRef};
use cachette::pool::PoolStats;
use cachette::{Allocator, Label, Pool, PoolOptions};
use cachette_process as process;

use super::SlotOptions;
use crate::entry::{number_of, of_memory};
use crate::error::Error;

/// The state of a slot.
///
/// Its atomics are relaxed: a slot is retired when its owner makes no more requests, and counts are read when all calls
/// have returned.
#[derive(Debug)]
pub(super) struct Serving {
    options: SlotOptions,
    devices: [OnceLock<Pool>; process::MOST_DEVICES],
    /// The number of live allocations.
    live: AtomicU64,
    retired: AtomicBool,
}

impl Serving {
    pub(super) fn new(options: SlotOptions) -> Self {
        Self {
            options,
            devices: [const { OnceLock::new() }; process::MOST_DEVICES],
            live: AtomicU64::new(0),
            retired: AtomicBool::new(false),
        }
    }

    pub(super) const fn options(&self) -> &SlotOptions {
        &self.options
    }

    /// Rejects further requests.
    pub(super) fn retire(&self) {
        self.retired.store(true, Relaxed);
    }

    /// Returns whether it is no longer in use.
    pub(super) fn is_over(&self) -> bool {
        self.retired.load(Relaxed) && self.live.load(Relaxed) == 0
    }

    /// The pool on a device, created at first use.
    pub(super) fn at(&self, device: u32) -> Result<&Pool, Error> {
        if process::is_forked() {
            return Err(process::Error::Forked.into());
        }
        let place = self.devices.get(device as usize);
        let place = place.ok_or(process::Error::NoSuchDevice { device: device.into() })?;
        if let Some(pool) = place.get() {
            return Ok(pool);
        }
        let made = self.make(device)?;
        // If another thread was faster, this pool is dropped unused.
        Ok(place.get_or_init(|| made))
    }

    fn make(&self, device: u32) -> Result<Pool, Error> {
        let allocator = Allocator::with_config(process::open_device(device)?, &self.options.config);
        let failed = |error| of_memory(&allocator, error);
        let mut options = PoolOptions::new().no_split(self.options.no_split);
        if let Some(name) = self.options.source {
            // SAFETY: 1. is promise 1 of `Slot::create`.
            let source = unsafe { name.open(Ordinal(device)) };
            options = options.source(source.map_err(|error| failed(error.into()))?);
        }
        allocator.create_pool_with(options).map_err(failed)
    }

    /// Allocates in the pool of a device.
    ///
    /// # Safety
    ///
    /// As for [`cachette_torch_alloc`](crate::cachette_torch_alloc).
    pub(super) unsafe fn allocate(&self, bytes: u64, device: c_int, stream: StreamRef) -> Result<u64, Error> {
        if bytes == 0 {
            return Ok(0);
        }
        if self.retired.load(Relaxed) {
            return Err(Error::SlotDropped);
        }
        let pool = self.at(number_of(device)?)?;
        let failed = |error| of_memory(pool.allocator(), error);
        // SAFETY: the caller's promises.
        let stream = unsafe { pool.allocator().adopt_stream(stream) }.map_err(failed)?;
        let allocation = pool.allocate(bytes, &stream).map_err(failed)?;
        self.live.fetch_add(1, Relaxed);
        Ok(allocation.into_raw_as(Label::TORCH))
    }

    /// Frees memory of a device.
    ///
    /// PyTorch has its own cache, and frees a segment to release the memory. So unused memory is released to the
    /// driver.
    pub(super) fn free(&self, address: u64, device: c_int) -> Result<(), Error> {
        let pool = self.at(number_of(device)?)?;
        let failed = |error| of_memory(pool.allocator(), error);
        pool.allocator().free_raw(address).map_err(failed)?;
        self.live.fetch_sub(1, Relaxed);
        pool.empty_cache().map_err(failed)?;
        Ok(())
    }

    pub(super) fn stats(&self, device: u32) -> Option<PoolStats> {
        Some(self.devices.get(device as usize)?.get()?.stats())
    }
}
