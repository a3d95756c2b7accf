//! A stream that meets a pool while it falls asleep.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::thread;

use cachette::hal::Call;
use cachette::history::HistoryOptions;
use cachette::sleep::Contents;
use cachette_hal_host::HostConfig;

use crate::fixture::threads::spin;
use crate::fixture::{ELASTIC, MIB, TestAllocator};

#[test]
fn z_a_sleeping_pool_serves_no_stream_that_it_met_while_it_fell_asleep() {
    const ROUNDS: u64 = 100;
    let host = HostConfig::default().capacity(1 << 40).phantom(true).stepped(3);
    let (test, hook) = TestAllocator::hooked(host, ELASTIC);
    let stream = test.stream();
    test.allocator.record_history(HistoryOptions::new());
    for _ in 0..20_000 {
        drop(test.allocator.create_pool().enter(&stream).unwrap());
    }
    let mut served = 0;
    let mut pools = Vec::new();
    for round in 0..ROUNDS {
        let pool = Arc::new(test.allocator.create_pool());
        let (also, other) = (Arc::clone(&pool), stream.clone());
        let (tell, told) = mpsc::channel();
        hook.set(Call::Wait, None, move || {
            let barrier = Arc::new(AtomicBool::new(false));
            let there = Arc::clone(&barrier);
            let thread = thread::spawn(move || {
                there.store(true, SeqCst);
                drop(also.enter(&other).unwrap());
            });
            while !barrier.load(SeqCst) {
                std::hint::spin_loop();
            }
            spin(round);
            tell.send(thread).unwrap();
        });
        pool.sleep(Contents::Discard).unwrap();
        told.recv().unwrap().join().unwrap();
        assert!(pool.is_asleep());
        served += usize::from(pool.allocate(MIB, &stream).is_ok());
        pools.push(pool);
    }
    assert_eq!(served, 0, "of {ROUNDS}");
}
