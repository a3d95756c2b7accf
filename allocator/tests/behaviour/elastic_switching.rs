//! Elastic segments switched on and off while memory is in use.

use std::thread;

use cachette::Allocator;
use cachette::hal::{Call, ErrorKind};
use cachette_hal_host::HostConfig;

use crate::fixture::{ELASTIC, MIB, TestAllocator, assert_consistent, config, let_pass};

const OFF: &str = "expandable_segments:False";

fn set(allocator: &Allocator, text: &str) {
    allocator.set_config(&config(text));
}

#[test]
fn x8_s12_a_stream_keeps_its_kind_of_segments() {
    for (before, after) in [(ELASTIC, OFF), (OFF, ELASTIC)] {
        let (test, [stream]) = TestAllocator::on(HostConfig::default(), before).with_streams();
        let kept = test.allocate(5 * MIB, &stream);
        test.fill(&kept, 8, &stream);
        set(&test.allocator, after);
        let direct = || test.stats().segment.all.current;
        let (segments, is_direct) = (direct(), before == OFF);
        let next = test.allocate(40 * MIB, &stream);
        assert_eq!(direct() - segments, u64::from(is_direct));
        let other = test.stream();
        let new = test.allocate(40 * MIB, &other);
        assert_eq!(direct() - segments, 1, "of the old stream or of the new one");
        assert_eq!(test.content(&kept, &stream), Some(8));
        let address = next.address();
        drop(next);
        assert_eq!(test.allocate(40 * MIB, &stream).address(), address);
        assert_consistent(&test.allocator);
        test.assert_returns_everything_after((kept, new, stream, other));
    }
}

#[test]
fn x8_a_stream_that_enters_a_pool_after_a_switch_has_the_new_kind_there() {
    let (test, [stream]) = TestAllocator::elastic("").with_streams();
    let memory = test.allocate(3 * MIB, &stream);
    let pool = test.allocator.create_pool();
    set(&test.allocator, OFF);
    let direct = pool.allocate(3 * MIB, &stream).expect("there is room");
    assert_eq!(pool.stats().segments, 1);
    set(&test.allocator, ELASTIC);
    let again = pool.allocate(30 * MIB, &stream).expect("there is room");
    assert_eq!(pool.stats().segments, 2, "the pool is used already");
    test.assert_returns_everything_after((memory, direct, again, pool, stream));
}

#[test]
fn x8_a_stream_without_memory_takes_the_setting_of_now() {
    for (before, after) in [(ELASTIC, OFF), (OFF, ELASTIC)] {
        let (test, [stream]) = TestAllocator::checked(HostConfig::default(), before).with_streams();
        let pool = test.allocator.create_pool();
        for text in [after, before, after] {
            drop((test.allocate(5 * MIB, &stream), pool.allocate(5 * MIB, &stream)));
            stream.synchronize().expect("there is no work");
            test.allocator.empty_cache().expect("nothing fails");
            pool.empty_cache().expect("nothing fails");
            set(&test.allocator, text);
            let memory = [test.allocate(5 * MIB, &stream), pool.allocate(5 * MIB, &stream).expect("there is room")];
            assert_eq!(test.stats().segment.all.current, if text == OFF { 2 } else { 0 });
            test.fill(&memory[0], 3, &stream);
            test.fill(&memory[1], 4, &stream);
            assert_eq!(memory.each_ref().map(|memory| test.content(memory, &stream)), [Some(3), Some(4)]);
            assert_consistent(&test.allocator);
            assert_eq!(test.device.physical_bytes(), test.stats().reserved_bytes.all.current);
        }
        assert_eq!(test.allocator.elastic_segments().is_empty(), after == OFF, "addresses without use are released");
        drop((pool, stream));
        test.assert_returns_everything();
    }
}

#[test]
fn x8_memory_on_its_way_to_the_device_delays_a_switch() {
    let (test, [stream]) = TestAllocator::elastic("").with_streams();
    let memory = test.allocate(5 * MIB, &stream);
    let hold = test.hold(&stream);
    test.fill(&memory, 1, &stream);
    drop(memory);
    test.allocator.empty_cache().expect("nothing fails");
    set(&test.allocator, OFF);
    drop(test.allocate(5 * MIB, &stream));
    assert_eq!(test.stats().segment.all.allocated, 0, "its addresses are mapped still");
    let_pass(hold, &stream);
    test.allocator.empty_cache().expect("nothing fails");
    drop(test.allocate(5 * MIB, &stream));
    assert_eq!(test.stats().segment.all.allocated, 1);
    drop(stream);
    test.assert_returns_everything();
}

#[test]
fn x8_a_mapping_that_the_driver_keeps_delays_a_switch() {
    let (test, [stream, other]) = TestAllocator::elastic("").with_streams();
    drop(test.allocate(64 * MIB, &stream));
    (1..=8).for_each(|nth| test.device.fail_next(Call::Unmap, nth, ErrorKind::Other));
    let moved = test.allocate(64 * MIB, &other);
    assert_eq!(test.stats().reserved_bytes.all.current, 64 * MIB, "it moved");
    set(&test.allocator, OFF);
    drop(test.allocate(5 * MIB, &stream));
    assert_eq!(test.stats().segment.all.allocated, 0, "the old mapping is there");
    test.device.clear_failures();
    test.allocator.empty_cache().expect("nothing fails any more");
    drop(test.allocate(5 * MIB, &stream));
    assert_eq!(test.stats().segment.all.allocated, 1);
    drop((moved, stream, other));
    test.assert_returns_everything();
}

#[test]
fn x8_threads_switch_while_others_allocate_and_empty() {
    let test = TestAllocator::checked(HostConfig::default().capacity(256 * MIB), ELASTIC);
    let streams: [_; 3] = test.streams();
    thread::scope(|scope| {
        for (at, stream) in streams.iter().enumerate() {
            let (test, bytes) = (&test, (5 + 9 * at as u64) * MIB);
            scope.spawn(move || {
                for byte in 0..200_u8 {
                    let memory = test.allocate(bytes, stream);
                    test.fill(&memory, byte, stream);
                    assert_eq!(test.content(&memory, stream), Some(byte));
                    drop(memory);
                    if usize::from(byte) % 3 == at {
                        test.allocator.empty_cache().expect("nothing fails");
                    }
                    set(&test.allocator, if usize::from(byte) % 2 == at % 2 { OFF } else { ELASTIC });
                }
            });
        }
    });
    assert_consistent(&test.allocator);
    drop(streams);
    test.assert_returns_everything();
}
