//! The same requests get the same places in segments, independent of addresses.

use crate::fixture::{Allocation, GIB, MIB, TestAllocator};

#[test]
fn s9_equals_serve_in_one_order_whether_addresses_rise_or_fall() {
    let served = |falling: bool| {
        let (test, [spare, stream]) = TestAllocator::phantom(GIB, "").with_streams();
        if falling {
            // Phantom addresses come back last in, first out, so that of the next two the second is lower.
            let both = [0; 2].map(|_| test.allocate(12 * MIB, &spare));
            drop(both);
            test.allocator.empty_cache().unwrap();
        }
        let both = [0; 2].map(|_| test.allocate(12 * MIB, &stream));
        let addresses = both.each_ref().map(Allocation::address);
        assert_eq!(addresses[1] < addresses[0], falling);
        drop(both);
        // A request of another size, so that neither is merely the one freed last.
        drop(test.allocate(512, &stream));
        let next = test.allocate(12 * MIB, &stream).address();
        addresses.iter().position(|address| *address == next)
    };
    assert!(served(true).is_some());
    assert_eq!(served(true), served(false));
}
