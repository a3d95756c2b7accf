//! Garbage collection: old unused segments are released before the device is asked for more.

use cachette::hal::Call;

use crate::fixture::{Allocation, MIB, Stream, TestAllocator};

/// Three segments of 20 MiB under a limit of 100 MiB, of which half may be held before collection starts.
fn test_with_ages() -> (TestAllocator, Stream) {
    let (test, [stream]) = TestAllocator::with("garbage_collection_threshold:0.5,memory_limit:100M").with_streams();
    drop(test.allocate(512, &stream));
    let blocks: Vec<Allocation> = (0..3).map(|_| test.allocate(20 * MIB, &stream)).collect();
    let mut blocks = blocks.into_iter();
    drop(blocks.next());
    for _ in 0..10 {
        drop(test.allocate(512, &stream));
    }
    drop(blocks);
    (test, stream)
}

#[test]
fn m16_m17_the_old_goes_and_the_young_stays() {
    let (test, stream) = test_with_ages();
    assert_eq!(test.stats().reserved_bytes.all.current, 62 * MIB);
    // 62 MiB are held and 50 allowed: the one old segment is enough, and is older than the average.
    let frees = test.calls_of(Call::Free, || drop(test.allocate(24 * MIB, &stream)));
    assert_eq!(frees, 1);
    assert_eq!(test.stats().reserved_bytes.all.current, (62 - 20 + 24) * MIB);
    assert_eq!(test.stats().num_alloc_retries, 0);
    test.assert_sound();
}

#[test]
fn m16_a_hit_collects_nothing() {
    let (test, stream) = test_with_ages();
    assert_eq!(test.calls_during(|| drop(test.allocate(20 * MIB, &stream))), 0);
}

#[test]
fn m16_below_the_threshold_or_without_a_limit_nothing_is_collected() {
    for text in ["garbage_collection_threshold:0.9,memory_limit:200M", "garbage_collection_threshold:0.1"] {
        let (test, [stream]) = TestAllocator::with(text).with_streams();
        for mib in [12, 14, 16, 18] {
            drop(test.allocate(mib * MIB, &stream));
        }
        assert_eq!(test.device.calls(Call::Free), 0, "{text}");
    }
}

#[test]
fn m17_collection_goes_on_until_enough_is_free() {
    let (test, [stream]) = TestAllocator::with("garbage_collection_threshold:0.25,memory_limit:200M").with_streams();
    drop(test.allocate(512, &stream));
    let blocks: Vec<_> = (0..6).map(|_| test.allocate(20 * MIB, &stream)).collect();
    for block in blocks {
        drop(block);
        drop(test.allocate(512, &stream));
    }
    drop(test.allocate(24 * MIB, &stream));
    // 122 MiB were held and 50 are allowed: at least four segments of 20 MiB had to go.
    let held = test.stats().reserved_bytes.all.current;
    assert!(held <= (42 + 24) * MIB, "{held}");
    test.assert_sound();
}

#[test]
fn m17_small_and_split_segments_are_no_garbage() {
    let (test, [stream]) = TestAllocator::with("garbage_collection_threshold:0.1,memory_limit:100M").with_streams();
    let part = test.allocate(2 * MIB, &stream);
    drop(test.allocate(512, &stream));
    for _ in 0..10 {
        drop(test.allocate(1024, &stream));
    }
    let frees = test.calls_of(Call::Free, || drop(test.allocate(24 * MIB, &stream)));
    assert_eq!(frees, 0);
    drop(part);
}

#[test]
fn d6_segments_in_use_do_not_count_for_the_average_age() {
    let (test, [stream]) = TestAllocator::with("garbage_collection_threshold:0.5,memory_limit:100M").with_streams();
    // An ancient segment that cannot go, because a part of it is in use.
    let part = test.allocate(2 * MIB, &stream);
    let idle: Vec<_> = (0..2).map(|_| test.allocate(20 * MIB, &stream)).collect();
    for _ in 0..1000 {
        drop(test.allocate(512, &stream));
    }
    drop(idle);
    drop(test.allocate(512, &stream));
    // Both idle ones are young; were the ancient one counted, neither would be older than the average.
    let frees = test.calls_of(Call::Free, || drop(test.allocate(24 * MIB, &stream)));
    assert!(frees >= 1, "nothing was collected");
    drop(part);
    test.assert_sound();
}

#[test]
fn m17_collection_never_takes_what_is_in_use_by_another_stream() {
    let (test, [stream, side]) =
        TestAllocator::with("garbage_collection_threshold:0.1,memory_limit:100M").with_streams();
    let hold = test.free_in_use(test.allocate(20 * MIB, &stream), &side);
    // No event is waited for, and nothing can be given back.
    let frees = test.calls_of(Call::Free, || drop(test.allocate(24 * MIB, &stream)));
    assert_eq!(frees, 0);
    hold.release();
}

#[test]
fn m17_collection_leaves_a_captured_stream_alone() {
    let (test, [captured, other]) =
        TestAllocator::with("garbage_collection_threshold:0.2,memory_limit:200M").with_streams();
    let old: Vec<_> = (0..3).map(|_| test.allocate(20 * MIB, &captured)).collect();
    drop(old);
    let (_pool, capture) = test.capture(&captured);
    let frees = test.calls_of(Call::Free, || drop(test.allocate(24 * MIB, &other)));
    assert_eq!(frees, 0);
    capture.end().expect("nothing has broken it");
    let frees = test.calls_of(Call::Free, || drop(test.allocate(30 * MIB, &other)));
    assert!(frees > 0, "it is garbage once the capture is over");
    test.assert_sound();
}
