//! Threads on one allocator: no two hold the same byte, and in the end everything is accounted for.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::thread;

use cachette::hal::{Device, Ordinal};
use cachette::{Allocation, Allocator, Error, Stream};
use cachette_hal_host::{HostBackend, HostConfig, HostDevice};

const KIB: u64 = 1 << 10;
const THREADS: u64 = 4;
const SEEDS: u64 = 60;

/// A generator that is the same everywhere.
struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        (mixed ^ (mixed >> 31)) % bound
    }
}

/// Every range that somebody holds.
#[derive(Default)]
struct Held(Mutex<BTreeMap<u64, u64>>);

impl Held {
    fn take(&self, allocation: &Allocation<HostDevice>) {
        let (start, end) = (
            allocation.address(),
            allocation.address() + allocation.bytes(),
        );
        let mut held = self.0.lock().unwrap();
        let before = held.range(..end).next_back();
        assert!(
            before.is_none_or(|(_, other)| *other <= start),
            "two threads hold {start:#x}"
        );
        held.insert(start, end);
    }

    fn give(&self, allocation: &Allocation<HostDevice>) {
        self.0.lock().unwrap().remove(&allocation.address());
    }
}

fn work(
    allocator: &Allocator<HostDevice>,
    streams: &[Stream<HostDevice>],
    held: &Held,
    device: &HostDevice,
    mut draw: Draw,
) {
    let mut mine: Vec<Allocation<HostDevice>> = Vec::new();
    for _ in 0..150 {
        let stream = &streams[usize::try_from(draw.below(streams.len() as u64)).unwrap()];
        match draw.below(8) {
            0..=3 => {
                let most = if draw.below(4) == 0 {
                    3000 * KIB
                } else {
                    4 * KIB
                };
                let bytes = 1 + draw.below(most);
                match allocator.allocate(bytes, stream) {
                    Ok(allocation) => {
                        held.take(&allocation);
                        mine.push(allocation);
                    }
                    Err(Error::OutOfMemory(_)) => {}
                    Err(error) => panic!("{error}"),
                }
            }
            4 | 5 if !mine.is_empty() => {
                let at = usize::try_from(draw.below(mine.len() as u64)).unwrap();
                let allocation = mine.swap_remove(at);
                held.give(&allocation);
                drop(allocation);
            }
            6 if !mine.is_empty() => mine[0].record_stream(stream),
            7 => {
                let _ = device.step();
                if draw.below(10) == 0 {
                    allocator.empty_cache().unwrap();
                }
            }
            _ => {}
        }
    }
    for allocation in mine {
        held.give(&allocation);
    }
}

#[test]
fn threads_never_share_a_byte_and_leave_nothing_behind() {
    for seed in 0..SEEDS {
        let config = HostConfig::default()
            .phantom(true)
            .capacity(64 << 20)
            .stepped(seed);
        let device = HostBackend::new(config)
            .unwrap()
            .device(Ordinal(0))
            .unwrap();
        let allocator = Allocator::new(device.clone());
        let streams: Vec<_> = (0..3).map(|_| allocator.create_stream().unwrap()).collect();
        let held = Held::default();
        thread::scope(|scope| {
            for thread in 0..THREADS {
                let (allocator, streams, held, device) = (&allocator, &streams, &held, &device);
                let draw = Draw(seed * 1000 + thread);
                scope.spawn(move || work(allocator, streams, held, device, draw));
            }
        });
        device.synchronize_device().unwrap();
        allocator.empty_cache().unwrap();
        allocator.check().unwrap();
        let stats = allocator.stats();
        assert_eq!(stats.active.all.current, 0, "seed {seed}");
        assert_eq!(stats.reserved_bytes.all.current, 0, "seed {seed}");
        assert_eq!(stats.allocation.all.allocated, stats.allocation.all.freed);
        assert!(stats.allocated_bytes.all.peak >= stats.allocated_bytes.small_pool.peak);
    }
}
