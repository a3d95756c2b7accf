//! Pinned memory beside a naive model: the block that each request gets is the one the model says.

use std::collections::HashMap;

use cachette::hal::Call;
use proptest::prelude::*;

use crate::fixture::{Stream, TestAllocator};
use crate::pinned::Staged;

/// One list of free addresses a size; the last freed serves first.
#[derive(Default)]
struct Model {
    free: HashMap<usize, Vec<usize>>,
}

#[derive(Clone, Debug)]
enum Step {
    Allocate(usize),
    /// Frees the live block with this index, counted round; the flag says whether a stream has used it.
    Free(usize, bool),
    Empty,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0..14_u32, any::<u16>()).prop_map(|(log2, rest)| {
            Step::Allocate((1 << log2) + usize::from(rest) % (1 << log2))
        }),
        5 => (any::<usize>(), prop::bool::weighted(0.2)).prop_map(|(at, used)| Step::Free(at, used)),
        1 => Just(Step::Empty),
    ];
    prop::collection::vec(step, 1..80)
}

/// Checks that live blocks do not overlap.
fn assert_apart(live: &[Staged]) {
    let mut ranges: Vec<_> = live.iter().map(|memory| (memory.ptr().addr().get(), memory.bytes())).collect();
    ranges.sort_unstable();
    for two in ranges.windows(2) {
        assert!(two[0].0 + two[0].1 <= two[1].0, "{ranges:x?}");
    }
}

/// Takes one step in both.
fn take(step: &Step, test: &TestAllocator, stream: &Stream, model: &mut Model, live: &mut Vec<Staged>) {
    match step {
        Step::Allocate(bytes) => {
            let block = bytes.next_power_of_two();
            let expected = model.free.entry(block).or_default().pop();
            let before = test.device.calls(Call::AllocatePinned);
            let memory = test.pin(*bytes);
            let made = test.device.calls(Call::AllocatePinned) - before;
            assert_eq!((memory.bytes(), memory.requested()), (block, *bytes));
            match expected {
                Some(at) => assert_eq!((memory.ptr().addr().get(), made), (at, 0)),
                None => assert_eq!(made, 1),
            }
            live.push(memory);
            assert_apart(live);
        }
        Step::Free(at, used) if !live.is_empty() => {
            let memory = live.swap_remove(at % live.len());
            let (block, at) = (memory.bytes(), memory.ptr().addr().get());
            if *used {
                // Waited for at once, and everything given back, so that the model need not know of streams.
                memory.record_stream(stream);
                drop(memory);
                stream.synchronize().expect("it runs dry");
                test.allocator.pinned().empty_cache().expect("nothing fails");
                model.free.clear();
            } else {
                drop(memory);
                model.free.entry(block).or_default().push(at);
            }
        }
        Step::Free(..) => {}
        Step::Empty => {
            let free: usize = model.free.drain().map(|(block, list)| block * list.len()).sum();
            assert_eq!(test.allocator.pinned().empty_cache(), Ok(free as u64));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn n1_n8_every_block_is_the_one_that_a_naive_model_says(steps in steps()) {
        let (test, [stream]) = TestAllocator::new().with_streams();
        let (mut model, mut live) = (Model::default(), Vec::new());
        for step in &steps {
            take(step, &test, &stream, &mut model, &mut live);
        }
        let stats = test.allocator.pinned().stats();
        prop_assert_eq!(stats.active_requests.current, live.len() as u64);
        let bytes: usize = live.iter().map(Staged::bytes).sum();
        prop_assert_eq!(stats.active_bytes.current, bytes as u64);
        drop((live, stream));
        test.assert_returns_everything();
    }
}
