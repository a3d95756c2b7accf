//! Saved addresses: pools that are restored where they were.
//!
//! The tests are a separate program and run one after the other: another thread that maps memory between the end of a
//! pool and its restore could get the addresses.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod failures;
mod linear;
mod random;
mod refusals;
mod round_trip;
mod text;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cachette::addresses::Addresses;
use cachette::hal::{AnyDevice, Device, DevicePtr, Ordinal};
use cachette::{AddressesProblem, Allocation, Allocator, Error, Pool, Stream};
use cachette_hal_host::{HostBackend, HostConfig, HostDevice, Live};

const MIB: u64 = 1 << 20;
const PAGE: u64 = 2 * MIB;

static TURN: Mutex<()> = Mutex::new(());

/// An elastic allocator on a host device, while no other test runs.
struct Bed {
    device: HostDevice,
    allocator: Allocator,
    turn: MutexGuard<'static, ()>,
}

impl Bed {
    fn new() -> Self {
        Self::on(HostConfig::default())
    }

    fn on(host: HostConfig) -> Self {
        Self::with(host, "expandable_segments:True")
    }

    fn with(host: HostConfig, config: &str) -> Self {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let device = HostBackend::new(host).unwrap().device(Ordinal(0)).unwrap();
        let allocator = Allocator::with_config(Arc::new(device.clone()) as AnyDevice, &config.parse().unwrap());
        Self { device, allocator, turn }
    }

    fn stream(&self) -> Stream {
        self.allocator.create_stream().unwrap()
    }

    /// A pool with blocks of these sizes, whose second and then every third block is free again.
    fn pool(&self, sizes: &[u64], stream: &Stream) -> (Pool, Vec<Allocation>) {
        let pool = self.allocator.create_pool();
        let blocks = sizes.iter().map(|bytes| Some(pool.allocate(*bytes, stream).unwrap()));
        let mut blocks: Vec<_> = blocks.collect();
        blocks.iter_mut().skip(1).step_by(3).for_each(|block| *block = None);
        (pool, blocks.into_iter().flatten().collect())
    }

    /// The addresses of such a pool, which is gone.
    fn saved(&self, sizes: &[u64], stream: &Stream) -> Addresses {
        let (pool, blocks) = self.pool(sizes, stream);
        let saved = pool.save_addresses().unwrap();
        drop((blocks, pool));
        saved
    }

    fn fill(&self, memory: &Allocation, byte: u8, stream: &Stream) {
        // SAFETY: 1. 3. the stream and the memory live until the stream has been waited for.
        unsafe { self.device.transfer().unwrap().fill(memory.ptr().unwrap(), byte, memory.bytes(), stream.handle()) }
            .unwrap();
    }

    /// Whether every byte of a range is `byte`, after all work of the stream.
    fn holds(&self, at: u64, bytes: u64, byte: u8, stream: &Stream) -> bool {
        let mut read = vec![!byte; usize::try_from(bytes).unwrap()];
        let at = DevicePtr::new(at).unwrap();
        // SAFETY: 1. 3. 4. all of it lives until the stream has been waited for.
        unsafe { self.device.transfer().unwrap().download(read.as_mut_ptr(), at, read.len(), stream.handle()) }
            .unwrap();
        stream.synchronize().unwrap();
        read.iter().all(|read| *read == byte)
    }

    /// Drops what has memory or streams of the allocator, and then that: the device has everything back.
    fn close<T>(self, last: T) {
        let Self { device, allocator, turn: _turn } = self;
        drop(last);
        allocator.check().unwrap();
        drop(allocator);
        assert_eq!(device.live(), Live::default());
        assert_eq!(device.physical_bytes(), 0);
    }
}

/// Checks that blocks are where, and as large as, they were saved.
fn assert_places(saved: &Addresses, blocks: &[Allocation]) {
    let found: Vec<_> = blocks.iter().map(|block| (block.address(), block.bytes(), block.requested())).collect();
    let wanted: Vec<_> = saved.blocks().iter().map(|saved| (saved.address, saved.bytes, saved.requested)).collect();
    assert_eq!(found, wanted);
}

fn problem<T: std::fmt::Debug>(result: Result<T, Error>) -> AddressesProblem {
    match result {
        Err(Error::Addresses(problem)) => *problem,
        other => panic!("{other:?} is no problem of saved addresses"),
    }
}
