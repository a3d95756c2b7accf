//! Elastic segments switched on and off while memory is in use.

use cachette::Allocator;

use crate::fixture::{ELASTIC, KIB, MIB, TestAllocator, assert_consistent, config};

const OFF: &str = "expandable_segments:False";

fn set(allocator: &Allocator, text: &str) {
    allocator.set_config(&config(text));
}

#[test]
fn x8_s12_elastic_memory_serves_no_request_while_it_is_off() {
    let (test, [stream, other]) = TestAllocator::elastic("").with_streams();
    let kept = test.allocate(3 * MIB, &stream);
    test.fill(&kept, 1, &stream);
    let address = test.allocate(8 * MIB, &stream).address();
    set(&test.allocator, OFF);
    for stream in [&stream, &other] {
        let direct = test.allocate(8 * MIB, stream);
        assert_ne!(direct.address(), address);
        assert!(test.stats().segment.all.current > 0);
    }
    set(&test.allocator, ELASTIC);
    assert_eq!(test.content(&kept, &stream), Some(1));
    assert_consistent(&test.allocator);
    drop((kept, stream, other));
    test.assert_returns_everything();
}

#[test]
fn x8_elastic_memory_keeps_its_place_and_serves_when_on_again() {
    let (test, [stream]) = TestAllocator::elastic("").with_streams();
    let memory = test.allocate(8 * MIB, &stream);
    let address = memory.address();
    set(&test.allocator, OFF);
    drop(memory);
    set(&test.allocator, ELASTIC);
    assert_eq!(test.allocate(8 * MIB, &stream).address(), address);
    assert_eq!(test.device.physical_bytes(), 8 * MIB);
}

#[test]
fn x8_segments_of_the_devices_own_serve_on_beside_elastic_ones() {
    let (test, [stream]) = TestAllocator::on(cachette_hal_host::HostConfig::default().stepped(2), OFF).with_streams();
    let kept = test.allocate(5 * MIB, &stream);
    test.fill(&kept, 8, &stream);
    set(&test.allocator, ELASTIC);
    let segments = test.stats().segment.all.current;
    let within = test.allocate(5 * MIB, &stream);
    assert_eq!(within.address(), kept.address() + 5 * MIB, "what is free serves first");
    let elastic = test.allocate(40 * MIB, &stream);
    assert_eq!(test.stats().segment.all.current, segments);
    assert_eq!(test.allocator.elastic_segments().len(), 1);
    assert_eq!(test.content(&kept, &stream), Some(8));
    assert_consistent(&test.allocator);
    drop((kept, within, elastic));
    test.allocator.empty_cache().expect("nothing fails");
    assert_eq!(test.device.physical_bytes(), 0);
    drop(stream);
    test.assert_returns_everything();
}

#[test]
fn x8_switching_to_and_fro_loses_nothing() {
    let test = TestAllocator::elastic("");
    let streams = [test.stream(), test.stream()];
    let mut live = Vec::new();
    for round in 0..24_u64 {
        let settings = match round % 4 {
            0 => ELASTIC,
            2 => "expandable_segments:True",
            _ => OFF,
        };
        set(&test.allocator, settings);
        for (at, stream) in streams.iter().enumerate() {
            let bytes = (1 + round % 7) * 700 * KIB + at as u64;
            let memory = test.allocate(bytes, stream);
            let byte = u8::try_from(live.len() + 1).expect("few are made");
            test.fill(&memory, byte, stream);
            live.push((memory, byte, at));
        }
        if round % 3 == 2 {
            let (memory, byte, at) = live.remove(live.len() / 2);
            assert_eq!(test.content(&memory, &streams[at]), Some(byte));
        }
        assert_consistent(&test.allocator);
        assert_eq!(test.device.physical_bytes(), test.stats().reserved_bytes.all.current);
    }
    for (memory, byte, at) in live {
        assert_eq!(test.content(&memory, &streams[at]), Some(byte));
    }
    test.allocator.empty_cache().expect("nothing fails");
    assert_eq!(test.device.physical_bytes(), 0);
    drop(streams);
    test.assert_returns_everything();
}
