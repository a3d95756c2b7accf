//! Which of the driver's pools are served.
//!
//! A program may allocate from a pool that it names. Cachette serves the default pool of a device, and pools that the
//! program made for plain memory of a device. Memory of other pools has properties that Cachette's has not: it is on
//! the host, it can be exported, or other devices have access to it. The driver serves those. A request that names no
//! pool uses the current pool of its device, and the same holds for it.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_ushort, c_void};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use cachette::hal::Guarded;

use crate::entry::Thread;
use crate::served::Served;
use crate::status::Refusal;

/// The first fields of `CUmemPoolProps` and `hipMemPoolProps`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Properties {
    kind: c_int,
    handle_types: c_int,
    location_kind: c_int,
    location: c_int,
    security: *mut c_void,
    most_bytes: usize,
    usage: c_ushort,
}

impl Properties {
    /// The device, if the pool has plain memory of one.
    pub(crate) fn device(&self) -> Option<u32> {
        const PINNED: c_int = 1;
        const DEVICE: c_int = 1;
        let is_plain = self.kind == PINNED && self.handle_types == 0 && self.most_bytes == 0 && self.usage == 0;
        if is_plain && self.location_kind == DEVICE { u32::try_from(self.location).ok() } else { None }
    }
}

/// The pools that are known, and those that are in use for plain requests.
#[derive(Debug)]
struct Pools {
    /// Each with the device that serves it; `None` for the driver.
    known: BTreeMap<usize, Option<u32>>,
    /// The pool of each device that no longer uses its default one.
    chosen: BTreeMap<u32, usize>,
}

static POOLS: Guarded<Pools> = Guarded::new(Pools { known: BTreeMap::new(), chosen: BTreeMap::new() });
/// Counts changes of the list. Relaxed: a program that destroys a pool orders its requests before.
static CHANGES: AtomicU64 = AtomicU64::new(1);
/// The devices whose plain requests use a pool of the driver, one bit for each. Relaxed: a program orders the choice of a
/// pool and its requests.
static LEFT: AtomicU64 = AtomicU64::new(0);

/// Lets every thread look its pool up again.
pub(crate) fn changed() {
    CHANGES.fetch_add(1, Relaxed);
}

/// Notes who serves a pool.
pub(crate) fn note(pool: usize, device: Option<u32>) {
    POOLS.lock().known.insert(pool, device);
    changed();
}

/// Whether the driver serves the plain requests of a device, because it serves the device's current pool.
#[inline]
pub(crate) fn is_left(device: u32) -> bool {
    LEFT.load(Relaxed) & 1_u64.checked_shl(device).unwrap_or(0) != 0
}

/// Notes the pool that a device uses for plain requests.
pub(crate) fn choose(device: u32, pool: usize, default_of: impl Fn(u32) -> Option<usize>) {
    let mut pools = POOLS.lock();
    pools.chosen.insert(device, pool);
    pools.refresh(default_of);
}

/// One entry of `cuMemPoolSetAccess` and `hipMemPoolSetAccess`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Right {
    location_kind: c_int,
    location: c_int,
    flags: c_int,
}

/// Leaves a pool to the driver if another device than its own gets access.
pub(crate) fn grant(pool: usize, rights: &[Right], default_of: impl Fn(u32) -> Option<usize>) {
    let mut pools = POOLS.lock();
    let device = pools.device_of(pool, &default_of);
    let is_own = |right: &Right| u32::try_from(right.location).ok() == device;
    if !rights.iter().all(is_own) {
        pools.known.insert(pool, None);
        pools.refresh(default_of);
        changed();
    }
}

/// Forgets a pool that is destroyed. A device that used it uses its default pool again.
pub(crate) fn forget(pool: usize, default_of: impl Fn(u32) -> Option<usize>) {
    let mut pools = POOLS.lock();
    pools.known.remove(&pool);
    pools.chosen.retain(|_, chosen| *chosen != pool);
    pools.refresh(default_of);
    changed();
}

impl Pools {
    /// The device that serves a pool; `None` for the driver.
    fn device_of(&self, pool: usize, default_of: impl Fn(u32) -> Option<usize>) -> Option<u32> {
        self.known.get(&pool).copied().unwrap_or_else(|| {
            let mut devices = (0..).map_while(|device| Some((device, default_of(device)?)));
            devices.find(|(_, default)| *default == pool).map(|(device, _)| device)
        })
    }

    /// Derives again which devices are left to the driver.
    fn refresh(&self, default_of: impl Fn(u32) -> Option<usize>) {
        let mut left = 0;
        for (device, default) in (0..u64::BITS).map_while(|device| Some((device, default_of(device)?))) {
            let current = self.chosen.get(&device).copied().unwrap_or(default);
            if self.device_of(current, &default_of) != Some(device) {
                left |= 1 << device;
            }
        }
        LEFT.store(left, Relaxed);
    }
}

/// What serves a pool. `default_of` tells the default pool of a device, `open` opens a device.
#[inline]
pub(crate) fn served(
    thread: &Thread,
    pool: usize,
    default_of: impl Fn(u32) -> Option<usize>,
    open: impl FnOnce(u32) -> Result<&'static Served, Refusal>,
) -> Result<&'static Served, Refusal> {
    let now = CHANGES.load(Relaxed);
    let (last, changes, served) = thread.pool.get();
    if last == pool && changes == now {
        return served.ok_or(Refusal::Driver);
    }
    let device = POOLS.lock().device_of(pool, default_of);
    let served = device.ok_or(Refusal::Driver).and_then(open);
    thread.pool.set((pool, now, served.ok()));
    served
}

#[cfg(test)]
mod tests {
    use std::ptr;

    use super::*;

    #[test]
    fn only_plain_memory_of_a_device_is_served() {
        let plain = Properties {
            kind: 1,
            handle_types: 0,
            location_kind: 1,
            location: 3,
            security: ptr::null_mut(),
            most_bytes: 0,
            usage: 0,
        };
        assert_eq!(plain.device(), Some(3));
        assert_eq!(Properties { handle_types: 1, ..plain }.device(), None);
        assert_eq!(Properties { location_kind: 2, ..plain }.device(), None);
        assert_eq!(Properties { most_bytes: 1 << 20, ..plain }.device(), None);
        assert_eq!(Properties { kind: 2, ..plain }.device(), None);
    }
}
