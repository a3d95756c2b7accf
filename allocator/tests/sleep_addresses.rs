//! Addresses that a pool unmaps for a moment while `sleep` frees its memory.
//!
//! The test is a separate program: another thread that maps memory at that moment could get the addresses.

use std::sync::Arc;

use cachette::hal::{AnyDevice, Device, Ordinal};
use cachette::sleep::Contents;
use cachette::{Allocator, Config};
use cachette_hal_host::{HostBackend, HostConfig};

#[test]
fn memory_is_freed_and_returns_where_reservations_withhold_it() {
    let backend = HostBackend::new(HostConfig::default().withholding()).expect("it can be made");
    let device = backend.device(Ordinal(0)).expect("there is a first device");
    let config: Config = "expandable_segments:True".parse().expect("it is right");
    let allocator = Allocator::with_config(Arc::new(device.clone()) as AnyDevice, &config);
    let stream = allocator.create_stream().expect("there are streams");
    let pool = allocator.create_pool();
    let inside = pool.enter(&stream).expect("it is this allocator's");
    let mut memory = allocator.allocate_buffer::<u64>(1 << 20, &stream).expect("there is room");
    drop(inside);
    let numbers: Vec<u64> = (0..1 << 20).collect();
    memory.write(&numbers).expect("it is written");
    for _ in 0..10 {
        let held = device.physical_bytes();
        assert_eq!(pool.sleep(Contents::Keep).expect("it can sleep").released, held);
        assert_eq!(device.physical_bytes(), 0, "it has come free");
        assert_eq!(pool.wake().expect("there is memory"), held);
        assert_eq!(memory.read().expect("it is read"), numbers);
    }
    assert!(device.virtual_memory().expect("it has that").frees_under_reservation().is_err());
}
