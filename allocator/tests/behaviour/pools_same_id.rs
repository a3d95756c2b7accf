//! A pool with the id of an earlier one.

use std::sync::{Arc, mpsc};

use cachette::PoolOptions;
use cachette::hal::Call;
use cachette::pool::PoolId;
use cachette::sleep::Contents;
use cachette_hal_host::HostConfig;

use crate::fixture::{ELASTIC, MIB, TestAllocator};

#[test]
fn z_a_sleep_of_a_pool_with_the_id_of_an_earlier_one_discards_no_memory_of_another_pool() {
    let (test, hook) = TestAllocator::hooked(HostConfig::default(), ELASTIC);
    let stream = test.stream();
    let options = PoolOptions::new().id(PoolId::new());
    let first = test.allocator.create_pool_with(options.clone()).unwrap();
    drop(first.allocate(4 * MIB, &stream).unwrap());
    stream.synchronize().unwrap();
    drop(first);
    test.allocator.empty_cache().unwrap();
    assert_eq!(test.allocator.reserved_bytes(), 0);
    let second = test.allocator.create_pool_with(options).unwrap();
    let (allocator, also) = (test.allocator.clone(), stream.clone());
    let third = allocator.create_pool();
    let inner = Arc::clone(&hook);
    let (send, amid) = mpsc::channel();
    // The sleep waits for the streams twice, and the second time it has listed its heaps.
    hook.set(Call::Wait, None, move || {
        let amid = inner.start(Call::Wait, None, move || {
            let memory = third.allocate(4 * MIB, &also).unwrap();
            (third, memory)
        });
        send.send(amid).unwrap();
    });
    second.sleep(Contents::Discard).expect("it has no memory");
    let (third, memory) = amid.recv().unwrap().result();
    assert_eq!(third.stats().reserved_bytes, 4 * MIB, "the third pool has its memory");
    test.fill(&memory, 7, &stream);
    assert_eq!(test.content(&memory, &stream), Some(7), "the bytes are there");
}
