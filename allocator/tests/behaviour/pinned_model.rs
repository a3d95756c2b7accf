//! Pinned memory beside a naive model: each request gets the smallest free range that fits, and contents stay.

use std::collections::BTreeMap;

use cachette::hal::{Call, ErrorKind};
use proptest::prelude::*;

use crate::fixture::{Stream, TestAllocator};
use crate::pinned::Staged;

const MIB: u64 = 1 << 20;
const PAGE: u64 = 4 << 10;

/// The segments by their address, each with its bytes, and whether it serves requests of at most 1 MiB.
#[derive(Default)]
struct Model {
    segments: BTreeMap<u64, (u64, bool)>,
}

impl Model {
    /// The free ranges of one kind of segment, with adjacent ones merged: address and bytes.
    fn free(&self, live: &[Held], small: bool) -> Vec<(u64, u64)> {
        let mut free = Vec::new();
        for (base, (bytes, _)) in self.segments.iter().filter(|(_, segment)| segment.1 == small) {
            let within = live.iter().map(Held::range).filter(|(at, _)| (*base..base + bytes).contains(at));
            let mut used: Vec<_> = within.collect();
            used.sort_unstable();
            let mut end = *base;
            for (at, used) in used {
                assert!(at >= end, "blocks overlap");
                free.push((end, at - end));
                end = at + used;
            }
            free.push((end, base + bytes - end));
        }
        free.retain(|(_, bytes)| *bytes > 0);
        free
    }

    /// Forgets the segments without live blocks. Returns their bytes.
    fn release_idle(&mut self, live: &[Held]) -> u64 {
        let before: u64 = self.segments.values().map(|segment| segment.0).sum();
        let lives = |base: u64, bytes: u64| live.iter().any(|held| (base..base + bytes).contains(&held.range().0));
        self.segments.retain(|base, (bytes, _)| lives(*base, *bytes));
        before - self.segments.values().map(|segment| segment.0).sum::<u64>()
    }
}

/// An allocation that is filled with one byte.
struct Held {
    memory: Staged,
    byte: u8,
}

impl Held {
    fn range(&self) -> (u64, u64) {
        (self.memory.ptr().addr().get() as u64, self.memory.bytes())
    }

    fn assert_filled(&self) {
        // SAFETY: 1. no device uses the memory.
        let whole = unsafe { self.memory.as_slice() };
        assert!(whole.iter().all(|byte| *byte == self.byte), "the contents have changed");
    }
}

#[derive(Clone, Debug)]
enum Step {
    Allocate(u64),
    /// Frees the live block with this index, counted round; the flag says whether a stream has used it.
    Free(usize, bool),
    Empty,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0..23_u32, any::<u32>()).prop_map(|(log2, rest)| {
            Step::Allocate((1 << log2) + u64::from(rest) % (1 << log2))
        }),
        5 => (any::<usize>(), prop::bool::weighted(0.2)).prop_map(|(at, used)| Step::Free(at, used)),
        1 => Just(Step::Empty),
    ];
    prop::collection::vec(step, 1..80)
}

/// Takes one step in both.
fn take(step: &Step, byte: u8, test: &TestAllocator, stream: &Stream, model: &mut Model, live: &mut Vec<Held>) {
    match step {
        Step::Allocate(requested) => {
            let small = *requested <= MIB;
            let bytes = requested.next_multiple_of(if small { 512 } else { PAGE });
            let free = model.free(live, small);
            let best = free.iter().map(|(_, bytes)| *bytes).filter(|free| *free >= bytes).min();
            let mut memory = None;
            let calls = test.calls_of(Call::AllocatePinned, || memory = Some(test.pin(*requested)));
            let mut memory = memory.expect("it was allocated");
            assert_eq!((memory.bytes(), memory.requested()), (bytes, *requested));
            let at = memory.ptr().addr().get() as u64;
            if let Some(best) = best {
                assert!(free.contains(&(at, best)), "{at:x} begins no free range of {best} bytes");
                assert_eq!(calls, 0);
            } else {
                let blocks = if small { 2 * MIB / bytes } else { 1 };
                model.segments.insert(at, ((blocks * bytes).next_multiple_of(PAGE), small));
                assert_eq!(calls, 1);
            }
            // SAFETY: 1. no device knows the memory.
            unsafe { memory.as_mut_slice() }.fill(byte);
            live.push(Held { memory, byte });
        }
        Step::Free(at, used) if !live.is_empty() => {
            let held = live.swap_remove(at % live.len());
            held.assert_filled();
            if *used {
                // Waited for and looked at once, so that the model need not know of streams.
                held.memory.record_stream(stream);
                drop(held);
                stream.synchronize().expect("it runs dry");
                let released = test.allocator.pinned().empty_cache();
                assert_eq!(released, Ok(model.release_idle(live)));
            }
        }
        Step::Free(..) => {}
        Step::Empty => assert_eq!(test.allocator.pinned().empty_cache(), Ok(model.release_idle(live))),
    }
}

/// One thread's part of a random program: blocks that it fills, copies, frees in use and checks.
fn run_thread(test: &TestAllocator, mut random: u64) {
    let mut draw = |below: usize| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(random >> 33).expect("it has 31 bits") % below
    };
    let (stream, pinned) = (test.stream(), test.allocator.pinned());
    let mut live: Vec<Held> = Vec::new();
    for byte in 0..150 {
        match draw(10) {
            0..=3 => {
                let log2 = draw(22);
                // Whole units, so that the device has as many bytes.
                let bytes = ((1 << log2) + draw(1 << log2)).next_multiple_of(512) as u64;
                let Ok(mut memory) = pinned.allocate(bytes) else { continue };
                // SAFETY: 1. no device knows the memory.
                unsafe { memory.as_mut_slice() }.fill(byte);
                live.push(Held { memory, byte });
            }
            4..=6 if !live.is_empty() => live.swap_remove(draw(live.len())).assert_filled(),
            7..=8 if !live.is_empty() => {
                let Held { memory, byte } = live.swap_remove(draw(live.len()));
                let target = test.allocate(memory.requested(), &stream);
                test.upload(&target, &memory, &stream);
                memory.record_stream(&stream);
                let requested = memory.requested();
                drop(memory);
                // It may get the same bytes only after the copy.
                if let Ok(mut other) = pinned.allocate(requested) {
                    // SAFETY: 1. no device knows the memory.
                    unsafe { other.as_mut_slice() }.fill(!byte);
                }
                assert_eq!(test.content(&target, &stream), Some(byte), "what the copy read");
            }
            9 => {
                let call = [Call::AllocatePinned, Call::FreePinned][draw(2)];
                let kind = [ErrorKind::OutOfMemory, ErrorKind::Other][draw(2)];
                test.device.fail_next(call, 1 + draw(3) as u64, kind);
                // It may fail, and loses nothing.
                drop(pinned.empty_cache());
            }
            _ => {}
        }
    }
    live.iter().for_each(Held::assert_filled);
}

#[test]
fn threads_streams_and_failing_calls_lose_no_byte() {
    for text in [
        "",
        "pinned_max_cached_size_mb:1",
        "pinned_reserve_segment_size_mb:8",
        "pinned_use_background_threads:True",
        "pinned_use_cuda_host_register:True",
    ] {
        let test = TestAllocator::with(text);
        std::thread::scope(|scope| {
            for seed in 0..4 {
                let test = &test;
                scope.spawn(move || run_thread(test, seed));
            }
        });
        test.device.clear_failures();
        test.allocator.pinned().empty_cache().expect("nothing fails");
        let stats = test.allocator.pinned().stats();
        assert_eq!((stats.active_requests.current, stats.active_bytes.current), (0, 0), "{text}");
        test.assert_returns_everything();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn n1_n8_every_request_gets_the_best_fit_that_a_naive_model_finds(steps in steps()) {
        let (test, [stream]) = TestAllocator::new().with_streams();
        let (mut model, mut live) = (Model::default(), Vec::new());
        for (step, byte) in steps.iter().zip((1..=255).cycle()) {
            take(step, byte, &test, &stream, &mut model, &mut live);
            test.allocator.check().expect("every invariant holds");
        }
        live.iter().for_each(Held::assert_filled);
        let stats = test.allocator.pinned().stats();
        prop_assert_eq!(stats.active_requests.current, live.len() as u64);
        prop_assert_eq!(stats.active_bytes.current, live.iter().map(|held| held.range().1).sum::<u64>());
        prop_assert_eq!(stats.allocated_bytes.current, model.segments.values().map(|segment| segment.0).sum::<u64>());
        test.assert_returns_everything_after((live, stream));
    }
}
