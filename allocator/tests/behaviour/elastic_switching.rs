//! Elastic segments switched on and off while memory is in use.

use cachette::Allocator;

use crate::fixture::{ELASTIC, MIB, TestAllocator, assert_consistent, config};

const OFF: &str = "expandable_segments:False";

fn set(allocator: &Allocator, text: &str) {
    allocator.set_config(&config(text));
}

#[test]
fn x8_s12_a_stream_keeps_its_kind_of_segments() {
    for (before, after) in [(ELASTIC, OFF), (OFF, ELASTIC)] {
        let (test, [stream]) = TestAllocator::on(cachette_hal_host::HostConfig::default(), before).with_streams();
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
