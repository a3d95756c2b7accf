//! The steps of a request when no block of its size is free.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use cachette_hal::{self as hal, Device, ErrorKind};

use super::bucket::{PinnedPlace, PinnedState};
use super::cache::{PinnedBlock, PinnedCache};
use super::memory::{PinnedMemory, PinnedReserve};
use crate::config::Config;
use crate::error::Error;
use crate::sync::lock;

impl<D: Device> PinnedCache<D> {
    /// Finds a block if none is free: one whose uses have ended, or one from the driver. If the driver has no memory,
    /// it asks again after it has released all free blocks, and after all uses have ended.
    #[cold]
    #[inline(never)]
    pub(super) fn allocate_slow(
        &self,
        bucket: u32,
        requested: usize,
        state: PinnedState,
    ) -> Result<PinnedBlock, Error> {
        self.shared.origin.check()?;
        self.driver()?;
        lock::prepare();
        let _relaxed = self.shared.relax_capture();
        let blocks = !self.shared.settings.never_block.load(Relaxed);
        for (attempt, waits) in [false, false, true].into_iter().enumerate() {
            if attempt > 0 && !blocks || waits && !self.wait_for_uses()? {
                break;
            }
            self.process_events()?;
            if let Some(allocated) = self.take_free(bucket, state) {
                return Ok(allocated);
            }
            if attempt > 0 {
                // It also waits for what another thread returns. Blocks that the driver fails to free remain available.
                let _ = self.release_free();
            }
            if let Some(allocated) = self.alloc_segment(bucket, state)? {
                return Ok(allocated);
            }
        }
        let figures = self.stats();
        Err(Error::OutOfPinnedMemory {
            requested: requested as u64,
            block: 1 << bucket,
            held: figures.allocated_bytes.current,
            active: figures.active_bytes.current,
        })
    }

    fn alloc_segment(&self, bucket: u32, state: PinnedState) -> hal::Result<Option<PinnedBlock>> {
        let bytes = 1 << bucket;
        let config = self.shared.settings.config();
        let memory = match self.cut_reserve(bytes, &config).map_or_else(|| self.make(bytes, &config), Ok) {
            Err(error) if error.kind() == ErrorKind::OutOfMemory => return Ok(None),
            made => made?,
        };
        let slot = self.buckets[bucket as usize].lock().add(memory, state);
        let place = PinnedPlace { bucket, slot };
        self.table.lock().insert(memory.address(), place);
        let mut totals = self.totals.lock();
        totals.allocations.raise(1);
        totals.allocated_bytes.raise(bytes as u64);
        Ok(Some((place, memory.ptr)))
    }

    /// Cuts a block from the reserve segment. The first request allocates the segment, if it is configured.
    fn cut_reserve(&self, bytes: usize, config: &Config) -> Option<PinnedMemory> {
        let wanted = usize::try_from(config.pinned_reserve_segment_bytes()?).ok()?;
        // Only misses get here. A concurrent miss waits for the new segment and uses a part of it.
        let mut reserve = self.reserve.lock();
        if reserve.is_none() {
            // Without a segment, every block is allocated separately.
            *reserve = Some(PinnedReserve { segment: self.make(wanted, config).ok()?, bytes: wanted, used: 0 });
        }
        reserve.as_mut()?.cut(bytes)
    }

    fn make(&self, bytes: usize, config: &Config) -> hal::Result<PinnedMemory> {
        let begun = Instant::now();
        let memory = PinnedMemory::make(self.driver()?, bytes, config)?;
        let mut totals = self.totals.lock();
        totals.num_host_alloc += 1;
        totals.host_alloc_time.add(begun.elapsed());
        Ok(memory)
    }
}
