//! Raw memory in elastic segments.

use cachette::{Error, PointerProblem};

use crate::fixture::{GIB, KIB, MIB, TestAllocator};

fn problem(freed: Result<(), Error>) -> PointerProblem {
    match freed {
        Err(Error::InvalidPointer { why, .. }) => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn s18_only_the_start_of_an_allocation_is_freed_and_only_once() {
    let (test, [stream]) = TestAllocator::elastic("").with_streams();
    let address = test.allocate_raw(5 * MIB, &stream);
    let owned = test.allocate(3 * MIB, &stream);
    let interior = problem(test.allocator.free_raw(address + 2 * MIB));
    let expected = PointerProblem::Interior { start: address, offset: 2 * MIB };
    assert_eq!(interior, expected);
    assert_eq!(problem(test.allocator.free_raw(owned.address())), PointerProblem::Owned);
    assert_eq!(test.allocator.free_raw(address), Ok(()));
    assert_eq!(problem(test.allocator.free_raw(address)), PointerProblem::Free);
    let beyond = address + 512 * MIB;
    assert_eq!(problem(test.allocator.free_raw(beyond)), PointerProblem::Foreign);
    test.assert_elastic_sound();
    drop(owned);
}

#[test]
fn s18_an_address_whose_chunk_has_moved_is_unknown() {
    let (test, [stream]) = TestAllocator::elastic("").with_streams();
    let old = test.allocate_raw(8 * MIB, &stream);
    let kept = test.allocate_raw(2 * MIB, &stream);
    assert_eq!(test.allocator.free_raw(old), Ok(()));
    let moved = test.allocate_raw(10 * MIB, &stream);
    assert_eq!(problem(test.allocator.free_raw(old)), PointerProblem::Foreign);
    assert_eq!(test.allocator.free_raw(moved), Ok(()));
    assert_eq!(test.allocator.free_raw(kept), Ok(()));
    test.assert_elastic_sound();
}

#[test]
fn the_base_of_an_elastic_block_is_that_of_its_segment() {
    let (test, [stream]) = TestAllocator::elastic("").with_streams();
    let first = test.allocate(5 * MIB, &stream);
    let second = test.allocate(5 * MIB, &stream);
    for memory in [&first, &second] {
        let (base, bytes) = test.allocator.base_allocation(memory.address()).expect("the memory is allocated");
        assert_eq!(base, first.address());
        assert_eq!(bytes, GIB + GIB / 8, "X2: the addresses, mapped or not");
    }
    let inside = test.allocator.base_allocation(second.address() + KIB);
    assert!(matches!(inside, Err(Error::InvalidPointer { .. })));
}

#[test]
fn s17_addresses_of_all_chunks_are_found_after_they_moved() {
    let (test, [one, two]) = TestAllocator::elastic("").with_streams();
    for round in 1..20_u64 {
        let stream = if round % 2 == 0 { &one } else { &two };
        let live: Vec<u64> = (1..6).map(|part| test.allocate_raw(part * round * 300 * KIB, stream)).collect();
        for address in live {
            assert_eq!(test.allocator.free_raw(address), Ok(()), "round {round}");
        }
        test.assert_elastic_sound();
    }
}
