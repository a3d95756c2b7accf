//! Threads on one allocator: no two threads hold the same byte, and at the end the statistics are consistent.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::thread;

use cachette::Error;
use cachette::hal::Device;
use cachette_hal_host::{HostConfig, Live};

use crate::fixture::{Allocation, KIB, Stream, TestAllocator};

const THREADS: u64 = 4;
const SEEDS: u64 = 60;

/// A random number generator with the same sequence on every platform.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        (mixed ^ (mixed >> 31)) % bound
    }
}

/// Every range that a thread holds.
#[derive(Default)]
struct Held(Mutex<BTreeMap<u64, u64>>);

impl Held {
    fn take(&self, allocation: &Allocation) {
        let (start, end) = (allocation.address(), allocation.address() + allocation.bytes());
        let mut held = self.0.lock().unwrap();
        let before = held.range(..end).next_back();
        assert!(before.is_none_or(|(_, other)| *other <= start), "two threads hold {start:#x}");
        held.insert(start, end);
    }

    fn give(&self, allocation: &Allocation) {
        self.0.lock().unwrap().remove(&allocation.address());
    }
}

fn work(test: &TestAllocator, streams: &[Stream], held: &Held, mut random: Random) {
    let mut mine: Vec<Allocation> = Vec::new();
    for _ in 0..150 {
        let stream = &streams[usize::try_from(random.below(streams.len() as u64)).unwrap()];
        match random.below(8) {
            0..=3 => {
                let most = if random.below(4) == 0 { 3000 * KIB } else { 4 * KIB };
                let bytes = 1 + random.below(most);
                match test.allocator.allocate(bytes, stream) {
                    Ok(allocation) => {
                        held.take(&allocation);
                        mine.push(allocation);
                    }
                    Err(Error::OutOfMemory(_)) => {}
                    Err(error) => panic!("{error}"),
                }
            }
            4 | 5 if !mine.is_empty() => {
                let at = usize::try_from(random.below(mine.len() as u64)).unwrap();
                let allocation = mine.swap_remove(at);
                held.give(&allocation);
                drop(allocation);
            }
            6 if !mine.is_empty() => mine[0].record_stream(stream),
            7 => {
                let _ = test.device.step();
                if random.below(10) == 0 {
                    test.allocator.empty_cache().unwrap();
                }
            }
            _ => {}
        }
    }
    for allocation in mine {
        held.give(&allocation);
    }
}

/// Runs several threads on an allocator configured by `text`, on a device configured by `host`.
fn run(host: HostConfig, settings: &str, seed: u64) {
    let test = TestAllocator::on(host, settings);
    let (streams, held) = (test.streams::<3>(), Held::default());
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (test, streams, held) = (&test, &streams, &held);
            scope.spawn(move || work(test, streams, held, Random(seed * 1000 + thread)));
        }
    });
    let TestAllocator { device, allocator, .. } = test;
    device.synchronize_device().unwrap();
    allocator.empty_cache().unwrap();
    // What the first look was too early for.
    device.synchronize_device().unwrap();
    allocator.empty_cache().unwrap();
    allocator.check().unwrap();
    let stats = allocator.stats();
    assert_eq!(stats.active.all.current, 0, "seed {seed}");
    assert_eq!(stats.reserved_bytes.all.current, 0, "seed {seed}");
    assert_eq!(device.physical_bytes(), 0, "seed {seed}");
    assert_eq!(stats.allocation.all.allocated, stats.allocation.all.freed);
    assert!(stats.allocated_bytes.all.peak >= stats.allocated_bytes.small_pool.peak);
    drop((streams, allocator));
    assert_eq!(device.live(), Live::default(), "seed {seed}");
}

#[test]
fn threads_never_share_a_byte_and_leave_nothing_behind() {
    for seed in 0..SEEDS {
        let host = HostConfig::default().phantom(true).capacity(64 << 20);
        run(host.stepped(seed), "", seed);
    }
}

#[test]
fn threads_never_share_a_byte_of_elastic_segments() {
    for seed in 0..SEEDS {
        let host = HostConfig::default().phantom(true).capacity(64 << 20);
        let setting = if seed % 3 == 0 { "compact" } else { "default" };
        let limit = 24 + seed % 2 * 40;
        let text = format!("expandable_segments:True,elastic_setting:{setting},memory_limit:{limit}M");
        // For half of the seeds the device has worker threads.
        let host = if seed % 4 < 2 { host } else { host.stepped(seed) };
        let host = if seed % 5 == 0 { host.refusing_aliases(1) } else { host };
        run(host, &text, seed);
    }
}

/// Every thread fills its allocations with distinct bytes on the stream, and reads them before it frees them.
#[test]
fn threads_find_in_elastic_memory_what_they_wrote() {
    let host = HostConfig::default().capacity(48 << 20);
    find_what_they_wrote(host.clone());
    find_what_they_wrote(host.refusing_aliases(1));
}

fn find_what_they_wrote(host: HostConfig) {
    let test = TestAllocator::on(host, "expandable_segments:True,memory_limit:32M");
    let streams = test.streams::<3>();
    thread::scope(|scope| {
        for thread in 1..=3_u8 {
            let (test, streams) = (&test, &streams);
            scope.spawn(move || write_and_read(test, streams, thread));
        }
    });
    drop(streams);
    test.assert_returns_everything();
}

fn write_and_read(test: &TestAllocator, streams: &[Stream], thread: u8) {
    let transfer = test.device.transfer().unwrap();
    let mut random = Random(u64::from(thread));
    for round in 0..60_u8 {
        let stream = &streams[usize::try_from(random.below(3)).unwrap()];
        let bytes = 600 * KIB + random.below(5000 * KIB);
        let memory = match test.allocator.allocate(bytes, stream) {
            Ok(memory) => memory,
            Err(Error::OutOfMemory(_)) => continue,
            Err(error) => panic!("{error}"),
        };
        let byte = thread * 64 + round;
        let (at, length) = (memory.ptr().unwrap(), usize::try_from(bytes).unwrap());
        let mut read = vec![0; length];
        // SAFETY: 1. the stream is live. 3. the memory is allocated.
        unsafe { transfer.fill(at, byte, bytes, stream.handle()) }.unwrap();
        // SAFETY: as above, and 4. `read` is not touched before the stream has been waited for.
        unsafe { transfer.download(read.as_mut_ptr(), at, length, stream.handle()) }.unwrap();
        drop(memory);
        stream.synchronize().unwrap();
        assert!(read == vec![byte; length], "thread {thread}, round {round}");
    }
}
