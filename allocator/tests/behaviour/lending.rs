//! Lending: a block that is idle on one stream serves another behind a wait on the device.

use cachette::hal::Call;

use crate::bed::{Bed, KIB, MIB};

const LENDS: &str = "lend_across_streams:True";

#[test]
fn nothing_is_lent_unless_asked_for() {
    let bed = Bed::new();
    let (owner, borrower) = (bed.stream(), bed.stream());
    let address = bed.allocate(12 * MIB, &owner).address();
    assert_ne!(bed.allocate(12 * MIB, &borrower).address(), address);
    assert_eq!(bed.device.calls(Call::StreamWait), 0);
}

#[test]
fn an_idle_block_serves_a_stream_that_would_otherwise_grow() {
    for bytes in [KIB, 3 * MIB, 12 * MIB] {
        let bed = Bed::with(LENDS);
        let (owner, borrower) = (bed.stream(), bed.stream());
        let first = bed.allocate(bytes, &owner);
        let (address, hold) = (first.address(), bed.hold(&owner));
        bed.fill(&first, 1, &owner);
        drop(first);
        let lent = bed.allocate(bytes, &borrower);
        assert_eq!((lent.address(), lent.stream()), (address, borrower.handle()));
        assert_eq!(bed.stats().segment.all.current, 1);
        bed.fill(&lent, 2, &borrower);
        hold.release();
        assert_eq!(bed.content(&lent, &borrower), Some(2), "the owner's work came after");
        assert_eq!(bed.device.calls(Call::Poll), 0);
        drop(lent);
        bed.assert_sound();
    }
}

#[test]
fn a_lent_block_comes_back_behind_the_borrowers_work() {
    let bed = Bed::with(LENDS);
    let (owner, borrower) = (bed.stream(), bed.stream());
    let address = bed.allocate(12 * MIB, &owner).address();
    let lent = bed.allocate(12 * MIB, &borrower);
    assert_eq!(lent.address(), address);
    let hold = bed.hold(&borrower);
    bed.fill(&lent, 1, &borrower);
    drop(lent);
    let back = bed.allocate(12 * MIB, &owner);
    assert_eq!(back.address(), address);
    bed.fill(&back, 2, &owner);
    hold.release();
    assert_eq!(bed.content(&back, &owner), Some(2));
    bed.assert_sound();
}

#[test]
fn a_block_can_be_lent_on_from_stream_to_stream() {
    let bed = Bed::with(LENDS);
    let streams: Vec<_> = (0..4).map(|_| bed.stream()).collect();
    let mut holds = Vec::new();
    let mut byte = 0;
    for stream in streams.iter().chain(&streams) {
        byte += 1;
        let memory = bed.allocate(12 * MIB, stream);
        holds.push(bed.hold(stream));
        bed.fill(&memory, byte, stream);
    }
    let last = bed.allocate(12 * MIB, &streams[0]);
    assert_eq!(bed.stats().segment.all.current, 1);
    // Whatever was held first goes last: only the waits keep the order.
    while let Some(hold) = holds.pop() {
        hold.release();
    }
    assert_eq!(bed.content(&last, &streams[0]), Some(byte));
    bed.assert_sound();
}

#[test]
fn a_streams_own_block_comes_before_a_borrowed_one() {
    let bed = Bed::with(LENDS);
    let (owner, borrower) = (bed.stream(), bed.stream());
    let own = bed.allocate(12 * MIB, &borrower);
    let own_at = own.address();
    let other = bed.allocate(12 * MIB, &owner);
    drop((own, other));
    let calls = bed.calls_during(|| {
        assert_eq!(bed.allocate(12 * MIB, &borrower).address(), own_at);
    });
    assert_eq!(calls, 0);
}

#[test]
fn a_use_of_lent_memory_by_a_third_stream_is_waited_for() {
    let bed = Bed::with(LENDS);
    let (owner, borrower, third) = (bed.stream(), bed.stream(), bed.stream());
    drop(bed.allocate(12 * MIB, &owner));
    let lent = bed.allocate(12 * MIB, &borrower);
    let hold = bed.hold(&third);
    bed.fill(&lent, 1, &third);
    lent.record_stream(&third);
    drop(lent);
    let next = bed.allocate(12 * MIB, &owner);
    bed.fill(&next, 2, &owner);
    hold.release();
    assert_eq!(bed.content(&next, &owner), Some(2));
}

#[test]
fn lent_memory_may_outlive_its_owners_stream_and_the_allocator() {
    let bed = Bed::with(LENDS);
    let (owner, borrower) = (bed.stream(), bed.stream());
    drop(bed.allocate(12 * MIB, &owner));
    let lent = bed.allocate(12 * MIB, &borrower);
    bed.fill(&lent, 3, &borrower);
    borrower.synchronize().unwrap();
    let device = bed.device.clone();
    drop((owner, borrower, bed));
    assert_eq!(device.live().allocations, 1);
    drop(lent);
    assert_eq!(device.live(), cachette_hal_host::Live::default());
}

#[test]
fn raw_requests_borrow_too() {
    let bed = Bed::with(LENDS);
    let (owner, borrower) = (bed.stream(), bed.stream());
    let address = bed.allocate(12 * MIB, &owner).address();
    assert_eq!(bed.allocate_raw(12 * MIB, &borrower), address);
    bed.allocator.free_raw(address).unwrap();
    assert_eq!(bed.allocate(12 * MIB, &owner).address(), address);
    bed.assert_sound();
}

#[test]
fn lending_to_and_fro_costs_the_same_every_time() {
    let bed = Bed::with(LENDS);
    let (owner, borrower) = (bed.stream(), bed.stream());
    let rest = bed.allocate(KIB, &owner);
    let waits = bed.calls_of(Call::StreamWait, || {
        for _ in 0..200 {
            drop(bed.allocate(KIB, &borrower));
            drop(bed.allocate(KIB, &owner));
        }
    });
    assert!(waits <= 800, "400 requests made the streams wait {waits} times");
    let events = bed.device.live().events;
    assert!(events <= 8, "{events} events");
    drop(rest);
}

#[test]
fn what_is_left_of_a_lent_block_keeps_its_guards() {
    let bed = Bed::with(LENDS);
    let (owner, side, borrower) = (bed.stream(), bed.stream(), bed.stream());
    let memory = bed.allocate(12 * MIB, &owner);
    let hold = bed.hold(&side);
    bed.fill(&memory, 1, &side);
    memory.release_after(&[&side]).unwrap();
    let lent = bed.allocate(4 * MIB, &borrower);
    let rest = bed.allocate(8 * MIB, &owner);
    assert_eq!(bed.stats().segment.all.current, 1);
    bed.fill(&rest, 2, &owner);
    hold.release();
    assert_eq!(bed.content(&rest, &owner), Some(2), "the old use came after the new");
    drop((lent, rest));
}
