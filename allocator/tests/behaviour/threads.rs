//! Several threads at once: no thread writes to memory that another thread holds.

use std::thread;

use crate::bed::{Bed, KIB, Lane, MIB, Memory};

/// What the streams of one thread are for.
struct Lanes {
    own: Lane,
    side: Lane,
}

/// A plain generator of numbers, so that a failure can be repeated.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// Takes memory, marks it, looks whether the mark is still there, and gives it back in one of several ways.
fn churn(bed: &Bed, lanes: &Lanes, seed: u64, steps: u64) {
    let mut random = Random(seed);
    let mut live: Vec<(Memory, u8)> = Vec::new();
    for step in 0..steps {
        let bytes = [512, 3 * KIB, 200 * KIB, MIB + 1][index(random.below(4))];
        if let Ok(memory) = bed.allocator.allocate(bytes, &lanes.own) {
            let mark = u8::try_from(step % 100).expect("it is small") + 1;
            bed.fill(&memory, mark, &lanes.own);
            live.push((memory, mark));
        }
        if live.len() > 4 {
            let (memory, mark) = live.swap_remove(index(random.below(live.len() as u64)));
            assert_eq!(bed.content(&memory, &lanes.own), Some(mark), "step {step}");
            give_back(bed, lanes, memory, random.below(4));
        }
        if random.below(50) == 0 {
            bed.allocator.empty_cache().expect("nothing fails");
        }
    }
}

/// Frees memory; in half of the ways another stream writes it first, and must not be overtaken.
fn give_back(bed: &Bed, lanes: &Lanes, memory: Memory, way: u64) {
    match way {
        0 => {
            bed.fill(&memory, 0xEE, &lanes.side);
            memory.record_stream(&lanes.side);
        }
        1 => {
            bed.fill(&memory, 0xFF, &lanes.side);
            let released = memory.release_after(&[&lanes.side]);
            released.expect("nothing fails");
        }
        2 => {
            let address = memory.into_raw();
            bed.allocator.free_raw(address).expect("it is live");
        }
        _ => drop(memory),
    }
}

fn index(drawn: u64) -> usize {
    usize::try_from(drawn).expect("it is small")
}

/// Four threads, every two of which share their streams.
fn crowd(bed: &Bed) {
    let lanes: Vec<_> = (0..2).map(|_| Lanes { own: bed.stream(), side: bed.stream() }).collect();
    thread::scope(|scope| {
        for (lanes, seed) in lanes.iter().chain(&lanes).zip(1..) {
            scope.spawn(move || churn(bed, lanes, seed, 300));
        }
    });
    bed.assert_sound();
}

#[test]
fn nothing_live_is_overwritten_with_room_to_spare() {
    let bed = Bed::new();
    crowd(&bed);
    assert_eq!(bed.stats().num_ooms, 0);
    bed.assert_returns_everything();
}

#[test]
fn nothing_live_is_overwritten_when_memory_is_short() {
    let bed = Bed::of(26 * MIB, "");
    crowd(&bed);
    bed.assert_returns_everything();
}

#[test]
fn nothing_live_is_overwritten_when_streams_lend() {
    let bed = Bed::of(48 * MIB, "lend_across_streams:True");
    crowd(&bed);
    bed.assert_returns_everything();
}

#[test]
fn s17_every_thread_finds_an_address_that_another_allocated() {
    const THREADS: usize = 4;
    let bed = Bed::phantom(1 << 30, "");
    let streams: Vec<Lane> = (0..THREADS).map(|_| bed.stream()).collect();
    let sizes = [512, 40 * KIB, MIB + 1, 12 * MIB];
    for round in 0..20 {
        let addresses: Vec<u64> =
            streams.iter().flat_map(|stream| sizes.map(|bytes| bed.allocate_raw(bytes, stream))).collect();
        thread::scope(|scope| {
            for thread in 0..THREADS {
                let (addresses, bed) = (&addresses, &bed);
                // Each frees what lies far apart: some of every stream.
                let mine = addresses.iter().skip(thread).step_by(THREADS);
                scope.spawn(move || mine.for_each(|at| bed.allocator.free_raw(*at).unwrap()));
            }
        });
        assert_eq!(bed.stats().allocation.all.current, 0, "round {round}");
        bed.assert_sound();
    }
}
