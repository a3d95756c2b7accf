//! The device's stream-ordered pool.

use cachette_hal::{Call, DevicePtr, ErrorKind, Result, StreamOrdered, StreamRef};

use crate::checks::error;
use crate::defect::Defect;
use crate::device::{HostDevice, device_ptr};
use crate::engine::Work;
use crate::engine::machine::Machine;
use crate::engine::pool::Pool;
use crate::space::{Kind, Range};

impl HostDevice {
    /// Allocates new memory for the pool. If there is none, frees the unused ranges first.
    fn grow_pool(&self, pool: &mut Pool, bytes: u64) -> Result<u64, ErrorKind> {
        let idle = false;
        let pooled = |extent| Kind::Pooled { extent, idle };
        let at = match self.take_memory(bytes, pooled) {
            Err(ErrorKind::OutOfMemory) => {
                self.trim_pool(pool, 0);
                self.take_memory(bytes, pooled)?
            }
            taken => taken?,
        };
        pool.insert(at, bytes);
        Ok(at)
    }

    fn trim_pool(&self, pool: &mut Pool, keep: u64) {
        let mut space = self.machine().write_space();
        for at in pool.trim(keep) {
            let idle = |range: &Range| matches!(range.kind, Kind::Pooled { idle: true, .. });
            space.remove(at, self.index, idle);
        }
    }
}

impl Machine {
    fn set_idle(&self, at: u64, now: bool) {
        if let Some(range) = self.write_space().ranges.get_mut(&at)
            && let Kind::Pooled { idle, .. } = &mut range.kind
        {
            *idle = now;
        }
    }

    /// Returns a range to the pool, unless it was reused before.
    pub(crate) fn return_to_pool(&self, device: usize, at: u64, ticket: u64) {
        let mut pool = self.units[device].pool.lock();
        if pool.end_free(at, ticket) {
            self.set_idle(at, true);
        }
    }
}

impl StreamOrdered for HostDevice {
    unsafe fn allocate_on(&self, bytes: u64, stream: StreamRef) -> Result<DevicePtr> {
        let call = self.enter(Call::AllocateOn)?;
        self.check_size(call, bytes)?;
        let machine = self.machine();
        let key = machine.uncaptured(call, self.index, stream)?;
        let mut pool = self.unit().pool.lock();
        if let Some(at) = pool.reuse(bytes, key, self.lies(Defect::StreamOrderedFreeEarly)) {
            machine.set_idle(at, false);
            return device_ptr(call, at);
        }
        let at = self.grow_pool(&mut pool, bytes).map_err(|kind| self.no_memory(call, kind))?;
        device_ptr(call, at)
    }

    unsafe fn free_on(&self, ptr: DevicePtr, stream: StreamRef) -> Result<()> {
        let call = self.enter(Call::FreeOn)?;
        let (machine, at) = (self.machine(), ptr.address());
        let key = machine.uncaptured(call, self.index, stream)?;
        let ticket = self.unit().pool.lock().begin_free(at, key).ok_or(error(call, ErrorKind::InvalidValue))?;
        let work = Work::Free { at, ticket };
        let queued = machine.submit_uncaptured(call, self.index, stream, work);
        if queued.is_err() {
            self.unit().pool.lock().undo_free(at, ticket);
        }
        queued
    }

    fn trim(&self, keep: u64) -> Result<()> {
        self.enter(Call::Trim)?;
        if !self.lies(Defect::TrimDoesNothing) {
            self.trim_pool(&mut self.unit().pool.lock(), keep);
        }
        Ok(())
    }
}
