//! Pinned memory by settings: registered memory and the reserve segment.

use cachette::hal::Call;

use crate::fixture::{TestAllocator, config};
use crate::pinned::{Staged, WHOLE};

const KIB: u64 = 1 << 10;
const PAGE: u64 = 4 * KIB;
const REGISTER: &str = "pinned_use_cuda_host_register:True,pinned_num_register_threads:4";

#[test]
fn n4_registered_memory_is_pinned_and_cached() {
    let test = TestAllocator::with(REGISTER);
    for bytes in [1, WHOLE, 2 * WHOLE, 8 * WHOLE] {
        let mut memory = test.pin(bytes);
        assert!(memory.device_address().expect("it is pinned").is_some());
        assert_eq!(memory.ptr().addr().get() as u64 % PAGE, 0);
        // SAFETY: 1. no device knows the memory.
        assert!(unsafe { memory.as_slice() }.iter().all(|byte| *byte == 0));
        // SAFETY: 1. no device knows the memory.
        unsafe { memory.as_mut_slice() }.fill(1);
        let at = memory.ptr();
        drop(memory);
        assert_eq!(test.pin(bytes).ptr(), at);
    }
    assert_eq!(test.device.calls(Call::AllocatePinned), 0);
    assert_eq!(test.device.calls(Call::Register), 4);
    assert_eq!(test.device.calls(Call::Unregister), 0);
    assert_eq!(test.allocator.pinned().stats().num_host_alloc, 4);
    test.assert_returns_everything();
}

#[test]
fn n4_no_page_is_registered_twice() {
    let test = TestAllocator::with(REGISTER);
    let small = [(); 20].map(|()| test.pin(16));
    assert_eq!(test.device.calls(Call::Register), 1, "one call for the pages that they share");
    let large = [(); 20].map(|()| test.pin(WHOLE + 1));
    let mut pages = large.each_ref().map(|block| block.ptr().addr().get() as u64 / PAGE);
    pages.sort_unstable();
    assert!(pages.windows(2).all(|two| two[0] < two[1]), "{pages:?}");
    test.assert_returns_everything_after((small, large));
}

#[test]
fn n4_the_switch_may_be_turned_between_allocation_and_free() {
    let test = TestAllocator::with(REGISTER);
    let registered = test.pin(WHOLE);
    test.allocator.set_config(&config(""));
    let made = test.pin(WHOLE);
    test.allocator.set_config(&config(REGISTER));
    drop((registered, made));
    assert_eq!(test.allocator.pinned().empty_cache(), Ok(2 * WHOLE));
    assert_eq!(test.device.calls(Call::Unregister), 1);
    assert_eq!(test.device.calls(Call::FreePinned), 1);
    assert_eq!(test.device.live().pinned, 0);
}

#[test]
fn n5_the_reserve_segment_serves_exact_sizes_and_is_never_freed() {
    for text in ["", REGISTER] {
        let test = TestAllocator::with(&format!("pinned_reserve_segment_size_mb:1,{text}"));
        assert_eq!(test.pinning_calls(), 0, "nothing before the first request");
        let first = test.pin(100);
        let second = test.pin(5 * KIB);
        let third = test.pin(KIB);
        let at = |memory: &Staged| memory.ptr().addr().get() as u64;
        assert_eq!(at(&second) - at(&first), KIB / 2);
        assert_eq!(at(&third) - at(&second), 5 * KIB);
        assert_eq!(test.pinning_calls(), 1, "one call for all");
        assert_eq!(test.allocator.pinned().stats().num_host_alloc, 1);
        let (begin, outside) = (first.ptr(), test.pin(1 << 20));
        assert_eq!(test.pinning_calls(), 2, "what does not fit is made by itself");
        drop((first, second, third, outside));
        assert_eq!(test.allocator.pinned().empty_cache(), Ok(2 << 20));
        assert_eq!(test.device.live().pinned, 1, "the segment stays");
        assert_eq!(test.pin(KIB).ptr(), begin);
        test.assert_returns_everything();
    }
}

#[test]
fn n5_the_whole_reserve_segment_is_used() {
    let test = TestAllocator::with("pinned_reserve_segment_size_mb:1");
    let blocks = [(); 256].map(|()| test.pin(PAGE));
    assert_eq!(test.pinning_calls(), 1);
    assert_eq!(test.pin(PAGE).bytes(), PAGE);
    assert_eq!(test.pinning_calls(), 2);
    let TestAllocator { device, allocator, .. } = test;
    drop(allocator);
    assert_eq!(device.live().pinned, 1, "it stays while blocks of it live");
    drop(blocks);
    assert_eq!(device.live().pinned, 0);
}

#[test]
fn n5_without_room_for_the_segment_blocks_are_made_singly() {
    use cachette::hal::ErrorKind;
    let test = TestAllocator::with("pinned_reserve_segment_size_mb:4");
    test.device.fail_next(Call::AllocatePinned, 1, ErrorKind::OutOfMemory);
    let alone = test.pin(WHOLE);
    let cut = test.pin(WHOLE);
    assert_eq!(test.device.live().pinned, 2, "the segment came second");
    test.assert_returns_everything_after((alone, cut));
}
