//! Configuration, at the start and at run time.

use cachette::hal::{Call, Feature};
use cachette::{Allocator, Config};
use cachette_hal_host::HostConfig;

use crate::fixture::{MIB, TestAllocator, any, config, device};

#[test]
fn an_allocator_says_how_it_is_configured() {
    let settings = "max_split_size_mb:64,memory_limit:100M,never_block:True";
    let test = TestAllocator::with(settings);
    assert_eq!(test.allocator.config(), config(settings));
    let default = Allocator::new(any(test.device.clone()));
    assert_eq!(default.config(), Config::default());
}

/// X1: elastic segments are the default, on devices that have virtual memory.
#[test]
fn x1_segments_are_elastic_by_default() {
    let elastic = [(Call::CreateBacking, 1), (Call::Allocate, 0)];
    let direct = [(Call::CreateBacking, 0), (Call::Allocate, 1)];
    let without = HostConfig::default().without(Feature::VirtualMemory);
    for (host, text, expected) in [
        (HostConfig::default(), "", elastic),
        (HostConfig::default(), "expandable_segments:True", elastic),
        (HostConfig::default(), "expandable_segments:False", direct),
        (without.clone(), "", direct),
        (without, "expandable_segments:True", direct),
    ] {
        let device = device(host);
        let allocator = Allocator::with_config(any(device.clone()), &text.parse().unwrap());
        let stream = allocator.create_stream().unwrap();
        drop(allocator.allocate(2 * MIB, &stream).unwrap());
        assert_eq!(expected.map(|(call, _)| (call, device.calls(call))), expected, "{text}");
    }
}

#[test]
fn memory_is_created_for_network_cards_on_request() {
    let (test, [stream]) = TestAllocator::with("expandable_segments:True").with_streams();
    let before = test.allocate(2 * MIB, &stream);
    assert_eq!(test.device.live().rdma_backings, 0);
    test.allocator.set_config(&config("expandable_segments:True,gpu_direct_rdma:True"));
    let after = test.allocate(2 * MIB, &stream);
    assert_eq!(test.device.live().rdma_backings, 1);
    drop((before, after));
}

#[test]
fn s19_the_size_of_segments_can_change_at_run_time() {
    let (test, [stream]) = TestAllocator::new().with_streams();
    let before = test.allocate(2 * MIB, &stream);
    test.allocator.set_config(&config("large_segment_size_mb:40"));
    // What is cached still serves; the next segment is of the new size.
    let cached = test.allocate(9 * MIB, &stream);
    let rest = test.allocate(9 * MIB, &stream);
    assert_eq!(test.device.physical_bytes(), 20 * MIB);
    let new = test.allocate(2 * MIB, &stream);
    assert_eq!(test.device.physical_bytes(), 60 * MIB);
    let later = test.allocate(2 * MIB, &test.stream());
    assert_eq!(test.device.physical_bytes(), 100 * MIB, "streams made after a change follow it");
    drop((before, cached, rest, new, later));
    test.assert_sound();
}

#[test]
fn s5_rounding_can_change_at_run_time() {
    let (test, [stream]) = TestAllocator::new().with_streams();
    let plain = test.allocate(84 * MIB, &stream);
    test.allocator.set_config(&config("roundup_power2_divisions:4"));
    let rounded = test.allocate(84 * MIB, &stream);
    test.allocator.set_config(&config(""));
    let again = test.allocate(84 * MIB + 1, &stream);
    assert_eq!([plain.bytes(), rounded.bytes(), again.bytes()], [84 * MIB, 96 * MIB, 84 * MIB + 512]);
    drop((plain, rounded, again));
    test.assert_sound();
}

#[test]
fn s13_the_bound_on_splitting_can_change_at_run_time() {
    let (test, [stream]) = TestAllocator::new().with_streams();
    drop(test.allocate(60 * MIB, &stream));
    test.allocator.set_config(&config("max_split_size_mb:40"));
    let calls = test.calls_of(Call::Allocate, || drop(test.allocate(12 * MIB, &stream)));
    assert_eq!(calls, 1);
    test.allocator.set_config(&config(""));
    let calls = test.calls_of(Call::Allocate, || drop(test.allocate(30 * MIB, &stream)));
    assert_eq!(calls, 0);
    test.assert_sound();
}

#[test]
fn a_change_leaves_the_limit_alone() {
    let test = TestAllocator::with("memory_limit:100M");
    test.allocator.set_config(&config("never_block:True"));
    assert_eq!(test.allocator.memory_limit(), Some(100 * MIB));
    test.allocator.set_memory_limit(Some(50 * MIB));
    test.allocator.set_config(&config("memory_limit:10M"));
    assert_eq!(test.allocator.memory_limit(), Some(50 * MIB));
}
