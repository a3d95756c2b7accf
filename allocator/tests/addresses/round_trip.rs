//! Pools whose blocks lie where they were saved.

use cachette::addresses::AddressRange;
use cachette::hal::Call;
use cachette::{AddressesProblem, Allocator, Label};
use cachette_hal_host::HostConfig;

use crate::{Bed, MIB, PAGE, assert_places, problem};

const SIZES: [u64; 8] = [3 * MIB, 512, 700, 41 * MIB, 5 * MIB + 1, 4096, MIB, 9 * MIB];

#[test]
fn blocks_lie_where_they_were_and_their_contents_are_kept() {
    let bed = Bed::new();
    let stream = bed.stream();
    let saved = bed.saved(&SIZES, &stream);
    assert_eq!(saved.blocks().len(), 5);
    let (pool, blocks) = bed.allocator.restore_addresses(&saved, &stream).unwrap();
    assert_places(&saved, &blocks);
    assert_eq!(pool.save_addresses().unwrap(), saved, "it can be saved again");
    assert_eq!(pool.stats().reserved_bytes, saved.bytes(), "free memory between them is restored too");
    let stats = bed.allocator.stats();
    let live: u64 = saved.blocks().iter().map(|block| block.bytes).sum();
    assert_eq!(stats.allocated_bytes.all.current, live);
    bed.allocator.check().unwrap();
    for (byte, block) in (1..).zip(&blocks) {
        bed.fill(block, byte, &stream);
    }
    for (byte, block) in (1..).zip(&blocks) {
        assert!(bed.holds(block.address(), block.bytes(), byte, &stream));
    }
    bed.close((blocks, pool, stream));
}

#[test]
fn another_allocator_restores_what_one_that_ended_has_saved() {
    let bed = Bed::new();
    let saved = bed.saved(&SIZES, &bed.stream());
    let device = bed.allocator.device().clone();
    let Bed { device: host, allocator, turn } = bed;
    drop(allocator);
    let bed = Bed { device: host, allocator: Allocator::new(device), turn };
    let stream = bed.stream();
    let (pool, blocks) = bed.allocator.restore_addresses(&saved, &stream).unwrap();
    assert_places(&saved, &blocks);
    bed.close((blocks, pool, stream));
}

#[test]
fn blocks_of_several_streams_come_into_one_and_know_theirs() {
    let bed = Bed::new();
    let streams = [bed.stream(), bed.stream(), bed.stream()];
    let pool = bed.allocator.create_pool();
    let blocks: Vec<_> = (0..9)
        .zip(streams.iter().cycle())
        .map(|(nth, stream)| pool.allocate(nth * MIB + 512, stream).unwrap())
        .collect();
    let saved = pool.save_addresses().unwrap();
    let stream_of = |address| saved.blocks().iter().find(|block| block.address == address).unwrap().stream;
    let numbers: Vec<_> = blocks.iter().map(|block| stream_of(block.address())).collect();
    assert_eq!(numbers, [0, 1, 2, 0, 1, 2, 0, 1, 2]);
    drop((blocks, pool));
    let (pool, blocks) = bed.allocator.restore_addresses(&saved, &streams[1]).unwrap();
    assert_places(&saved, &blocks);
    assert!(blocks.iter().all(|block| block.stream() == streams[1].handle()));
    bed.close((blocks, pool, streams));
}

#[test]
fn no_memory_leaves_a_restored_pool_before_its_last_user() {
    let bed = Bed::new();
    let stream = bed.stream();
    let saved = bed.saved(&SIZES, &stream);
    let (pool, blocks) = bed.allocator.restore_addresses(&saved, &stream).unwrap();
    drop(blocks);
    pool.empty_cache().unwrap();
    bed.allocator.empty_cache().unwrap();
    // Requests of the default pool take what is idle, if they may.
    let other = bed.allocator.allocate(300 * MIB, &stream).unwrap();
    assert_eq!(pool.save_addresses().unwrap().segments(), saved.segments());
    drop(other);
    drop(pool);
    bed.allocator.empty_cache().unwrap();
    assert_eq!(bed.device.physical_bytes(), 0, "then all of it does");
    bed.close(stream);
}

#[test]
fn memory_in_segments_of_a_given_pool_is_free_for_requests_at_any_address() {
    let bed = Bed::new();
    let stream = bed.stream();
    let saved = bed.saved(&SIZES, &stream);
    let pool = bed.allocator.create_pool();
    pool.restore_segments(saved.segments(), &stream).unwrap();
    assert_eq!((pool.stats().allocations, pool.stats().reserved_bytes), (0, saved.bytes()));
    let inside = pool.enter(&stream).unwrap();
    let calls = bed.device.total_calls();
    for block in saved.blocks() {
        // SAFETY: the stream lives until the end of the test.
        unsafe { bed.allocator.allocate_raw_at(block.address, block.bytes, stream.handle(), Label::NONE) }.unwrap();
    }
    assert!(bed.device.total_calls() - calls <= 2 * saved.blocks().len() as u64, "no request maps memory");
    drop(inside);
    assert_eq!(pool.live_allocations(), saved.blocks().iter().map(|block| block.address).collect::<Vec<_>>());
    for block in saved.blocks() {
        bed.allocator.free_raw(block.address).unwrap();
    }
    bed.close((pool, stream));
}

#[test]
fn adjacent_segments_become_one_and_chunks_are_few() {
    let bed = Bed::on(HostConfig::default().capacity(4 << 30).phantom(true));
    let stream = bed.stream();
    // The first chunk finds how memory can be shared.
    drop(bed.allocator.allocate(MIB, &stream).unwrap());
    let place = bed.allocator.allocate_growable(4 << 30, &stream).unwrap();
    let base = place.address();
    drop(place);
    let segments: Vec<_> = (0..768).map(|nth| AddressRange { base: base + nth * PAGE, bytes: PAGE }).collect();
    let pool = bed.allocator.create_pool();
    let before = [Call::Reserve, Call::CreateBacking, Call::Map, Call::SetAccess].map(|call| bed.device.calls(call));
    pool.restore_segments(&segments, &stream).unwrap();
    let after = [Call::Reserve, Call::CreateBacking, Call::Map, Call::SetAccess].map(|call| bed.device.calls(call));
    let made: Vec<_> = after.iter().zip(before).map(|(after, before)| after - before).collect();
    assert_eq!(made, [1, 3, 3, 1], "1.5 GiB are three chunks");
    bed.close((pool, stream));
}

#[test]
fn where_sizes_do_not_mix_every_chunk_is_a_page() {
    let bed = Bed::on(HostConfig::default().mapping_one_size());
    let stream = bed.stream();
    let saved = bed.saved(&SIZES, &stream);
    let before = bed.device.calls(Call::Map);
    let (pool, blocks) = bed.allocator.restore_addresses(&saved, &stream).unwrap();
    assert_places(&saved, &blocks);
    assert_eq!(bed.device.calls(Call::Map) - before, saved.bytes() / PAGE);
    bed.close((blocks, pool, stream));
}

#[test]
fn addresses_that_a_heap_keeps_without_memory_are_given_up_and_live_ones_are_not() {
    let bed = Bed::new();
    let stream = bed.stream();
    let memory = bed.allocator.allocate(MIB, &stream).unwrap();
    let segments = [AddressRange { base: memory.address() / PAGE * PAGE + 4 * PAGE, bytes: 2 * PAGE }];
    let pool = bed.allocator.create_pool();
    let taken = problem(pool.restore_segments(&segments, &stream));
    assert!(taken.to_string().contains("of pool {0, 0} of this process"), "{taken}");
    drop(memory);
    pool.restore_segments(&segments, &stream).unwrap();
    let again = bed.allocator.allocate(MIB, &stream).unwrap();
    assert!(again.address() + MIB <= segments[0].base || segments[0].end() <= again.address());
    bed.allocator.check().unwrap();
    bed.close((again, pool, stream));
}

#[test]
fn a_growable_allocation_keeps_its_addresses_also_without_memory() {
    let bed = Bed::new();
    let stream = bed.stream();
    for in_pool in [false, true] {
        let pool = bed.allocator.create_pool();
        let place = if in_pool {
            pool.allocate_growable(8 * PAGE, &stream).unwrap()
        } else {
            bed.allocator.allocate_growable(8 * PAGE, &stream).unwrap()
        };
        let segments = [AddressRange { base: place.address() + PAGE, bytes: PAGE }];
        let taken = problem(pool.restore_segments(&segments, &stream));
        assert!(matches!(taken, AddressesProblem::Taken { .. }), "{taken}");
        place.commit(0..8 * PAGE).unwrap();
        drop(place);
        if in_pool {
            let taken = problem(pool.restore_segments(&segments, &stream));
            assert!(matches!(taken, AddressesProblem::Taken { .. }), "idle memory of a used pool: {taken}");
            pool.empty_cache().unwrap();
        }
        pool.restore_segments(&segments, &stream).unwrap();
    }
    bed.close(stream);
}

#[test]
fn an_empty_pool_is_saved_and_restored() {
    let bed = Bed::new();
    let stream = bed.stream();
    let saved = bed.allocator.create_pool().save_addresses().unwrap();
    let (pool, blocks) = bed.allocator.restore_addresses(&saved, &stream).unwrap();
    assert!(blocks.is_empty() && saved.segments().is_empty());
    bed.close((pool, stream));
}
