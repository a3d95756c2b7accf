//! Several threads at once: no thread writes to memory that another thread holds.

use std::thread;

use crate::fixture::{Allocation, KIB, MIB, Stream, TestAllocator};

/// What the streams of one thread are for.
struct Streams {
    own: Stream,
    side: Stream,
}

/// A simple random generator, so that a failure can be repeated.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// Allocates memory, fills it, checks its content, and frees it in one of several ways.
fn churn(test: &TestAllocator, streams: &Streams, seed: u64, steps: u64) {
    let mut random = Random(seed);
    let mut live: Vec<(Allocation, u8)> = Vec::new();
    for step in 0..steps {
        let bytes = [512, 3 * KIB, 200 * KIB, MIB + 1][index(random.below(4))];
        if let Ok(memory) = test.allocator.allocate(bytes, &streams.own) {
            let mark = u8::try_from(step % 100).expect("it is small") + 1;
            test.fill(&memory, mark, &streams.own);
            live.push((memory, mark));
        }
        if live.len() > 4 {
            let (memory, mark) = live.swap_remove(index(random.below(live.len() as u64)));
            assert_eq!(test.content(&memory, &streams.own), Some(mark), "step {step}");
            give_back(test, streams, memory, random.below(4));
        }
        if random.below(50) == 0 {
            test.allocator.empty_cache().expect("nothing fails");
        }
    }
}

/// Frees memory. In half of the ways another stream writes it first, and the write must come before any reuse.
fn give_back(test: &TestAllocator, streams: &Streams, memory: Allocation, way: u64) {
    match way {
        0 => {
            test.fill(&memory, 0xEE, &streams.side);
            memory.record_stream(&streams.side);
        }
        1 => {
            test.fill(&memory, 0xFF, &streams.side);
            let released = memory.release_after(&[&streams.side]);
            released.expect("nothing fails");
        }
        2 => {
            let address = memory.into_raw();
            test.allocator.free_raw(address).expect("it is live");
        }
        _ => drop(memory),
    }
}

fn index(drawn: u64) -> usize {
    usize::try_from(drawn).expect("it is small")
}

/// Four threads, every two of which share their streams.
fn crowd(test: &TestAllocator) {
    let streams: Vec<_> = (0..2).map(|_| Streams { own: test.stream(), side: test.stream() }).collect();
    thread::scope(|scope| {
        for (streams, seed) in streams.iter().chain(&streams).zip(1..) {
            scope.spawn(move || churn(test, streams, seed, 300));
        }
    });
    test.assert_sound();
}

#[test]
fn nothing_live_is_overwritten_with_room_to_spare() {
    let test = TestAllocator::new();
    crowd(&test);
    assert_eq!(test.stats().num_ooms, 0);
    test.assert_returns_everything();
}

#[test]
fn nothing_live_is_overwritten_when_memory_is_short() {
    let test = TestAllocator::of(26 * MIB, "");
    crowd(&test);
    test.assert_returns_everything();
}

#[test]
fn s17_every_thread_finds_an_address_that_another_allocated() {
    const THREADS: usize = 4;
    let test = TestAllocator::phantom(1 << 30, "");
    let streams: Vec<Stream> = (0..THREADS).map(|_| test.stream()).collect();
    let sizes = [512, 40 * KIB, MIB + 1, 12 * MIB];
    for round in 0..20 {
        let addresses: Vec<u64> =
            streams.iter().flat_map(|stream| sizes.map(|bytes| test.allocate_raw(bytes, stream))).collect();
        thread::scope(|scope| {
            for thread in 0..THREADS {
                let (addresses, test) = (&addresses, &test);
                // Each frees what lies far apart: some of every stream.
                let mine = addresses.iter().skip(thread).step_by(THREADS);
                scope.spawn(move || mine.for_each(|at| test.allocator.free_raw(*at).unwrap()));
            }
        });
        assert_eq!(test.stats().allocation.all.current, 0, "round {round}");
        test.assert_sound();
    }
}
