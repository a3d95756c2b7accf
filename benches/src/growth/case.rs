//! The operations whose growth is counted.

use std::sync::Arc;
use std::thread;

use cachette::addresses::AddressRange;
use cachette::evict::Priority;
use cachette::history::HistoryOptions;
use cachette::{Allocation, Allocator, Config, Label, Pool, PoolOptions, Stream};
use cachette_hal::{AnyDevice, Call, CaptureMode, Ordinal};
use cachette_hal_host::{HostBackend, HostConfig, HostDevice};

use super::measured;

/// The error of a case.
type Stopped = Box<dyn std::error::Error>;

/// Room for 32,000 segments of each kind.
const CAPACITY: u64 = 16 << 40;
const SMALL: u64 = 512;
const LARGE: u64 = 12 << 20;
const DIRECT: &str = "expandable_segments:False";
/// The host has too few addresses for the usual reserve of so many streams.
const RESERVE: &str = "expandable_segments_reserve:1G";

/// One operation, made as often as there are things of one kind, on a host device with phantom memory.
#[derive(Clone, Copy, Debug)]
pub struct Growing {
    /// The name that tables and options use.
    pub name: &'static str,
    /// Makes the operation that many times.
    pub run: fn(u32) -> Result<(), Stopped>,
    /// Why it may grow, if it may.
    pub reason: Option<&'static str>,
}

const HOST: Option<&str> = Some("each reservation of the host device walks all of its address ranges");

impl Growing {
    /// Every case.
    pub const ALL: &[Self] = &[
        Self { name: "blocks: size, use and free by address", run: lookups, reason: None },
        Self { name: "pending blocks: a request short of memory, per block", run: pending, reason: None },
        Self { name: "pending blocks: free after a recorded use", run: frees, reason: None },
        Self { name: "segments: allocated, freed and released", run: segments, reason: None },
        Self { name: "pinned blocks: use and free by address", run: pinned_blocks, reason: None },
        Self { name: "pinned segments: allocated, freed and released", run: pinned_segments, reason: None },
        Self { name: "elastic segment: chunks mapped for blocks in use", run: chunks, reason: None },
        Self { name: "streams: made, used and dropped", run: dropped_streams, reason: None },
        Self { name: "streams: made and used, all live", run: |number| live_streams(number, DIRECT), reason: None },
        Self { name: "streams: the same, elastic", run: |number| live_streams(number, RESERVE), reason: HOST },
        Self { name: "pools: made, used and dropped in turn", run: pools, reason: None },
        Self { name: "pools: dropped, their memory in use", run: pools_in_use, reason: None },
        Self { name: "evictable pools: evicted at once", run: evictions, reason: None },
        Self { name: "evictable pools: a request that finds none without a guard", run: guarded, reason: None },
        Self { name: "events of a history, and its snapshot", run: events, reason: None },
        Self { name: "checkpoints: blocks saved and restored", run: checkpoints, reason: None },
        Self { name: "addresses: blocks restored", run: restored_blocks, reason: None },
        Self { name: "addresses: blocks requested at theirs", run: requests_at, reason: None },
        Self { name: "addresses: segments restored", run: restored_segments, reason: HOST },
        Self { name: "exports: shared and ended", run: exports, reason: None },
        Self { name: "captures: begun, used and ended", run: captures, reason: None },
    ];

    /// The case called `name`.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|case| case.name == name)
    }
}

fn on(capacity: u64, text: &str) -> Result<(HostDevice, Allocator), Stopped> {
    let host = HostConfig::default().phantom(true).capacity(capacity);
    let device = HostBackend::new(host)?.device(Ordinal(0))?;
    let allocator = Allocator::with_config(Arc::new(device.clone()) as AnyDevice, &text.parse::<Config>()?);
    Ok((device, allocator))
}

fn with_stream(text: &str) -> Result<(Allocator, Stream), Stopped> {
    let (_, allocator) = on(CAPACITY, text)?;
    let stream = allocator.create_stream()?;
    Ok((allocator, stream))
}

/// Calls `act`, which is counted, and returns its result.
fn count<T>(act: impl FnOnce() -> T) -> Result<T, Stopped> {
    let (mut act, mut result) = (Some(act), None);
    measured(&mut || result = act.take().map(|act| act()));
    result.ok_or_else(|| "it was not run".into())
}

fn raw_blocks(allocator: &Allocator, stream: &Stream, number: u32, bytes: u64) -> Result<Vec<u64>, Stopped> {
    // SAFETY: 1. 2. the stream is this allocator's own.
    let raw = (0..number).map(|_| unsafe { allocator.allocate_raw(bytes, stream.handle()) });
    Ok(raw.collect::<Result<_, _>>()?)
}

fn blocks(allocator: &Allocator, stream: &Stream, number: u32, bytes: u64) -> Result<Vec<Allocation>, Stopped> {
    Ok((0..number).map(|_| allocator.allocate(bytes, stream)).collect::<Result<_, _>>()?)
}

fn lookups(number: u32) -> Result<(), Stopped> {
    let (_, allocator) = on(CAPACITY, "")?;
    let [stream, side] = [allocator.create_stream()?, allocator.create_stream()?];
    let raw = raw_blocks(&allocator, &stream, number, SMALL)?;
    let served = count(|| {
        raw.iter().all(|address| {
            // SAFETY: 1. 2. the stream is this allocator's own.
            let used = unsafe { allocator.record_stream_raw(*address, side.handle()) };
            let bytes = allocator.bytes_at(*address);
            used.is_ok() && bytes.is_ok() && allocator.free_raw(*address).is_ok()
        })
    });
    if served? { Ok(()) } else { Err("a block was not found".into()) }
}

fn pending(number: u32) -> Result<(), Stopped> {
    const MIB: u64 = 1 << 20;
    let host = HostConfig::default().phantom(true).capacity(64 * MIB);
    let device = HostBackend::new(host)?.device(Ordinal(0))?;
    let allocator = Allocator::new(Arc::new(device.clone()) as AnyDevice);
    let [stream, side] = [allocator.create_stream()?, allocator.create_stream()?];
    let small = blocks(&allocator, &stream, number, (32 * MIB / u64::from(number)).next_multiple_of(SMALL))?;
    let _rest = allocator.allocate(64 * MIB - allocator.reserved_bytes(), &stream)?;
    let hold = device.hold(side.handle())?;
    for block in small {
        block.record_stream(&side);
    }
    // The request waits for the stream, whose work ends as soon as it does.
    let calls = |device: &HostDevice| device.calls(Call::Poll) + device.calls(Call::Wait);
    let before = calls(&device);
    let releaser = thread::spawn(move || {
        while calls(&device) < before + 2 {
            thread::yield_now();
        }
        hold.release();
    });
    let served = count(|| allocator.allocate(16 * MIB, &stream).map(drop));
    releaser.join().map_err(|_| "the thread that ends the work panicked")?;
    Ok(served??)
}

fn frees(number: u32) -> Result<(), Stopped> {
    let (device, allocator) = on(CAPACITY, "")?;
    let [stream, side] = [allocator.create_stream()?, allocator.create_stream()?];
    let _hold = device.hold(side.handle())?;
    let blocks = blocks(&allocator, &stream, number, SMALL)?;
    count(|| {
        for block in blocks {
            block.record_stream(&side);
            drop(block);
        }
    })
}

fn segments(number: u32) -> Result<(), Stopped> {
    let (allocator, stream) = with_stream(DIRECT)?;
    count(|| {
        drop(blocks(&allocator, &stream, number, LARGE)?);
        Ok::<_, Stopped>(allocator.empty_cache()?)
    })?
    .map(drop)
}

fn pinned_blocks(number: u32) -> Result<(), Stopped> {
    let (allocator, stream) = with_stream("")?;
    let pinned = allocator.pinned();
    let raw = (0..number).map(|_| pinned.allocate_raw(SMALL)).collect::<Result<Vec<_>, _>>()?;
    count(|| {
        for ptr in raw {
            // SAFETY: 1. 2. the stream is this allocator's own.
            unsafe { pinned.record_stream_raw(ptr, &allocator, stream.handle()) }?;
            pinned.free_raw(ptr)?;
        }
        Ok::<_, Stopped>(pinned.empty_cache()?)
    })?
    .map(drop)
}

fn pinned_segments(number: u32) -> Result<(), Stopped> {
    const BYTES: u64 = (1 << 20) + (4 << 10);
    let (_, allocator) = on(CAPACITY, "")?;
    count(|| {
        let pinned = allocator.pinned();
        drop((0..number).map(|_| pinned.allocate(BYTES)).collect::<Result<Vec<_>, _>>()?);
        Ok::<_, Stopped>(pinned.empty_cache()?)
    })?
    .map(drop)
}

fn chunks(number: u32) -> Result<(), Stopped> {
    let (allocator, stream) = with_stream("")?;
    count(|| blocks(&allocator, &stream, number, 2 << 20))?.map(drop)
}

fn dropped_streams(number: u32) -> Result<(), Stopped> {
    let (_, allocator) = on(CAPACITY, "")?;
    count(|| {
        for _ in 0..number {
            drop(allocator.allocate(SMALL, &allocator.create_stream()?)?);
        }
        Ok(())
    })?
}

fn live_streams(number: u32, text: &str) -> Result<(), Stopped> {
    // No more than they need, since each elastic segment reserves addresses for a part of it.
    let (_, allocator) = on(64 << 30, text)?;
    count(|| {
        let use_new = |_| {
            let stream = allocator.create_stream()?;
            let memory = allocator.allocate(SMALL, &stream)?;
            Ok::<_, Stopped>((memory, stream))
        };
        (0..number).map(use_new).collect::<Result<Vec<_>, _>>()
    })?
    .map(drop)
}

fn pools(number: u32) -> Result<(), Stopped> {
    let (allocator, stream) = with_stream("")?;
    count(|| {
        for _ in 0..number {
            drop(allocator.create_pool().allocate(SMALL, &stream)?);
        }
        Ok(())
    })?
}

fn pools_in_use(number: u32) -> Result<(), Stopped> {
    let (allocator, stream) = with_stream(DIRECT)?;
    let pools: Vec<Pool> = (0..number).map(|_| allocator.create_pool()).collect();
    let _memory = pools.iter().map(|pool| pool.allocate(SMALL, &stream)).collect::<Result<Vec<_>, _>>()?;
    count(|| drop(pools))
}

/// Evictable pools with one block each, which an eviction does not keep.
fn layers(allocator: &Allocator, number: u32) -> Result<Vec<(Pool, Allocation)>, Stopped> {
    let stream = allocator.create_stream()?;
    let layer = |_| {
        let options = PoolOptions::new().evictable(Priority::default()).reload(|_| Ok::<_, &str>(()));
        let pool = allocator.create_pool_with(options)?;
        let memory = pool.allocate(SMALL, &stream)?;
        Ok((pool, memory))
    };
    (0..number).map(layer).collect()
}

fn evictions(number: u32) -> Result<(), Stopped> {
    let (_, allocator) = on(64 << 30, RESERVE)?;
    let _layers = layers(&allocator, number)?;
    let bytes = allocator.reserved_bytes();
    let evicted = count(|| (allocator.evictable_bytes(), allocator.evict(bytes)))?;
    if evicted == (bytes, Ok(bytes)) { Ok(()) } else { Err("not all were evicted".into()) }
}

fn guarded(number: u32) -> Result<(), Stopped> {
    let (_, allocator) = on(64 << 30, RESERVE)?;
    let (layers, stream) = (layers(&allocator, number)?, allocator.create_stream()?);
    let _guards = layers.iter().map(|(pool, _)| pool.make_resident()).collect::<Result<Vec<_>, _>>()?;
    let refused = count(|| allocator.allocate(65 << 30, &stream).is_err())?;
    if refused { Ok(()) } else { Err("there was room".into()) }
}

fn events(number: u32) -> Result<(), Stopped> {
    let (allocator, stream) = with_stream("")?;
    drop(allocator.allocate(SMALL, &stream)?);
    allocator.record_history(HistoryOptions::new().stacks(false).max_entries(u64::from(number)));
    let recorded = count(|| {
        for _ in 0..number / 3 {
            drop(allocator.allocate(SMALL, &stream)?);
        }
        Ok::<_, Stopped>(allocator.snapshot())
    });
    recorded?.map(drop)
}

fn checkpoints(number: u32) -> Result<(), Stopped> {
    let (allocator, stream) = with_stream("")?;
    let pool = allocator.create_pool();
    {
        let _inside = pool.enter(&stream)?;
        raw_blocks(&allocator, &stream, number, SMALL)?;
    }
    count(|| pool.restore(&pool.checkpoint()?))??;
    Ok(())
}

fn restored_blocks(number: u32) -> Result<(), Stopped> {
    let (allocator, stream) = with_stream("")?;
    let pool = allocator.create_pool();
    let blocks = (0..2 * number).map(|_| pool.allocate(SMALL, &stream)).collect::<Result<Vec<_>, _>>()?;
    let kept: Vec<_> = blocks.into_iter().step_by(2).collect();
    let saved = pool.save_addresses()?;
    drop((kept, pool));
    count(|| allocator.restore_addresses(&saved, &stream))?.map(drop)?;
    Ok(())
}

/// Addresses that were free a moment ago.
fn free_addresses(allocator: &Allocator, stream: &Stream, bytes: u64) -> Result<u64, Stopped> {
    Ok(allocator.allocate_growable(bytes, stream)?.address())
}

fn requests_at(number: u32) -> Result<(), Stopped> {
    const PAGE: u64 = 2 << 20;
    let (allocator, stream) = with_stream("")?;
    let bytes = (u64::from(number) * 2 * SMALL).next_multiple_of(PAGE);
    let base = free_addresses(&allocator, &stream, bytes)?;
    let pool = allocator.create_pool();
    pool.restore_segments(&[AddressRange { base, bytes }], &stream)?;
    let _inside = pool.enter(&stream)?;
    count(|| {
        for nth in 0..u64::from(number) {
            // SAFETY: 1. 2. the stream is this allocator's own.
            unsafe { allocator.allocate_raw_at(base + 2 * SMALL * nth, SMALL, stream.handle(), Label::NONE) }?;
        }
        Ok(())
    })?
}

fn restored_segments(number: u32) -> Result<(), Stopped> {
    const PAGE: u64 = 2 << 20;
    let (allocator, stream) = with_stream("")?;
    let base = free_addresses(&allocator, &stream, 2 * PAGE * u64::from(number))?;
    let segments: Vec<_> =
        (0..u64::from(number)).map(|nth| AddressRange { base: base + 2 * PAGE * nth, bytes: PAGE }).collect();
    let pool = allocator.create_pool();
    Ok(count(|| pool.restore_segments(&segments, &stream))??)
}

fn exports(number: u32) -> Result<(), Stopped> {
    // Memory without contents cannot be shared.
    let host = HostBackend::new(HostConfig::default())?.device(Ordinal(0))?;
    let allocator = Allocator::new(Arc::new(host) as AnyDevice);
    let stream = allocator.create_stream()?;
    let blocks = blocks(&allocator, &stream, number, SMALL)?;
    Ok(count(|| blocks.iter().map(|block| allocator.share(block)).collect::<Result<Vec<_>, _>>().map(drop))??)
}

fn captures(number: u32) -> Result<(), Stopped> {
    let (allocator, stream) = with_stream("")?;
    count(|| {
        let pool = allocator.create_capture_pool();
        let capture = |_| {
            let capture = pool.begin_capture(&stream, CaptureMode::Relaxed)?;
            drop(allocator.allocate(SMALL, &stream)?);
            Ok::<_, Stopped>(capture.end()?)
        };
        (0..number).map(capture).collect::<Result<Vec<_>, _>>().map(drop)
    })?
}
