//! A configuration that is replaced while streams are made.

use std::sync::{Barrier, mpsc};
use std::thread;

use cachette_hal_host::HostConfig;

use crate::fixture::{KIB, TestAllocator, config};

#[test]
fn streams_made_while_the_configuration_is_replaced_have_it() {
    const ROUNDS: usize = 400;
    let mut old = 0;
    for _ in 0..20 {
        let test = &TestAllocator::on(HostConfig::default().capacity(1 << 40).phantom(true).stepped(3), "");
        let barrier = &Barrier::new(2);
        let (send, made) = mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(move || {
                for _ in 0..ROUNDS {
                    barrier.wait();
                    send.send(test.stream()).expect("the test waits");
                    barrier.wait();
                }
            });
            for _ in 0..ROUNDS {
                barrier.wait();
                test.allocator.set_config(&config("roundup_power2_divisions:4"));
                let stream = made.recv().expect("it is made");
                // 5 KiB, with four divisions of 4 KiB to 8 KiB; 4.5 KiB without.
                let memory = test.allocate(4 * KIB + 1, &stream);
                old += usize::from(memory.bytes() != 5 * KIB);
                drop(memory);
                test.allocator.set_config(&config(""));
                barrier.wait();
            }
        });
    }
    assert_eq!(old, 0, "so many streams of {} keep the old configuration", 20 * ROUNDS);
}

#[test]
fn heaps_have_the_configuration_that_the_allocator_reports_after_two_replaced_it() {
    const ROUNDS: usize = 10_000;
    let host = HostConfig::default().capacity(1 << 40).phantom(true).stepped(3);
    let (test, streams) = &TestAllocator::on(host, "").with_streams::<16>();
    let barrier = &Barrier::new(2);
    let mut old = 0;
    thread::scope(|scope| {
        scope.spawn(move || {
            for _ in 0..ROUNDS {
                barrier.wait();
                test.allocator.set_config(&config("roundup_power2_divisions:4"));
                barrier.wait();
                barrier.wait();
            }
        });
        for _ in 0..ROUNDS {
            barrier.wait();
            test.allocator.set_config(&config(""));
            barrier.wait();
            let divides = test.allocator.config() == config("roundup_power2_divisions:4");
            let bytes = if divides { 5 * KIB } else { 4 * KIB + KIB / 2 };
            let wrong = |stream| test.allocate(4 * KIB + 1, stream).bytes() != bytes;
            old += streams.iter().filter(|stream| wrong(stream)).count();
            barrier.wait();
        }
    });
    assert_eq!(old, 0, "so many streams did not have the configuration");
}
