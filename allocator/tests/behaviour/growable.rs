//! Growable allocations: memory comes to addresses and leaves them when the program says so.

use std::ops::Range as Bytes;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use cachette::growable::GrowableProblem;
use cachette::hal::{Call, CaptureMode, ErrorKind, Feature};
use cachette::sleep::Contents;
use cachette::{Error, Growable};
use cachette_hal_host::HostConfig;

use crate::fixture::memory::Range;
use crate::fixture::{MIB, Stream, TestAllocator, begin_capture, fail_call, launch, let_pass};

const PAGE: u64 = 2 * MIB;

/// A part of a growable allocation.
struct Part<'a>(&'a Growable, Bytes<u64>);

impl Range for Part<'_> {
    fn range(&self) -> (cachette::hal::DevicePtr, u64) {
        let at = cachette::hal::DevicePtr::new(self.0.address() + self.1.start).expect("addresses are not zero");
        (at, self.1.end - self.1.start)
    }
}

fn growable(test: &TestAllocator, pages: u64, stream: &Stream) -> Growable {
    test.allocator.allocate_growable(pages * PAGE, stream).expect("there are addresses")
}

const fn pages(range: Bytes<u64>) -> Bytes<u64> {
    range.start * PAGE..range.end * PAGE
}

fn problem<T: std::fmt::Debug>(result: Result<T, Error>) -> GrowableProblem {
    match result {
        Err(Error::Growable(problem)) => problem,
        other => panic!("{other:?} is no problem of a growable allocation"),
    }
}

#[test]
fn g1_memory_comes_where_it_is_committed_and_keeps_its_contents() {
    let (test, [stream]) = TestAllocator::elastic("").with_streams();
    let cache = growable(&test, 1 << 19, &stream);
    assert_eq!((cache.bytes(), cache.committed(), test.device.physical_bytes()), (PAGE << 19, 0, 0));
    for (byte, range) in [(1, 0..3), (2, 500_000..500_002), (3, 3..4)] {
        cache.commit(pages(range.clone())).expect("there is memory");
        test.fill(&Part(&cache, pages(range)), byte, &stream);
    }
    assert_eq!((cache.committed(), test.device.physical_bytes()), (6 * PAGE, 6 * PAGE));
    test.assert_elastic_sound();
    for (byte, range) in [(1, 0..3), (2, 500_000..500_002), (3, 3..4)] {
        assert_eq!(test.content(&Part(&cache, pages(range)), &stream), Some(byte));
    }
    test.assert_returns_everything_after((cache, stream));
}

#[test]
fn g1_a_page_has_memory_while_any_byte_of_it_is_committed() {
    let (test, [stream]) = TestAllocator::elastic("").with_streams();
    let cache = growable(&test, 8, &stream);
    let held = || test.stats().allocated_bytes.all.current / PAGE;
    cache.commit(100..PAGE + 5).expect("there is memory");
    cache.commit(PAGE + 5..PAGE + 6).expect("the page has memory");
    cache.commit(0..100).expect("the page has memory");
    assert_eq!((cache.committed(), held()), (PAGE + 6, 2));
    cache.decommit(7..PAGE + 5).expect("it is committed");
    assert_eq!((cache.committed(), held()), (8, 2));
    cache.decommit(0..7).expect("it is committed");
    assert_eq!(held(), 1, "nothing of the first page is committed");
    cache.decommit(PAGE + 5..PAGE + 6).expect("it is committed");
    assert_eq!((cache.committed(), held()), (0, 0));
}

#[test]
fn g2_a_commit_of_the_same_part_makes_no_driver_call() {
    let (test, [stream]) = TestAllocator::elastic("").with_streams();
    let cache = growable(&test, 64, &stream);
    cache.commit(pages(0..64)).expect("there is memory");
    for part in [0..64, 3..17, 63..64, 0..1] {
        let again = || {
            cache.decommit(pages(part.clone())).expect("it is committed");
            cache.commit(pages(part.clone())).expect("its memory is there");
        };
        // The first time also asks whether the stream is captured.
        let mapping = [Call::CreateBacking, Call::Map, Call::SetAccess, Call::Unmap];
        let calls = mapping.map(|call| test.calls_of(call, again));
        assert_eq!(calls, [0; 4], "{part:?}");
    }
}

#[test]
fn g2_decommitted_memory_serves_other_requests_and_committed_memory_does_not() {
    let (test, [stream, other]) = TestAllocator::on(HostConfig::default().capacity(64 * PAGE), "").with_streams();
    let cache = growable(&test, 1000, &stream);
    cache.commit(pages(100..160)).expect("there is memory");
    test.fill(&Part(&cache, pages(100..160)), 7, &stream);
    let refused = test.allocator.allocate(8 * PAGE, &other).expect_err("the memory is committed");
    assert!(refused.is_out_of_memory());
    cache.decommit(pages(100..110)).expect("it is committed");
    let taken = test.allocator.allocate(8 * PAGE, &other).expect("decommitted memory serves it");
    assert_eq!(test.content(&Part(&cache, pages(110..160)), &stream), Some(7));
    let refused = cache.commit(pages(100..110)).expect_err("the memory is in use elsewhere");
    assert!(refused.is_out_of_memory());
    assert_eq!(cache.committed(), 50 * PAGE);
    drop(taken);
    cache.commit(pages(100..110)).expect("the memory is free again");
    assert_eq!(test.content(&Part(&cache, pages(110..160)), &stream), Some(7));
    test.assert_returns_everything_after((cache, stream, other));
}

#[test]
fn g3_memory_leaves_after_the_work_of_its_stream_and_of_recorded_streams() {
    for records in [false, true] {
        let (test, [stream, side, other]) =
            TestAllocator::of(8 * PAGE, "expandable_segments:True,never_block:True").with_streams();
        let cache = growable(&test, 8, &stream);
        cache.commit(pages(0..8)).expect("there is memory");
        let user = if records { &side } else { &stream };
        let hold = test.hold(user);
        test.fill(&Part(&cache, pages(0..8)), 1, user);
        cache.record_stream(&side);
        cache.decommit(pages(0..8)).expect("it is committed");
        let early = test.allocator.allocate(PAGE, &other);
        // A move waits on the device for a recorded stream, and takes nothing of a busy one.
        assert_eq!(early.is_ok(), records, "{early:?}");
        if let Ok(early) = &early {
            test.fill(early, 3, &other);
        }
        if records {
            // The page that moved keeps its old mapping until the work is done.
            let refused = cache.commit(pages(0..8)).expect_err("it must not wait");
            assert!(refused.is_out_of_memory());
        }
        cache.commit(pages(0..4)).expect("the stream itself waits on the device");
        test.fill(&Part(&cache, pages(0..4)), 2, &stream);
        let_pass(hold, user);
        stream.synchronize().expect("its work has memory");
        assert_eq!(test.content(&Part(&cache, pages(0..4)), &stream), Some(2));
        if let Ok(early) = &early {
            assert_eq!(test.content(early, &other), Some(3));
        }
        test.allocator.allocate(PAGE, &other).expect("the work is done");
    }
}

#[test]
fn g4_a_wrong_call_says_why_and_changes_nothing() {
    let (test, [stream]) = TestAllocator::elastic("").with_streams();
    let cache = growable(&test, 8, &stream);
    cache.commit(pages(2..4)).expect("there is memory");
    let calls = || {
        let bytes = cache.bytes();
        #[expect(clippy::reversed_empty_ranges, reason = "a caller may pass one")]
        let reversed = 5..4;
        assert_eq!(
            problem(cache.commit(0..bytes + 1)),
            GrowableProblem::OutOfRange { start: 0, end: bytes + 1, bytes }
        );
        assert_eq!(problem(cache.decommit(reversed)), GrowableProblem::OutOfRange { start: 5, end: 4, bytes });
        assert_eq!(problem(cache.commit(pages(0..3))), GrowableProblem::Committed { at: 2 * PAGE });
        assert_eq!(problem(cache.commit(pages(3..8))), GrowableProblem::Committed { at: 3 * PAGE });
        assert_eq!(problem(cache.decommit(pages(0..3))), GrowableProblem::NotCommitted { at: 0 });
        assert_eq!(problem(cache.decommit(pages(2..5))), GrowableProblem::NotCommitted { at: 4 * PAGE });
        cache.commit(9..9).expect("nothing is asked for");
        cache.decommit(9..9).expect("nothing is asked for");
    };
    assert_eq!(test.calls_of(Call::Map, calls), 0);
    assert_eq!((cache.committed(), test.device.physical_bytes()), (2 * PAGE, 2 * PAGE));
    test.begin_unannounced(&stream, CaptureMode::Relaxed);
    assert_eq!(problem(cache.decommit(pages(2..4))), GrowableProblem::Captured);
    test.end_unannounced(&stream);
    cache.decommit(pages(2..4)).expect("the capture has ended");
    let other = TestAllocator::new();
    let foreign = other.allocator.allocate_growable(PAGE, &stream);
    assert!(matches!(foreign, Err(Error::ForeignStream)));
    let most = GrowableProblem::TooLarge { bytes: u64::MAX };
    assert_eq!(problem(test.allocator.allocate_growable(u64::MAX, &stream)), most);
}

#[test]
fn g3_a_graph_stays_valid_while_memory_around_it_comes_and_goes() {
    let (test, [stream]) = TestAllocator::elastic("").with_streams();
    let cache = growable(&test, 16, &stream);
    cache.commit(pages(0..4)).expect("there is memory");
    let pool = test.allocator.create_capture_pool();
    let capture = begin_capture(&pool, &stream);
    test.fill(&Part(&cache, pages(1..2)), 9, &stream);
    let graph = capture.end().expect("it is whole");
    cache.decommit(pages(0..1)).expect("it is committed");
    cache.decommit(pages(1..4)).expect("it is committed");
    let taken = test.allocate(4 * PAGE, &stream);
    cache.commit(pages(1..16)).expect("there is memory");
    launch(&graph, &stream);
    assert_eq!(test.content(&Part(&cache, pages(1..2)), &stream), Some(9));
    drop((taken, graph, cache));
}

#[test]
fn g5_a_pool_puts_its_growable_allocations_to_sleep() {
    let (test, [stream]) = TestAllocator::elastic_on(HostConfig::default(), "").with_streams();
    let pool = test.allocator.create_pool();
    let cache = pool.allocate_growable(64 * PAGE, &stream).expect("there are addresses");
    cache.commit(pages(10..20)).expect("there is memory");
    test.fill(&Part(&cache, pages(10..20)), 5, &stream);
    pool.sleep(Contents::Keep).expect("it can sleep");
    assert_eq!(test.device.physical_bytes(), 0);
    assert!(matches!(cache.commit(pages(0..1)), Err(Error::Pool { .. })), "the pool sleeps");
    cache.decommit(pages(15..20)).expect("memory may be freed asleep");
    pool.wake().expect("there is memory");
    assert_eq!(test.device.physical_bytes(), 5 * PAGE);
    assert_eq!(test.content(&Part(&cache, pages(10..15)), &stream), Some(5));
    cache.commit(pages(18..64)).expect("the pool is awake");
    test.assert_returns_everything_after((cache, pool, stream));
}

#[test]
fn g4_the_addresses_are_released_once_no_memory_is_left_there() {
    let (test, [stream]) = TestAllocator::elastic("").with_streams();
    for round in 0..50 {
        let cache = growable(&test, 4, &stream);
        if round % 2 == 0 {
            cache.commit(pages(0..4)).expect("there is memory");
        }
        drop(cache);
        test.allocator.empty_cache().expect("it is idle");
        assert_eq!((test.device.physical_bytes(), test.device.live().reservations), (0, 0), "round {round}");
    }
    test.assert_returns_everything_after(stream);
}

#[test]
fn g4_a_failing_call_loses_no_memory_and_no_addresses() {
    for kind in [ErrorKind::OutOfMemory, ErrorKind::InvalidValue] {
        for nth in 1.. {
            let test = TestAllocator::checked(HostConfig::default(), "elastic_setting:compact");
            let [stream, side] = test.streams();
            let work = || {
                let cache = test.allocator.allocate_growable(16 * PAGE, &stream)?;
                cache.commit(pages(0..8))?;
                cache.record_stream(&side);
                cache.decommit(pages(2..6))?;
                let taken = test.allocator.allocate(3 * PAGE, &side)?;
                cache.commit(pages(3..5))?;
                drop(taken);
                cache.decommit(pages(0..2))
            };
            let (_, failed) = fail_call(&test.device, nth, kind, work);
            test.allocator.check().expect("every invariant holds");
            let cache = growable(&test, 16, &stream);
            cache.commit(pages(0..16)).expect("there is memory");
            test.fill(&Part(&cache, pages(0..16)), 1, &stream);
            assert_eq!(test.content(&Part(&cache, pages(0..16)), &stream), Some(1));
            test.assert_returns_everything_after((cache, stream, side));
            if !failed {
                break;
            }
        }
    }
}

#[test]
fn g4_a_callback_of_a_commit_may_use_other_parts_and_is_refused_its_own() {
    let (test, [stream]) = TestAllocator::elastic(",memory_limit:16MiB").with_streams();
    let cache = Arc::new(growable(&test, 16, &stream));
    cache.commit(pages(0..6)).expect("there is memory");
    let (inside, calls) = (Arc::downgrade(&cache), Arc::new(AtomicU64::new(0)));
    let called = Arc::clone(&calls);
    test.allocator.on_pressure(move || {
        called.fetch_add(1, Relaxed);
        let inside = inside.upgrade().expect("the commit uses it");
        assert_eq!(inside.committed(), 6 * PAGE, "the commit has not ended");
        assert_eq!(problem(inside.commit(pages(12..13))), GrowableProblem::Changing);
        assert_eq!(problem(inside.decommit(pages(9..10))), GrowableProblem::Changing);
        inside.decommit(pages(0..4)).is_ok()
    });
    cache.commit(pages(8..14)).expect("the callback gives memory back");
    assert_eq!((cache.committed(), calls.load(Relaxed)), (8 * PAGE, 1));
    test.fill(&Part(&cache, pages(8..14)), 3, &stream);
    assert_eq!(test.content(&Part(&cache, pages(8..14)), &stream), Some(3));
    drop((cache, stream));
    test.assert_returns_everything();
}

/// A random program: growable allocations of two streams beside ordinary requests on a small device, with failing calls.
/// Every committed page keeps its byte.
#[test]
fn g1_random_programs_keep_every_byte() {
    let mut random = fastrand::Rng::with_seed(45);
    for round in 0..16 {
        let config = ["", "elastic_setting:compact", "never_block:True", "expandable_segments:False"][round % 4];
        let host = HostConfig::default().capacity(48 * PAGE);
        let test = TestAllocator::checked(if round % 2 == 0 { host.stepped(round as u64) } else { host }, config);
        let streams: [Stream; 2] = test.streams();
        let caches = [0, 1, 1].map(|stream: usize| (stream, growable(&test, 40, &streams[stream])));
        let mut model = [[0_u8; 40]; 3];
        let mut others = Vec::new();
        for step in 0..150_u8 {
            let which = random.usize(0..3);
            let (stream, cache) = (&streams[caches[which].0], &caches[which].1);
            let start = random.u64(0..40);
            let range = start..random.u64(start..=40);
            let index = |page: u64| usize::try_from(page).expect("there are 40");
            let part = &mut model[which][index(range.start)..index(range.end)];
            if random.u8(0..10) == 0 {
                test.device.fail_nth_call(random.u64(1..20), ErrorKind::OutOfMemory);
            }
            match random.u8(0..8) {
                0..3 => match cache.commit(pages(range.clone())) {
                    Ok(()) => {
                        assert!(part.iter().all(|byte| *byte == 0), "nothing was committed");
                        let byte = step + 1;
                        part.fill(byte);
                        if !range.is_empty() {
                            test.device.clear_failures();
                            test.fill(&Part(cache, pages(range)), byte, stream);
                        }
                    }
                    Err(Error::Growable(GrowableProblem::Committed { .. })) => {
                        assert!(part.iter().any(|byte| *byte != 0));
                    }
                    Err(_) => {}
                },
                3..6 => match cache.decommit(pages(range)) {
                    Err(Error::Growable(GrowableProblem::NotCommitted { .. })) => assert!(part.contains(&0)),
                    Ok(()) => {
                        assert!(!part.contains(&0), "all was committed");
                        part.fill(0);
                    }
                    Err(_) => {}
                },
                6 => others.extend(test.allocator.allocate(random.u64(1..6 * PAGE), stream).ok()),
                _ => {
                    if !others.is_empty() {
                        others.swap_remove(random.usize(0..others.len()));
                    }
                }
            }
            test.device.clear_failures();
            if step % 10 == 0 {
                test.allocator.check().expect("every invariant holds");
                for ((stream, cache), bytes) in caches.iter().zip(&model) {
                    for (page, byte) in (0..).zip(bytes).filter(|(_, byte)| **byte != 0) {
                        let found = test.content(&Part(cache, pages(page..page + 1)), &streams[*stream]);
                        assert_eq!(found, Some(*byte), "round {round}, step {step}, page {page}");
                    }
                }
            }
        }
        drop((others, caches, streams));
        test.device.run_until_idle();
        test.assert_returns_everything();
    }
}

#[test]
fn g4_a_device_without_virtual_memory_says_so() {
    let test = TestAllocator::on(HostConfig::default().without(Feature::VirtualMemory), "");
    let stream = test.stream();
    let missing = test.allocator.allocate_growable(PAGE, &stream);
    assert!(matches!(missing, Err(Error::Missing(_))), "{missing:?}");
}
