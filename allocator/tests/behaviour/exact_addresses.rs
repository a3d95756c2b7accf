//! Memory at addresses that the caller names, where tensors of graphs lay before.

use std::collections::BTreeMap;

use cachette::{AddressProblem, Error, Label};
use cachette_hal_host::HostConfig;

use crate::fixture::{MIB, Stream, TestAllocator, let_pass};

fn allocate_at(test: &TestAllocator, address: u64, bytes: u64, stream: &Stream) -> Result<(), Error> {
    // SAFETY: the stream lives until the end of the test.
    unsafe { test.allocator.allocate_raw_at(address, bytes, stream.handle(), Label::NONE) }
}

fn problem(allocated: Result<(), Error>) -> AddressProblem {
    match allocated {
        Err(Error::AddressNotFree { why, .. }) => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn freed_memory_is_allocated_again_where_it_was() {
    for test in TestAllocator::both("") {
        let stream = test.stream();
        let old = test.allocate_raw(12 * MIB, &stream);
        test.allocator.free_raw(old).unwrap();
        let at = old + 4 * MIB;
        let before = test.stats();
        assert_eq!(allocate_at(&test, at, 3 * MIB - 100, &stream), Ok(()));
        let stats = test.stats();
        assert_eq!(stats.allocated_bytes.all.current, 3 * MIB);
        assert_eq!(stats.num_device_alloc, before.num_device_alloc, "the device is not asked");
        test.allocator.check().unwrap();
        let others = [3 * MIB, 4 * MIB, 5 * MIB].map(|bytes| (test.allocate_raw(bytes, &stream), bytes));
        assert!(others.iter().all(|(other, bytes)| other + bytes <= at || at + 3 * MIB <= *other), "{others:?}");
        for address in others.map(|(other, _)| other).into_iter().chain([at]) {
            assert_eq!(test.allocator.free_raw(address), Ok(()));
        }
        assert_eq!(test.allocate_raw(12 * MIB, &stream), old, "the parts have merged");
        test.allocator.free_raw(old).unwrap();
        assert_eq!(allocate_at(&test, old, 0, &stream), Ok(()));
        assert_eq!(test.stats().allocated_bytes.all.current, 0);
        test.assert_returns_everything_after(stream);
    }
}

#[test]
fn an_address_that_is_not_free_says_why() {
    for test in TestAllocator::both("") {
        let [stream, side] = test.streams();
        let used = test.allocate_raw(12 * MIB, &stream);
        let [low, high] = [0, 6 * MIB].map(|offset| used + offset);
        let refused = |address, bytes| problem(allocate_at(&test, address, bytes, &stream));
        assert_eq!(refused(low + 512, MIB), AddressProblem::InUse { start: used, bytes: 12 * MIB });
        assert_eq!(refused(low + 100, MIB), AddressProblem::Misaligned);
        assert_eq!(refused(512, MIB), AddressProblem::Foreign);
        let small = test.allocate_raw(4096, &stream);
        test.allocator.free_raw(small).unwrap();
        // Elastic segments serve all sizes.
        if test.allocator.elastic_segments().is_empty() {
            assert_eq!(refused(small, 3 * MIB), AddressProblem::OtherKind);
        }
        test.allocator.free_raw(used).unwrap();
        assert_eq!(problem(allocate_at(&test, low, MIB, &side)), AddressProblem::Elsewhere);
        assert_eq!(allocate_at(&test, high, 6 * MIB, &stream), Ok(()));
        assert_eq!(refused(low, 8 * MIB), AddressProblem::TooShort { bytes: 6 * MIB });
        let error = allocate_at(&test, high, MIB, &stream).unwrap_err().to_string();
        assert!(error.contains("6291456 bytes from") && error.contains("free them before"), "{error}");
        assert!(matches!(allocate_at(&test, low, u64::MAX, &stream), Err(Error::TooLarge { .. })));
        test.allocator.free_raw(high).unwrap();
        test.allocator.check().unwrap();
    }
}

#[test]
fn memory_that_another_stream_uses_is_not_free_before_it_has_passed() {
    let (test, [stream, side]) = TestAllocator::new().with_streams();
    let memory = test.allocate(12 * MIB, &stream);
    let (at, hold) = (memory.address(), test.hold(&side));
    memory.record_stream(&side);
    drop(memory);
    assert_eq!(problem(allocate_at(&test, at, 2 * MIB, &stream)), AddressProblem::Pending);
    let_pass(hold, &side);
    assert_eq!(allocate_at(&test, at, 2 * MIB, &stream), Ok(()));
    test.allocator.free_raw(at).unwrap();
}

#[test]
fn memory_of_a_pool_is_allocated_inside_that_pool() {
    for test in TestAllocator::both("") {
        let (stream, pool) = (test.stream(), test.allocator.create_pool());
        let old = {
            let _inside = pool.enter(&stream).unwrap();
            test.allocate_raw(4 * MIB, &stream)
        };
        test.allocator.free_raw(old).unwrap();
        assert_eq!(problem(allocate_at(&test, old, 2 * MIB, &stream)), AddressProblem::Elsewhere);
        {
            let _inside = pool.enter(&stream).unwrap();
            assert_eq!(allocate_at(&test, old + MIB, 2 * MIB, &stream), Ok(()));
        }
        assert!(pool.check_live_allocations(&[old + MIB]));
        test.allocator.free_raw(old + MIB).unwrap();
    }
}

/// A small generator, so that a seed names a history.
fn next(seed: &mut u64, most: u64) -> u64 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*seed >> 33) % most
}

#[test]
fn random_addresses_are_allocated_if_and_only_if_they_are_free() {
    let host = || HostConfig::default().phantom(true).capacity(4 << 30);
    for mut seed in 0..40 {
        let elastic = seed % 2 == 1;
        let test = if elastic { TestAllocator::elastic_on(host(), "") } else { TestAllocator::on(host(), "") };
        let stream = test.stream();
        let mut live: BTreeMap<u64, u64> = BTreeMap::new();
        let (mut served, mut refused) = (0, 0);
        for _ in 0..300 {
            let bytes = 512 * (1 + next(&mut seed, 8000));
            match next(&mut seed, 3) {
                0 => {
                    let at = test.allocate_raw(bytes, &stream);
                    live.insert(at, bytes);
                }
                1 if !live.is_empty() => {
                    let place = usize::try_from(next(&mut seed, live.len() as u64)).unwrap();
                    let (&at, _) = live.iter().nth(place).unwrap();
                    live.remove(&at);
                    test.allocator.free_raw(at).unwrap();
                }
                _ => {
                    let Some((&near, _)) = live.iter().nth(live.len() / 2) else { continue };
                    let at = near + 512 * next(&mut seed, 20_000);
                    let before = live.range(..at + bytes).next_back();
                    let free = before.is_none_or(|(start, held)| start + held <= at);
                    match allocate_at(&test, at, bytes, &stream) {
                        Ok(()) => {
                            assert!(free, "seed {seed}: {at:#x} overlaps {before:?}");
                            live.insert(at, bytes);
                            served += 1;
                        }
                        Err(error) => {
                            let in_use = matches!(problem(Err(error)), AddressProblem::InUse { .. });
                            // Blocks of direct segments are larger than requests if the rest is small.
                            assert!(!in_use || !free || !elastic, "seed {seed}: {at:#x} is free");
                            refused += 1;
                        }
                    }
                }
            }
            test.allocator.check().unwrap();
        }
        assert!(served > 0 && refused > 0, "{served} and {refused}");
        for at in live.into_keys() {
            test.allocator.free_raw(at).unwrap();
        }
        assert_eq!(test.stats().allocated_bytes.all.current, 0);
        test.assert_returns_everything_after(stream);
    }
}
