//! Threads on one allocator: no two threads hold the same byte, and at the end the statistics are consistent.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::thread;

use cachette::hal::{Device, Ordinal};
use cachette::{Allocation, Allocator, Config, Error, Stream};
use cachette_hal_host::{HostBackend, HostConfig, HostDevice, Live};

const KIB: u64 = 1 << 10;
const THREADS: u64 = 4;
const SEEDS: u64 = 60;

/// A random number generator with the same sequence on every platform.
struct Draw(u64);

impl Draw {
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
    fn take(&self, allocation: &Allocation<HostDevice>) {
        let (start, end) = (allocation.address(), allocation.address() + allocation.bytes());
        let mut held = self.0.lock().unwrap();
        let before = held.range(..end).next_back();
        assert!(before.is_none_or(|(_, other)| *other <= start), "two threads hold {start:#x}");
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
                let most = if draw.below(4) == 0 { 3000 * KIB } else { 4 * KIB };
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

/// Runs several threads on an allocator configured by `text`, on a device configured by `host`.
fn run(host: HostConfig, text: &str, seed: u64) {
    let device = HostBackend::new(host).unwrap().device(Ordinal(0)).unwrap();
    let config: Config = text.parse().unwrap();
    let allocator = Allocator::with_config(device.clone(), &config);
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
        let setting = ["default", "compact", "quick"][usize::try_from(seed % 3).unwrap()];
        let limit = 24 + seed % 2 * 40;
        let text = format!("expandable_segments:True,elastic_setting:{setting},memory_limit:{limit}M");
        // For half of the seeds the device has worker threads.
        let host = if seed % 4 < 2 { host } else { host.stepped(seed) };
        let host = if seed % 5 == 0 { host.refusing_aliases() } else { host };
        run(host, &text, seed);
    }
}

/// Every thread fills its allocations with distinct bytes on the stream, and reads them before it frees them.
#[test]
fn threads_find_in_elastic_memory_what_they_wrote() {
    let host = HostConfig::default().capacity(48 << 20);
    find_what_they_wrote(host.clone());
    find_what_they_wrote(host.refusing_aliases());
}

fn find_what_they_wrote(host: HostConfig) {
    let device = HostBackend::new(host).unwrap().device(Ordinal(0)).unwrap();
    let config: Config = "expandable_segments:True,memory_limit:32M".parse().unwrap();
    let allocator = Allocator::with_config(device.clone(), &config);
    let streams: Vec<_> = (0..3).map(|_| allocator.create_stream().unwrap()).collect();
    thread::scope(|scope| {
        for thread in 1..=3_u8 {
            let (allocator, streams, device) = (&allocator, &streams, &device);
            scope.spawn(move || write_and_read(allocator, streams, device, thread));
        }
    });
    allocator.check().unwrap();
    drop((streams, allocator));
    assert_eq!(device.physical_bytes(), 0);
}

fn write_and_read(allocator: &Allocator<HostDevice>, streams: &[Stream<HostDevice>], device: &HostDevice, thread: u8) {
    let transfer = device.transfer().unwrap();
    let mut draw = Draw(u64::from(thread));
    for round in 0..60_u8 {
        let stream = &streams[usize::try_from(draw.below(3)).unwrap()];
        let bytes = 600 * KIB + draw.below(5000 * KIB);
        let memory = match allocator.allocate(bytes, stream) {
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
