//! Several threads at once: each frees memory that others allocated.

use std::thread;

use crate::fixture::{KIB, MIB, Stream, TestAllocator};

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
