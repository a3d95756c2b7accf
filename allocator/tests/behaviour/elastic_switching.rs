//! Elastic segments switched on and off while memory is in use.

use cachette::Allocator;
use cachette_hal_host::HostDevice;

use crate::bed::{Bed, KIB, MIB, assert_consistent, config};

const ON: &str = "expandable_segments:True,elastic_largest_chunk_mb:2,elastic_slack:0";
const OFF: &str = "expandable_segments:False";

fn set(allocator: &Allocator<HostDevice>, text: &str) {
    allocator.set_config(&config(text));
}

#[test]
fn x8_s12_elastic_memory_serves_no_request_while_it_is_off() {
    for off in [OFF, "expandable_segments:False,lend_across_streams:True"] {
        let bed = Bed::elastic("");
        let (stream, other) = (bed.stream(), bed.stream());
        let kept = bed.allocate(3 * MIB, &stream);
        bed.fill(&kept, 1, &stream);
        let address = bed.allocate(8 * MIB, &stream).address();
        set(&bed.allocator, off);
        for stream in [&stream, &other] {
            let direct = bed.allocate(8 * MIB, stream);
            assert_ne!(direct.address(), address, "{off}");
            assert!(bed.stats().segment.all.current > 0);
        }
        set(&bed.allocator, ON);
        assert_eq!(bed.content(&kept, &stream), Some(1));
        assert_consistent(&bed.allocator);
        drop((kept, stream, other));
        bed.assert_returns_everything();
    }
}

#[test]
fn x8_what_is_elastic_goes_back_to_its_own_place_and_serves_when_on_again() {
    let bed = Bed::elastic("");
    let stream = bed.stream();
    let memory = bed.allocate(8 * MIB, &stream);
    let address = memory.address();
    set(&bed.allocator, OFF);
    drop(memory);
    set(&bed.allocator, ON);
    assert_eq!(bed.allocate(8 * MIB, &stream).address(), address);
    assert_eq!(bed.device.physical_bytes(), 8 * MIB);
}

#[test]
fn x8_segments_of_the_devices_own_serve_on_beside_elastic_ones() {
    let bed = Bed::on(cachette_hal_host::HostConfig::default().stepped(2), OFF);
    let stream = bed.stream();
    let kept = bed.allocate(5 * MIB, &stream);
    bed.fill(&kept, 8, &stream);
    set(&bed.allocator, ON);
    let segments = bed.stats().segment.all.current;
    let within = bed.allocate(5 * MIB, &stream);
    assert_eq!(within.address(), kept.address() + 5 * MIB, "what is free serves first");
    let elastic = bed.allocate(40 * MIB, &stream);
    assert_eq!(bed.stats().segment.all.current, segments);
    assert_eq!(bed.allocator.elastic_segments().len(), 1);
    assert_eq!(bed.content(&kept, &stream), Some(8));
    assert_consistent(&bed.allocator);
    drop((kept, within, elastic));
    bed.allocator.empty_cache().expect("nothing fails");
    assert_eq!(bed.device.physical_bytes(), 0);
    drop(stream);
    bed.assert_returns_everything();
}

#[test]
fn x8_switching_to_and_fro_loses_nothing() {
    let bed = Bed::elastic("");
    let streams = [bed.stream(), bed.stream()];
    let mut live = Vec::new();
    for round in 0..24_u64 {
        let text = match round % 4 {
            0 => ON,
            1 => OFF,
            2 => "expandable_segments:True,elastic_setting:compact",
            _ => "expandable_segments:True,elastic_setting:quick",
        };
        set(&bed.allocator, text);
        for (at, stream) in streams.iter().enumerate() {
            let bytes = (1 + round % 7) * 700 * KIB + at as u64;
            let memory = bed.allocate(bytes, stream);
            let byte = u8::try_from(live.len() + 1).expect("few are made");
            bed.fill(&memory, byte, stream);
            live.push((memory, byte, at));
        }
        if round % 3 == 2 {
            let (memory, byte, at) = live.remove(live.len() / 2);
            assert_eq!(bed.content(&memory, &streams[at]), Some(byte));
        }
        assert_consistent(&bed.allocator);
        assert_eq!(bed.device.physical_bytes(), bed.stats().reserved_bytes.all.current);
    }
    for (memory, byte, at) in live {
        assert_eq!(bed.content(&memory, &streams[at]), Some(byte));
    }
    bed.allocator.empty_cache().expect("nothing fails");
    assert_eq!(bed.device.physical_bytes(), 0);
    drop(streams);
    bed.assert_returns_everything();
}
