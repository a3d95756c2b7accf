//! Rounding of requests, sizes of segments, and splitting.

use cachette::Error;
use cachette::hal::Call;

use crate::fixture::{Allocation, GIB, KIB, MIB, TestAllocator};

#[test]
fn s2_no_bytes_are_no_memory_and_no_call() {
    let (test, [stream, other]) = TestAllocator::new().with_streams();
    let calls = test.calls_during(|| {
        let empty = test.allocate(0, &stream);
        assert!(empty.is_empty());
        assert_eq!((empty.address(), empty.bytes(), empty.requested()), (0, 0, 0));
        assert_eq!(empty.ptr(), None);
        empty.record_stream(&other);
        empty.release_after(&[&other]).unwrap();
        assert_eq!(test.allocate(0, &stream).into_raw(), 0);
        assert_eq!(test.allocate_raw(0, &stream), 0);
        test.allocator.free_raw(0).unwrap();
    });
    assert_eq!(calls, 0);
    assert_eq!(test.stats().allocation.all.allocated, 0);
}

#[test]
fn s3_an_exbibyte_is_refused_before_anything_is_tried() {
    let (test, [stream]) = TestAllocator::new().with_streams();
    for bytes in [1 << 60, (1 << 60) + 1, 1 << 63, u64::MAX] {
        let calls = test.calls_during(|| {
            let error = test.allocator.allocate(bytes, &stream).unwrap_err();
            assert_eq!(error, Error::TooLarge { bytes });
            assert!(error.to_string().contains("EiB"), "{error}");
            // SAFETY: 1. 2. the stream is this allocator's own.
            let raw = unsafe { test.allocator.allocate_raw(bytes, stream.handle()) };
            assert_eq!(raw, Err(Error::TooLarge { bytes }));
        });
        assert_eq!(calls, 0);
    }
    assert_eq!(test.stats().num_ooms, 0);
}

#[test]
fn s3_sizes_that_no_block_has_are_refused_right_after_a_free_too() {
    for config in ["", "roundup_power2_divisions:4"] {
        let (test, [stream]) = TestAllocator::with(config).with_streams();
        // The thread becomes the owner of the heap's lock.
        for _ in 0..1000 {
            drop(test.allocate(KIB, &stream));
            test.allocator.free_raw(test.allocate_raw(KIB, &stream)).unwrap();
        }
        for bytes in [1 << 60, u64::MAX - 511, u64::MAX] {
            assert_eq!(test.allocator.allocate(bytes, &stream).unwrap_err(), Error::TooLarge { bytes });
            // SAFETY: 1. 2. the stream is this allocator's own.
            let raw = unsafe { test.allocator.allocate_raw(bytes, stream.handle()) };
            assert_eq!(raw, Err(Error::TooLarge { bytes }));
        }
        assert_eq!((test.allocate(0, &stream).address(), test.allocate_raw(0, &stream)), (0, 0));
        assert_eq!(test.stats().allocation.all.allocated, 2000);
        test.assert_sound();
    }
}

#[test]
fn s3_just_below_an_exbibyte_is_an_ordinary_exhaustion() {
    // The second device is larger than a segment can be.
    for test in [TestAllocator::new(), TestAllocator::phantom(16 << 40, "")] {
        let stream = test.stream();
        for bytes in [3 << 40, (1 << 60) - 1] {
            let error = test.allocator.allocate(bytes, &stream).unwrap_err();
            assert!(matches!(error, Error::OutOfMemory(_)), "{error}");
        }
        assert_eq!(test.stats().num_ooms, 2);
        test.assert_sound();
        test.assert_returns_everything_after(stream);
    }
}

#[test]
fn s4_s5_s6_requests_are_rounded_up_as_configured() {
    // Multiples of 512 bytes; even steps between powers of two; a number of steps for each interval of sizes.
    let plain = [(1, 512), (511, 512), (512, 512), (513, 1024), (1200, 1536), (MIB, MIB)];
    // Not above 512 bytes for each division, 1200 bytes are rounded plainly.
    let four = [(84 * MIB, 96 * MIB), (64 * MIB, 64 * MIB), (2049, 2560), (1200, 1536)];
    let intervals = [
        (36 * KIB + 1, 40 * KIB),
        (9 * MIB + 1, 9 * MIB + 512),
        (16 * MIB + 1, 16 * MIB + 512),
        (300 * MIB, 300 * MIB),
        (600 * MIB, 768 * MIB),
        (33 * GIB, 40 * GIB),
        (66 * GIB, 80 * GIB),
    ];
    for (config, rows) in [
        ("", &plain[..]),
        ("roundup_power2_divisions:4", &four),
        ("roundup_power2_divisions:8", &[(84 * MIB, 88 * MIB)]),
        ("roundup_power2_divisions:2", &[(400 * MIB, 512 * MIB)]),
        ("roundup_power2_divisions:[1:8,16:0,256:1,512:2,>:4]", &intervals),
    ] {
        let (test, [stream]) = TestAllocator::phantom(256 * GIB, config).with_streams();
        for (asked, given) in rows {
            assert_eq!(test.allocate(*asked, &stream).bytes(), *given, "{config}: {asked}");
        }
    }
}

#[test]
fn s7_the_rounded_size_decides_between_small_and_large() {
    let (test, [stream]) = TestAllocator::with("roundup_power2_divisions:2").with_streams();
    // 768 KiB + 1 becomes 1 MiB and stays small, 1 MiB + 1 becomes 1.5 MiB and is large.
    let small = test.allocate(768 * KIB + 1, &stream);
    let large = test.allocate(MIB + 1, &stream);
    let stats = test.stats();
    assert_eq!(small.bytes(), stats.allocated_bytes.small_pool.current);
    assert_eq!(large.bytes(), stats.allocated_bytes.large_pool.current);
    assert_eq!((small.bytes(), large.bytes()), (MIB, 3 * MIB / 2));
}

#[test]
fn s8_segments_are_2_mib_20_mib_or_multiples_of_2_mib() {
    for (asked, segment) in [
        (1, 2 * MIB),
        (MIB, 2 * MIB),
        (MIB + 1, 20 * MIB),
        (10 * MIB - 512, 20 * MIB),
        (10 * MIB, 10 * MIB),
        (10 * MIB + 1, 12 * MIB),
        (33 * MIB, 34 * MIB),
    ] {
        let (test, [stream]) = TestAllocator::new().with_streams();
        let memory = test.allocate(asked, &stream);
        assert_eq!(test.device.physical_bytes(), segment, "{asked}");
        let base = test.allocator.base_allocation(memory.address()).unwrap();
        assert_eq!(base, (memory.address(), segment), "{asked}");
    }
}

/// What five rounds of "copy, add one, forget the old" cost; at most three blocks are live at once.
fn chain(test: &TestAllocator, bytes: u64) -> Allocation {
    let stream = test.stream();
    let mut last = test.allocate(bytes, &stream);
    for _ in 0..5 {
        let copy = test.allocate(bytes, &stream);
        let sum = test.allocate(bytes, &stream);
        drop(copy);
        last = sum;
    }
    last
}

#[test]
fn s8_a_chain_of_temporaries_takes_the_references_segments() {
    for (bytes, segments, segment) in [
        (512, 1, 2 * MIB),
        (MIB, 2, 2 * MIB),
        (MIB + 512, 1, 20 * MIB),
        (10 * MIB - 512, 2, 20 * MIB),
        (10 * MIB + 512, 3, 12 * MIB),
    ] {
        let test = TestAllocator::new();
        let last = chain(&test, bytes);
        let stats = test.stats();
        let array = |array: &cachette::StatArray| {
            let (own, other) =
                if bytes <= MIB { (array.small_pool, array.large_pool) } else { (array.large_pool, array.small_pool) };
            assert_eq!((own.current, other.current), (array.all.current, 0));
            own.current
        };
        assert_eq!(array(&stats.segment), segments, "{bytes}");
        assert_eq!(array(&stats.reserved_bytes), segments * segment, "{bytes}");
        assert_eq!(array(&stats.active), 1, "{bytes}");
        assert_eq!(array(&stats.active_bytes), bytes, "{bytes}");
        // Only the segment of what is left stays.
        test.allocator.empty_cache().unwrap();
        let stats = test.stats();
        assert_eq!(array(&stats.segment), 1, "{bytes}");
        assert_eq!(array(&stats.reserved_bytes), segment, "{bytes}");
        drop(last);
        test.assert_sound();
    }
}

#[test]
fn s15_small_blocks_are_split_down_to_512_bytes() {
    let (test, [stream]) = TestAllocator::new().with_streams();
    let first = test.allocate(MIB, &stream);
    let second = test.allocate(MIB - 512, &stream);
    let third = test.allocate(512, &stream);
    assert_eq!(second.address(), first.address() + MIB);
    assert_eq!(third.address(), first.address() + 2 * MIB - 512);
    let stats = test.stats();
    assert_eq!(stats.segment.all.current, 1);
    assert_eq!(stats.inactive_split.all.current, 0);
}

#[test]
fn s15_large_blocks_are_split_only_if_more_than_1_mib_is_left() {
    for (asked, block, left) in [(10 * MIB, 11 * MIB, 0), (10 * MIB - 512, 10 * MIB - 512, MIB + 512)] {
        let (test, [stream]) = TestAllocator::new().with_streams();
        let front = test.allocate(9 * MIB, &stream);
        let memory = test.allocate(asked, &stream);
        assert_eq!(memory.address(), front.address() + 9 * MIB);
        assert_eq!((memory.requested(), memory.bytes()), (asked, block));
        assert_eq!(test.stats().inactive_split_bytes.all.current, left, "{asked}");
    }
}

#[test]
fn s16_freed_neighbours_become_one_block_in_every_order() {
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let (test, [stream]) = TestAllocator::new().with_streams();
        let mut blocks: Vec<_> = (0..3).map(|_| Some(test.allocate(6 * MIB, &stream))).collect();
        let start = blocks[0].as_ref().map(Allocation::address);
        for index in order {
            blocks[index] = None;
        }
        let calls = test.calls_of(Call::Allocate, || {
            let whole = test.allocate(20 * MIB, &stream);
            assert_eq!(Some(whole.address()), start, "{order:?}");
        });
        assert_eq!(calls, 0, "{order:?}");
        test.assert_sound();
    }
}

#[test]
fn s16_neighbours_in_different_segments_stay_apart() {
    // One address after the other, so that only the segments tell them apart.
    let (test, [stream]) = TestAllocator::phantom(GIB, "").with_streams();
    let first = test.allocate(12 * MIB, &stream);
    let second = test.allocate(12 * MIB, &stream);
    assert_eq!(second.address(), first.address() + 12 * MIB);
    drop((first, second));
    let calls = test.calls_of(Call::Allocate, || drop(test.allocate(24 * MIB, &stream)));
    assert_eq!(calls, 1);
    test.assert_sound();
}

#[test]
fn s9_the_smallest_sufficient_block_serves() {
    let (test, [stream]) = TestAllocator::new().with_streams();
    let wide = test.allocate(30 * MIB, &stream);
    let narrow = test.allocate(14 * MIB, &stream);
    let middle = test.allocate(22 * MIB, &stream);
    let (wide_at, middle_at) = (wide.address(), middle.address());
    drop((wide, narrow, middle));
    let first = test.allocate(16 * MIB, &stream);
    assert_eq!(first.address(), middle_at);
    assert_eq!(test.allocate(24 * MIB, &stream).address(), wide_at);
}

#[test]
fn s19_the_size_of_large_segments_is_a_setting() {
    let (test, [stream]) = TestAllocator::with("large_segment_size_mb:32").with_streams();
    let memory = test.allocate(2 * MIB, &stream);
    assert_eq!(test.device.physical_bytes(), 32 * MIB);
    let own = test.allocate(12 * MIB, &stream);
    assert_eq!(test.device.physical_bytes(), 32 * MIB);
    assert_eq!(own.address(), memory.address() + 2 * MIB);
}

#[test]
fn larger_alignments_are_served_and_returned_by_every_way() {
    for config in ["", "caching:False"] {
        let (test, [stream]) = TestAllocator::with(config).with_streams();
        let odd = test.allocate(700, &stream);
        for align in [1, 512, 4 * KIB, 64 * KIB, 4 * MIB] {
            let memory = test.allocator.allocate_aligned(5 * KIB, align, &stream).unwrap();
            assert!(memory.address().is_multiple_of(align) && memory.requested() == 5 * KIB, "{memory:?}");
            assert!((5 * KIB..5 * KIB + align).contains(&memory.bytes()), "{memory:?}");
            test.fill(&memory, 7, &stream);
            assert!(test.allocator.free_raw(memory.into_raw()).is_ok(), "{align}");
            drop(test.allocator.allocate_aligned(700, align, &stream).unwrap());
        }
        assert!(test.allocator.allocate_aligned(0, MIB, &stream).unwrap().is_empty());
        for align in [0, 3, MIB + 512] {
            let refused = test.allocator.allocate_aligned(700, align, &stream).unwrap_err();
            assert_eq!(refused, Error::InvalidAlignment { align });
        }
        assert!(test.allocator.allocate_aligned(1, 1 << 63, &stream).unwrap_err().is_out_of_memory());
        test.assert_returns_everything_after((odd, stream));
    }
}
