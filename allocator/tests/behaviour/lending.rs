//! Lending: a block that is idle on one stream serves another behind a wait on the device.

use cachette::hal::Call;

use crate::fixture::memory::Interface;
use crate::fixture::{KIB, MIB, TestAllocator};

const LENDS: &str = "lend_across_streams:True";

#[test]
fn nothing_is_lent_unless_asked_for() {
    let (test, [owner, borrower]) = TestAllocator::new().with_streams();
    let address = test.allocate(12 * MIB, &owner).address();
    assert_ne!(test.allocate(12 * MIB, &borrower).address(), address);
    assert_eq!(test.device.calls(Call::StreamWait), 0);
}

#[test]
fn an_idle_block_serves_a_stream_that_would_otherwise_grow() {
    for bytes in [KIB, 3 * MIB, 12 * MIB] {
        let (test, [owner, borrower]) = TestAllocator::with(LENDS).with_streams();
        let first = test.allocate(bytes, &owner);
        let (address, hold) = (first.address(), test.hold(&owner));
        test.fill(&first, 1, &owner);
        drop(first);
        let lent = test.allocate(bytes, &borrower);
        assert_eq!((lent.address(), lent.stream()), (address, borrower.handle()));
        assert_eq!(test.stats().segment.all.current, 1);
        test.fill(&lent, 2, &borrower);
        hold.release();
        assert_eq!(test.content(&lent, &borrower), Some(2), "the owner's work came after");
        assert_eq!(test.device.calls(Call::Poll), 0);
        drop(lent);
        test.assert_sound();
    }
}

#[test]
fn a_lent_block_comes_back_behind_the_borrowers_work() {
    for interface in Interface::BOTH {
        let (test, [owner, borrower]) = TestAllocator::with(LENDS).with_streams();
        let address = test.allocate(12 * MIB, &owner).address();
        let lent = test.allocate_by(interface, 12 * MIB, &borrower);
        assert_eq!(lent.address(), address);
        let hold = test.hold(&borrower);
        test.fill(&lent, 1, &borrower);
        drop(lent);
        let back = test.allocate(12 * MIB, &owner);
        assert_eq!(back.address(), address);
        test.fill(&back, 2, &owner);
        hold.release();
        assert_eq!(test.content(&back, &owner), Some(2));
        test.assert_sound();
    }
}

#[test]
fn a_block_can_be_lent_on_from_stream_to_stream() {
    let test = TestAllocator::with(LENDS);
    let streams = test.streams::<4>();
    let mut holds = Vec::new();
    let mut byte = 0;
    for stream in streams.iter().chain(&streams) {
        byte += 1;
        let memory = test.allocate(12 * MIB, stream);
        holds.push(test.hold(stream));
        test.fill(&memory, byte, stream);
    }
    let last = test.allocate(12 * MIB, &streams[0]);
    assert_eq!(test.stats().segment.all.current, 1);
    // Whatever was held first goes last: only the waits keep the order.
    while let Some(hold) = holds.pop() {
        hold.release();
    }
    assert_eq!(test.content(&last, &streams[0]), Some(byte));
    test.assert_sound();
}

#[test]
fn a_streams_own_block_comes_before_a_borrowed_one() {
    let (test, [owner, borrower]) = TestAllocator::with(LENDS).with_streams();
    let own = test.allocate(12 * MIB, &borrower);
    let own_at = own.address();
    let other = test.allocate(12 * MIB, &owner);
    drop((own, other));
    let calls = test.calls_during(|| {
        assert_eq!(test.allocate(12 * MIB, &borrower).address(), own_at);
    });
    assert_eq!(calls, 0);
}

#[test]
fn a_use_of_lent_memory_by_a_third_stream_is_waited_for() {
    let (test, [owner, borrower, third]) = TestAllocator::with(LENDS).with_streams();
    drop(test.allocate(12 * MIB, &owner));
    let lent = test.allocate(12 * MIB, &borrower);
    let hold = test.hold(&third);
    test.fill(&lent, 1, &third);
    lent.record_stream(&third);
    drop(lent);
    let next = test.allocate(12 * MIB, &owner);
    test.fill(&next, 2, &owner);
    hold.release();
    assert_eq!(test.content(&next, &owner), Some(2));
}

#[test]
fn lent_memory_may_outlive_its_owners_stream_and_the_allocator() {
    let (test, [owner, borrower]) = TestAllocator::with(LENDS).with_streams();
    drop(test.allocate(12 * MIB, &owner));
    let lent = test.allocate(12 * MIB, &borrower);
    test.fill(&lent, 3, &borrower);
    borrower.synchronize().unwrap();
    let device = test.device.clone();
    drop((owner, borrower, test));
    assert_eq!(device.live().allocations, 1);
    drop(lent);
    assert_eq!(device.live(), cachette_hal_host::Live::default());
}

#[test]
fn lending_to_and_fro_costs_the_same_every_time() {
    let (test, [owner, borrower]) = TestAllocator::with(LENDS).with_streams();
    let rest = test.allocate(KIB, &owner);
    let waits = test.calls_of(Call::StreamWait, || {
        for _ in 0..200 {
            drop(test.allocate(KIB, &borrower));
            drop(test.allocate(KIB, &owner));
        }
    });
    assert!(waits <= 800, "400 requests made the streams wait {waits} times");
    let events = test.device.live().events;
    assert!(events <= 8, "{events} events");
    drop(rest);
}

#[test]
fn what_is_left_of_a_lent_block_keeps_its_guards() {
    let (test, [owner, side, borrower]) = TestAllocator::with(LENDS).with_streams();
    let memory = test.allocate(12 * MIB, &owner);
    let hold = test.hold(&side);
    test.fill(&memory, 1, &side);
    memory.release_after(&[&side]).unwrap();
    let lent = test.allocate(4 * MIB, &borrower);
    let rest = test.allocate(8 * MIB, &owner);
    assert_eq!(test.stats().segment.all.current, 1);
    test.fill(&rest, 2, &owner);
    hold.release();
    assert_eq!(test.content(&rest, &owner), Some(2), "the old use came after the new");
    drop((lent, rest));
}

#[test]
fn pools_lend_to_no_other_pool() {
    let (test, [one, two]) = TestAllocator::of(64 * MIB, "lend_across_streams:True").with_streams();
    let pool = test.allocator.create_pool();
    drop(pool.allocate(20 * MIB, &one).unwrap());
    let memory = test.allocate(20 * MIB, &two);
    assert_eq!(pool.stats().allocations, 0, "the default pool got memory of the pool");
    let other = test.allocator.create_pool();
    let also = other.allocate(20 * MIB, &two).unwrap();
    assert_eq!(pool.stats().allocations, 0, "another pool got memory of the pool");
    drop((memory, also));
}
