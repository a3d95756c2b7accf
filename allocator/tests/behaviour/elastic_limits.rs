//! Under a limit all idle chunks are used before a request fails, and the error names the reason.

use cachette::Error;
use cachette_hal_host::HostConfig;

use crate::fixture::{ELASTIC, MIB, TestAllocator};

#[test]
fn under_a_limit_all_idle_memory_is_used_before_a_failure() {
    for setting in ["default", "compact"] {
        let settings = format!("expandable_segments:True,elastic_setting:{setting},memory_limit:64M");
        let test = TestAllocator::on(HostConfig::default().stepped(5), &settings);
        let streams = [test.stream(), test.stream(), test.stream()];
        for round in 0..6_usize {
            let stream = &streams[round % 3];
            let kept = test.allocate(2 * MIB, stream);
            let whole = test.allocate(62 * MIB, &streams[(round + 1) % 3]);
            assert!(test.device.physical_bytes() <= 64 * MIB, "{setting}");
            drop((kept, whole));
            test.assert_elastic_sound();
        }
        assert_eq!(test.stats().num_ooms, 0);
    }
}

#[test]
fn a_full_device_is_shared_out_anew() {
    for setting in ["default", "compact"] {
        let settings = format!("expandable_segments:True,elastic_setting:{setting}");
        let host = HostConfig::default().capacity(64 * MIB).stepped(5);
        let (test, [one, two]) = TestAllocator::on(host, &settings).with_streams();
        let pieces: Vec<_> = (0..32).map(|_| test.allocate(2 * MIB, &one)).collect();
        let kept: Vec<_> =
            pieces.into_iter().enumerate().filter_map(|(at, piece)| (at % 2 == 0).then_some(piece)).collect();
        // Half of the memory is free, in pieces of 2 MiB; only moving it makes one block of it.
        let half = test.allocate(32 * MIB, &two);
        assert_eq!(test.device.physical_bytes(), 64 * MIB, "{setting}");
        test.assert_elastic_sound();
        assert!(test.allocator.allocate(MIB, &one).is_err());
        drop((kept, half));
    }
}

#[test]
fn never_block_recycles_and_gives_back_but_does_not_wait() {
    for setting in ["default", "compact"] {
        let settings = format!("expandable_segments:True,elastic_setting:{setting},memory_limit:128M,never_block:True");
        let (test, [one, two]) = TestAllocator::on(HostConfig::default().stepped(5), &settings).with_streams();
        // Chunks of all sizes, then blocks that they do not fit under.
        for bytes in [2, 3, 5, 9, 17, 33, 60] {
            drop(test.allocate(bytes * MIB, &one));
        }
        let kept: Vec<_> = (0..10).map(|_| test.allocate(5 * MIB, &two)).collect();
        drop(test.allocate(70 * MIB, &one));
        assert_eq!(test.stats().num_ooms, 0, "{setting}");
        test.assert_elastic_sound();
        drop(kept);
    }
}

#[test]
fn never_block_leaves_memory_of_a_held_stream_alone_and_says_so() {
    let (test, [one, two]) = TestAllocator::elastic(",memory_limit:16M,never_block:True").with_streams();
    drop(test.allocate(12 * MIB, &one));
    let hold = test.hold(&one);
    let refused = test.allocator.allocate(8 * MIB, &two);
    let Err(Error::OutOfMemory(report)) = refused else {
        panic!("{refused:?}");
    };
    assert!(report.never_block);
    assert_eq!(report.reserved, 12 * MIB);
    assert_eq!(test.stats().num_sync_all_streams, 0);
    assert_eq!(test.device.calls(cachette::hal::Call::Wait), 0);
    hold.release();
    test.device.run_until_idle();
    drop(test.allocate(16 * MIB, &two));
    test.assert_elastic_sound();
}

#[test]
fn without_never_block_memory_of_a_busy_stream_is_waited_for() {
    let (test, [one, two]) = TestAllocator::elastic(",memory_limit:16M").with_streams();
    let memory = test.allocate(12 * MIB, &one);
    for _ in 0..200 {
        test.fill(&memory, 1, &one);
    }
    drop(memory);
    drop(test.allocate(16 * MIB, &two));
    test.assert_elastic_sound();
}

#[test]
fn m19_the_figures_of_a_failure_are_those_of_elastic_segments() {
    let (test, [stream]) = TestAllocator::elastic(",memory_limit:16M").with_streams();
    let first = test.allocate(5 * MIB, &stream);
    let second = test.allocate(3 * MIB, &stream);
    let third = test.allocate(6 * MIB, &stream);
    drop(second);
    let refused = test.allocator.allocate(7 * MIB, &stream);
    let Err(Error::OutOfMemory(report)) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(report.requested, 7 * MIB);
    assert_eq!(report.segment, 8 * MIB, "whole pages, and no segment of 20 MiB");
    assert_eq!(report.limit, Some(16 * MIB));
    assert_eq!(report.allocated, 11 * MIB);
    assert_eq!(report.reserved, test.device.physical_bytes());
    assert_eq!(report.pending, 0);
    assert_eq!(report.unallocated(), report.reserved - 11 * MIB);
    let message = report.to_string();
    assert!(!message.contains("expandable"), "D9: it is on already: {message}");
    test.assert_elastic_sound();
    drop((first, third));
    drop(test.allocate(16 * MIB, &stream));
    assert_eq!(test.stats().num_ooms, 1);
}

#[test]
fn m21_a_request_is_refused_at_once_only_for_its_own_pages() {
    let (test, [stream]) =
        TestAllocator::elastic(",memory_limit:16M,throw_on_cudamalloc_oom:True,per_process_memory_fraction:1.0")
            .with_streams();
    let first = test.allocate(12 * MIB, &stream);
    // As a segment of the device's own it would take 20 MiB.
    let second = test.allocate(3 * MIB, &stream);
    let refused = test.allocator.allocate(3 * MIB, &stream);
    let Err(Error::OutOfMemory(report)) = refused else {
        panic!("{refused:?}");
    };
    assert!(report.rejected);
    drop((first, second));
}

#[test]
fn a_limit_can_be_used_to_its_last_page_by_elastic_segments() {
    let test = TestAllocator::with(&format!("{ELASTIC},memory_limit:64MiB"));
    let stream = test.stream();
    let first = test.allocate(24 * MIB, &stream);
    let rest = test.allocate(40 * MIB, &stream);
    assert_eq!((test.allocator.reserved_bytes(), test.device.live().allocations), (64 * MIB, 0), "no direct segment");
    drop((first, rest));
    // Of idle memory and new memory together, too.
    let half = test.allocate(24 * MIB, &stream);
    let all = test.allocate(40 * MIB, &stream);
    assert_eq!((test.allocator.reserved_bytes(), test.device.live().allocations), (64 * MIB, 0));
    drop((half, all));
}

#[test]
fn a_lower_limit_binds_what_comes_after() {
    let (test, [stream]) = TestAllocator::elastic("").with_streams();
    let first = test.allocate(16 * MIB, &stream);
    let second = test.allocate(16 * MIB, &stream);
    test.allocator.set_memory_limit(Some(24 * MIB));
    assert!(test.allocator.allocate(2 * MIB, &stream).is_err());
    drop(second);
    let third = test.allocate(10 * MIB, &stream);
    assert!(test.allocator.allocate(8 * MIB, &stream).is_err(), "it may not grow");
    test.assert_elastic_sound();
    drop((first, third));
}
