//! The cost of a restore is linear in its segments and blocks.

use std::time::{Duration, Instant};

use cachette::Label;
use cachette::addresses::AddressRange;
use cachette::hal::Call;
use cachette_hal_host::HostConfig;

use crate::{Bed, PAGE, assert_places};

fn bed() -> Bed {
    Bed::on(HostConfig::default().capacity(64 << 30).phantom(true))
}

/// The time of a restore with so many blocks.
fn blocks(count: u64) -> Duration {
    let bed = bed();
    let stream = bed.stream();
    let pool = bed.allocator.create_pool();
    let live: Vec<_> = (0..count).map(|nth| pool.allocate(512 + nth % 7 * 512, &stream).unwrap()).collect();
    let kept: Vec<_> = live.into_iter().enumerate().filter(|(nth, _)| nth % 2 == 0).map(|(_, block)| block).collect();
    let saved = pool.save_addresses().unwrap();
    drop((kept, pool));
    let begun = Instant::now();
    let (pool, blocks) = bed.allocator.restore_addresses(&saved, &stream).unwrap();
    let time = begun.elapsed();
    assert_places(&saved, &blocks);
    drop((blocks, pool, stream));
    time
}

/// The time of so many requests for given addresses in a restored segment.
fn requests(count: u64) -> Duration {
    let bed = bed();
    let stream = bed.stream();
    let place = bed.allocator.allocate_growable(count * 1024 + PAGE, &stream).unwrap();
    let segment = AddressRange { base: place.address(), bytes: place.bytes() };
    drop(place);
    let pool = bed.allocator.create_pool();
    pool.restore_segments(&[segment], &stream).unwrap();
    let _inside = pool.enter(&stream).unwrap();
    let begun = Instant::now();
    for nth in 0..count {
        // SAFETY: the stream lives until the end of the function.
        let allocated =
            unsafe { bed.allocator.allocate_raw_at(segment.base + 1024 * nth, 512, stream.handle(), Label::NONE) };
        allocated.unwrap();
    }
    let time = begun.elapsed();
    (0..count).for_each(|nth| bed.allocator.free_raw(segment.base + 1024 * nth).unwrap());
    time
}

/// The time of a restore with so many segments, and its driver calls.
fn segments(count: u64) -> (Duration, u64) {
    let bed = bed();
    let stream = bed.stream();
    let place = bed.allocator.allocate_growable(3 * count * PAGE, &stream).unwrap();
    let base = place.address();
    drop(place);
    let segments: Vec<_> = (0..count).map(|nth| AddressRange { base: base + 3 * nth * PAGE, bytes: PAGE }).collect();
    let pool = bed.allocator.create_pool();
    let calls = bed.device.total_calls();
    let begun = Instant::now();
    pool.restore_segments(&segments, &stream).unwrap();
    let (time, calls) = (begun.elapsed(), bed.device.total_calls() - calls);
    assert_eq!(bed.device.calls(Call::Map), count);
    (time, calls)
}

/// Eight times as much may take 32 times as long: on a busy machine a linear cost takes 7 to 14, a quadratic one 64.
fn assert_linear(time: impl Fn(u64) -> Duration, few: u64) {
    let best = |count| (0..5).map(|_| time(count)).min().unwrap();
    let (short, long) = (best(few), best(8 * few));
    assert!(long < 32 * short, "{few}: {short:?}, {}: {long:?}", 8 * few);
}

#[test]
fn eight_times_as_many_blocks_take_at_most_so_many_times_as_long() {
    assert_linear(blocks, 4000);
}

#[test]
fn eight_times_as_many_requests_for_addresses_take_at_most_so_many_times_as_long() {
    assert_linear(requests, 1000);
}

#[test]
fn eight_times_as_many_segments_take_at_most_so_many_times_as_long() {
    assert_linear(|count| segments(count).0, 200);
    assert_eq!(segments(400).1 - segments(200).1, 200 * 4, "a segment is reserved, made, mapped and granted");
}
