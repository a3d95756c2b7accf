//! Pinned memory beside a naive model: each request gets the smallest free range that fits, and contents stay.

use std::collections::BTreeMap;

use cachette::hal::Call;
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
        drop((live, stream));
        test.assert_returns_everything();
    }
}
