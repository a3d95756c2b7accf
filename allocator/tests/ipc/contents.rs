//! What one process writes, another reads; and the other way round.

use cachette::Allocation;
use cachette::hal::Sharing;
use cachette_hal_host::HostConfig;

use crate::bytes::{holds, put};
use crate::second::Second;
use crate::{DIRECT, ELASTIC, MIB, TestAllocator, eventually, sharing};

/// I2: the segment's token, and the offset in it. I3, D4: the chunks that the block touches by their descriptors, or by
/// their names in the fabric, and where it begins in the first.
#[test]
fn memory_is_the_same_in_both_processes() {
    let host = HostConfig::default;
    for (host, config, mib) in
        [(host(), DIRECT, 20), (host(), ELASTIC, 20), (host().without_sharing(Sharing::FileDescriptor), ELASTIC, 6)]
    {
        let test = TestAllocator::on(host, config);
        assert_shared_both_ways(&test, &test.allocate(mib * MIB));
        test.assert_returns_everything();
    }
}

/// Shares memory with a second process, which reads it and writes it anew.
fn assert_shared_both_ways(test: &TestAllocator, memory: &Allocation) {
    put(&test.device, memory.address(), memory.bytes(), 1);
    let shared = test.allocator.share(memory).expect("it can be shared");
    let mut second = Second::start();
    let opened = second.open("it", &shared.handle()).expect("it opens");
    assert!(opened.starts_with(&format!("{} ", memory.bytes())));
    assert_eq!(second.ask("holds it 1").as_deref(), Ok("true"));
    second.ask("put it 2").expect("it writes");
    assert!(holds(&test.device, memory.address(), memory.bytes(), 2));
    put(&test.device, memory.address(), memory.bytes(), 3);
    assert_eq!(second.ask("holds it 3").as_deref(), Ok("true"));
    second.ask("close it").expect("it closes");
    assert!(holds(&test.device, memory.address(), memory.bytes(), 3));
}

/// I2, I3: memory with a larger alignment begins behind its block, and so do the shared bytes.
#[test]
fn aligned_memory_is_shared_from_its_address_on() {
    for config in [DIRECT, ELASTIC] {
        let test = TestAllocator::new(config);
        let _neighbour = test.allocate(512);
        let memory = test.allocator.allocate_aligned(5 * MIB, 8 * MIB, &test.stream).unwrap();
        assert_shared_both_ways(&test, &memory);
    }
}

/// I3: many more chunks than come at once.
#[test]
fn six_hundred_chunks_arrive_in_order() {
    // The setting whose chunks are pages, however much is asked for.
    let compact = "expandable_segments:True,elastic_setting:compact";
    let test = TestAllocator::on(HostConfig::default().capacity(2 << 30), compact);
    let memory = test.allocate(2 * 600 * MIB);
    let shared = test.allocator.share(&memory).unwrap();
    assert_eq!(shared.chunks(), 600);
    for chunk in 0..600 {
        put(&test.device, memory.address() + 2 * chunk * MIB, 512, chunk);
    }
    let again = test.allocator.open_shared(&shared.handle()).unwrap();
    for chunk in 0..600 {
        let at = again.address() + 2 * chunk * MIB;
        assert!(holds(&test.device, at, 512, chunk), "chunk {chunk}");
    }
    let mut second = Second::start();
    second.open("it", &shared.handle()).expect("it opens");
    for chunk in 0..600 {
        let asked = format!("holds it {chunk} {} 512", 2 * chunk * MIB);
        assert_eq!(second.ask(&asked).unwrap(), "true", "chunk {chunk}");
    }
    drop((second, again, shared, memory));
    test.assert_returns_everything();
}

/// D4: of all the descriptors that travel, no side keeps one.
#[test]
fn descriptors_are_closed_with_the_memory_and_sooner() {
    let (mut exporter, mut importer) = (Second::start(), Second::start());
    let handle = exporter.ask(&format!("share {ELASTIC} 80 5")).unwrap();
    let handle = crate::bytes::from_hex(&handle);
    let count = |process: &mut Second| -> usize {
        let answer = process.ask("descriptors").unwrap();
        answer.parse().unwrap()
    };
    // The server thread runs once it has sent a reply.
    importer.open("it", &handle).unwrap();
    assert_eq!(importer.ask("holds it 5").unwrap(), "true");
    importer.ask("close it").unwrap();
    let here = count(&mut importer);
    eventually("the first connection has closed", || exporter.ask("readers").unwrap() == "0");
    let there = count(&mut exporter);
    for _ in 0..5 {
        importer.open("it", &handle).unwrap();
        // The connection, and one for each chunk, since host memory is mapped so.
        assert_eq!(count(&mut importer), here + 1 + 40);
        eventually("only the connection is open", || count(&mut exporter) == there + 1);
        importer.ask("close it").unwrap();
        assert_eq!(count(&mut importer), here);
        eventually("nothing is open", || count(&mut exporter) == there);
    }
}

/// I2, I3: a block that begins inside a segment or a chunk, and neighbours that keep their bytes.
#[test]
fn a_block_inside_a_segment_is_found_by_its_offset() {
    for config in [DIRECT, ELASTIC] {
        let test = TestAllocator::new(config);
        let blocks: Vec<_> = (0..5).map(|_| test.allocate(700_000)).collect();
        for (seed, block) in (10..).zip(&blocks) {
            put(&test.device, block.address(), block.bytes(), seed);
        }
        let mut second = Second::start();
        let shared: Vec<_> = blocks.iter().map(|block| test.allocator.share(block).unwrap()).collect();
        for (seed, shared) in (10..).zip(&shared) {
            second.open(&format!("b{seed}"), &shared.handle()).unwrap();
        }
        for seed in 10..15 {
            assert_eq!(second.ask(&format!("holds b{seed} {seed}")).unwrap(), "true");
        }
        second.ask("put b12 99").unwrap();
        for (seed, block) in (10..).zip(&blocks) {
            let seed = if seed == 12 { 99 } else { seed };
            assert!(holds(&test.device, block.address(), block.bytes(), seed));
        }
        drop((second, shared, blocks));
        test.assert_returns_everything();
    }
}

#[test]
fn several_processes_open_the_same_memory() {
    for config in [DIRECT, ELASTIC] {
        let (_test, _memory, shared) = sharing(config, 4 * MIB);
        let mut others: Vec<_> = (0..3).map(|_| Second::start()).collect();
        for other in &mut others {
            other.open("it", &shared.handle()).expect("it opens");
        }
        assert_eq!(shared.readers(), 3);
        for seed in 0..3 {
            others[seed].ask(&format!("put it {seed}")).unwrap();
            for other in &mut others {
                assert_eq!(other.ask(&format!("holds it {seed}")).unwrap(), "true");
            }
        }
    }
}

/// I5.
#[test]
fn what_is_opened_twice_is_opened_once() {
    for config in [DIRECT, ELASTIC] {
        let (_second, handle) = Second::sharing(config, 4);
        let test = TestAllocator::new(config);
        let one = test.allocator.open_shared(&handle).unwrap();
        let calls = test.device.total_calls();
        let two = test.allocator.open_shared(&handle).unwrap();
        assert_eq!(test.device.total_calls(), calls);
        assert_eq!(one.address(), two.address());
        drop(one);
        assert!(holds(&test.device, two.address(), two.bytes(), 5));
        drop(two);
        let again = test.allocator.open_shared(&handle).unwrap();
        assert!(holds(&test.device, again.address(), again.bytes(), 5));
        drop(again);
        test.assert_returns_everything();
    }
}

/// I5: two blocks of one segment are one token.
#[test]
fn a_segment_is_opened_once_for_all_its_blocks() {
    let test = TestAllocator::new(DIRECT);
    let mut second = Second::start();
    let (one, two) = (test.allocate(700_000), test.allocate(700_000));
    let distance = two.address() - one.address();
    let shared = [&one, &two].map(|block| test.allocator.share(block).unwrap());
    let place = |answer: String| -> u64 {
        let (_, address) = answer.split_once(' ').unwrap();
        address.parse().unwrap()
    };
    let first = place(second.open("one", &shared[0].handle()).unwrap());
    let other = place(second.open("two", &shared[1].handle()).unwrap());
    assert_eq!(other - first, distance);
}

/// A driver need not open a token in the process that made it; here the address is the same.
#[test]
fn the_process_that_shares_memory_may_open_it_too() {
    let (test, memory, shared) = sharing(DIRECT, 700_000);
    let opened = test.allocator.open_shared(&shared.handle()).unwrap();
    assert_eq!((opened.address(), shared.bytes()), (memory.address(), memory.bytes()));
    assert_eq!(shared.readers(), 1);
    drop((opened, shared, memory));
    test.assert_returns_everything();
}

#[test]
fn threads_that_open_the_same_at_once_get_the_same() {
    let (test, memory, shared) = sharing(ELASTIC, 8 * MIB);
    let handle = shared.handle();
    let kept = test.allocator.open_shared(&handle).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..50 {
                    let opened = test.allocator.open_shared(&handle).unwrap();
                    assert_eq!(opened.address(), kept.address());
                }
            });
        }
    });
    drop(kept);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..20 {
                    let opened = test.allocator.open_shared(&handle).unwrap();
                    assert_eq!(opened.bytes(), 8 * MIB);
                }
            });
        }
    });
    drop((shared, memory));
    test.assert_returns_everything();
}
