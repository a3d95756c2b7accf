//! Raw memory, and the errors about wrong addresses.

use cachette::hal::StreamRef;
use cachette::{Error, Label, PointerProblem};

use crate::fixture::memory::Interface;
use crate::fixture::{KIB, MIB, Stream, TestAllocator};

/// The reason why `address` cannot be freed.
fn refusal(test: &TestAllocator, address: u64) -> PointerProblem {
    let freed = test.allocator.free_raw(address);
    problem(address, freed.expect_err("nothing to free begins there"))
}

fn problem(address: u64, error: Error) -> PointerProblem {
    let text = error.to_string();
    assert!(text.contains(&format!("{address:#x}")), "{text}");
    match error {
        Error::InvalidPointer { address: of, why } => {
            assert_eq!(of, address);
            why
        }
        other => panic!("{other}"),
    }
}

#[test]
fn s18_a_second_free_is_refused() {
    let (test, [stream]) = TestAllocator::new().with_streams();
    let keeps = test.allocate_raw(KIB, &stream);
    for bytes in [KIB, MIB, 12 * MIB] {
        let address = test.allocate_raw(bytes, &stream);
        test.allocator.free_raw(address).unwrap();
        assert_eq!(refusal(&test, address), PointerProblem::Free);
        // Whatever the block was merged into by now.
        drop(test.allocate(700 * KIB, &stream));
        assert_eq!(refusal(&test, address), PointerProblem::Free);
    }
    test.assert_sound();
    test.allocator.free_raw(keeps).unwrap();
}

#[test]
fn raw_memory_is_freed_wherever_its_thread_allocated_last() {
    let tests: [_; 2] = std::array::from_fn(|_| TestAllocator::new().with_streams::<2>());
    for freed in 0..4 {
        // Each of the four heaps is the last one once, and frees its newest memory or an older one.
        let memory = |place: usize| tests[place / 2].0.allocate_raw(MIB, &tests[place / 2].1[place % 2]);
        let older: [u64; 4] = std::array::from_fn(memory);
        let newest: [u64; 4] = std::array::from_fn(memory);
        for place in (0..4).map(|place| (place + freed) % 4) {
            let allocator = &tests[place / 2].0.allocator;
            let before = allocator.allocated_bytes();
            allocator.free_raw(newest[place]).unwrap();
            assert_eq!(allocator.allocated_bytes(), before - MIB);
            assert_eq!(refusal(&tests[place / 2].0, newest[place]), PointerProblem::Free);
            allocator.free_raw(older[place]).unwrap();
            assert_eq!(allocator.allocated_bytes(), before - 2 * MIB);
        }
        for (test, _) in &tests {
            test.assert_sound();
        }
    }
}

#[test]
fn s18_e1_pending_memory_is_refused_as_freed_twice() {
    for interface in Interface::BOTH {
        let (test, [stream, side]) = TestAllocator::new().with_streams();
        let memory = test.allocate_by(interface, MIB, &stream);
        let address = memory.address();
        let hold = test.hold(&side);
        memory.record_stream(&side);
        drop(memory);
        assert_eq!(refusal(&test, address), PointerProblem::FreedTwice);
        let base = test.allocator.base_allocation(address).unwrap_err();
        assert_eq!(problem(address, base), PointerProblem::FreedTwice);
        // SAFETY: 1. 2. the stream is this allocator's own.
        let recorded = unsafe { test.allocator.record_stream_raw(address, side.handle()) }.unwrap_err();
        assert_eq!(problem(address, recorded), PointerProblem::FreedTwice);
        test.assert_sound();
        hold.release();
    }
}

#[test]
fn s18_an_address_inside_an_allocation_is_refused() {
    let (test, [stream]) = TestAllocator::new().with_streams();
    for bytes in [2 * KIB, 3 * MIB, 12 * MIB] {
        let start = test.allocate_raw(bytes, &stream);
        for offset in [1, 511, 512, KIB, bytes - 1] {
            let expected = PointerProblem::Interior { start, offset };
            assert_eq!(refusal(&test, start + offset), expected);
        }
        test.assert_sound();
        test.allocator.free_raw(start).unwrap();
    }
}

#[test]
fn s18_an_unknown_address_is_refused() {
    let (test, [stream]) = TestAllocator::new().with_streams();
    let address = test.allocate_raw(12 * MIB, &stream);
    let end = address + 12 * MIB;
    for wrong in [1, 512, 0xdead_0000, end, 1 << 48, 1 << 60, u64::MAX] {
        assert_eq!(refusal(&test, wrong), PointerProblem::Foreign, "{wrong:#x}");
    }
    assert_eq!(test.stats().allocation.all.current, 1);
    test.allocator.free_raw(address).unwrap();
    test.allocator.empty_cache().unwrap();
    assert_eq!(refusal(&test, address), PointerProblem::Foreign);
}

#[test]
fn s18_memory_of_another_allocator_is_refused() {
    let (one, two) = (TestAllocator::new(), TestAllocator::new());
    let (first, second) = (one.stream(), two.stream());
    let mine = one.allocate_raw(KIB, &first);
    let yours = two.allocate_raw(KIB, &second);
    assert_eq!(refusal(&one, yours), PointerProblem::Foreign);
    assert_eq!(refusal(&two, mine), PointerProblem::Foreign);
    one.allocator.free_raw(mine).unwrap();
    two.allocator.free_raw(yours).unwrap();
}

#[test]
fn s18_memory_with_an_owner_is_the_owners_to_free() {
    let (test, [stream]) = TestAllocator::new().with_streams();
    let memory = test.allocate(KIB, &stream);
    assert_eq!(refusal(&test, memory.address()), PointerProblem::Owned);
    assert_eq!(test.stats().allocation.all.current, 1);
    let address = memory.into_raw();
    test.allocator.free_raw(address).unwrap();
    assert_eq!(test.stats().allocation.all.current, 0);
    let owned = test.allocate(KIB, &stream);
    assert_eq!(owned.address(), address);
    assert_eq!(refusal(&test, address), PointerProblem::Owned, "raw memory before");
    test.assert_sound();
}

#[test]
fn s18_the_base_is_that_of_the_segment() {
    let (test, [stream]) = TestAllocator::new().with_streams();
    let first = test.allocate(MIB, &stream);
    let second = test.allocate(MIB, &stream);
    let base = (first.address(), 2 * MIB);
    assert_eq!(test.allocator.base_allocation(first.address()), Ok(base));
    assert_eq!(test.allocator.base_allocation(second.address()), Ok(base));
    assert_eq!(test.allocator.bytes_at(second.address()), Ok(second.bytes()));
    assert!(test.allocator.bytes_at(second.address() + 1).is_err());
    let inside = second.address() + 512;
    let error = test.allocator.base_allocation(inside).unwrap_err();
    let (start, offset) = (second.address(), 512);
    assert_eq!(problem(inside, error), PointerProblem::Interior { start, offset });
    let address = first.address();
    drop(first);
    let error = test.allocator.base_allocation(address).unwrap_err();
    assert_eq!(problem(address, error), PointerProblem::Free);
}

#[test]
fn e1_a_record_on_memory_that_was_freed_is_refused() {
    let (test, [stream, side]) = TestAllocator::new().with_streams();
    // SAFETY: 1. 2. the stream is this allocator's own.
    let record = |address| unsafe { test.allocator.record_stream_raw(address, side.handle()) };
    let address = test.allocate_raw(KIB, &stream);
    assert_eq!(record(0), Ok(()));
    assert_eq!(record(address), Ok(()));
    let error = record(address + 512).unwrap_err();
    let (start, offset) = (address, 512);
    assert_eq!(problem(address + 512, error), PointerProblem::Interior { start, offset });
    test.allocator.free_raw(address).unwrap();
    side.synchronize().unwrap();
    drop(test.allocate(MIB, &stream));
    let error = record(address).unwrap_err();
    assert_eq!(problem(address, error), PointerProblem::Free);
    test.assert_sound();
}

#[test]
fn s10_raw_requests_find_the_heap_of_their_stream() {
    let test = TestAllocator::new();
    let stream = test.allocator.default_stream().unwrap();
    let address = test.allocate(MIB, &stream).address();
    // SAFETY: 1. 2. the default stream is always there.
    let raw = unsafe { test.allocator.allocate_raw(MIB, StreamRef::DEFAULT) };
    assert_eq!(raw, Ok(address));
    test.allocator.free_raw(address).unwrap();
}

#[test]
fn a_stream_of_another_allocator_is_refused() {
    let (one, two) = (TestAllocator::new(), TestAllocator::new());
    let foreign = two.stream();
    for bytes in [0, KIB, 12 * MIB] {
        let error = one.allocator.allocate(bytes, &foreign).unwrap_err();
        assert_eq!(error, Error::ForeignStream);
    }
    assert_eq!(one.device.total_calls(), 0);
}

#[test]
fn debug_of_an_allocator_is_short() {
    let (test, [stream]) = TestAllocator::new().with_streams();
    let memory = test.allocate(MIB, &stream);
    let message = format!("{:?}", test.allocator);
    assert!(message.len() < 64 << 10, "{} bytes", message.len());
    drop(memory);
}

#[test]
fn the_last_freed_block_serves_without_a_wait_or_nothing_does() {
    let (test, [stream, side]) = TestAllocator::new().with_streams();
    let ask = |bytes, stream: &Stream| {
        // SAFETY: 1. 2. the stream is this allocator's own.
        unsafe { test.allocator.allocate_raw_last_freed(bytes, stream.handle(), Label::new("test")) }
    };
    assert_eq!(ask(KIB, &stream), None);
    // The thread becomes the owner of the heap's lock.
    for _ in 0..1000 {
        test.allocator.free_raw(test.allocate_raw(KIB, &stream)).unwrap();
    }
    let address = test.allocate_raw(KIB, &stream);
    assert_eq!(ask(KIB, &stream), None);
    test.allocator.free_raw(address).unwrap();
    for other in [0, 2 * KIB, u64::MAX] {
        assert_eq!(ask(other, &stream), None);
    }
    assert_eq!(ask(KIB, &side), None);
    assert_eq!(ask(KIB, &stream), Some(address));
    assert_eq!(test.allocator.stats().allocation.all.allocated, 1002);
    test.assert_sound();
    test.allocator.free_raw(address).unwrap();
    let pool = test.allocator.create_pool();
    let guard = pool.enter_all();
    assert_eq!(ask(KIB, &stream), None);
    drop(guard);
}
