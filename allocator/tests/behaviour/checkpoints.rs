//! Checkpoints of pools: a saved state is restored.

use cachette::pool::{PoolId, PoolProblem};
use cachette::{Error, PoolOptions};

use crate::fixture::{KIB, MIB, Pool, Stream, TestAllocator, let_pass};

/// Allocates by address in a pool.
pub(crate) fn raw(test: &TestAllocator, pool: &Pool, bytes: u64, stream: &Stream) -> u64 {
    let _inside = pool.enter(stream).expect("the pool is there");
    test.allocate_raw(bytes, stream)
}

pub(crate) fn problem<T: std::fmt::Debug>(result: Result<T, Error>) -> PoolProblem {
    match result.expect_err("it is refused") {
        Error::Pool { why, .. } => why,
        other => panic!("{other}"),
    }
}

pub(crate) const CONFIGS: [&str; 3] =
    ["", "expandable_segments:True", "expandable_segments:True,elastic_setting:compact"];

#[test]
fn p13_the_live_set_of_a_pool_is_told_exactly() {
    for config in CONFIGS {
        let test = TestAllocator::with(config);
        let (stream, pool) = (test.stream(), test.allocator.create_pool());
        assert!(pool.check_live_allocations(&[]));
        let one = raw(&test, &pool, 10 * KIB, &stream);
        let two = raw(&test, &pool, 3 * MIB, &stream);
        let elsewhere = test.allocate_raw(KIB, &stream);
        assert!(pool.check_live_allocations(&[two, one]));
        assert!(!pool.check_live_allocations(&[one]) && !pool.check_live_allocations(&[one, one]));
        assert!(!pool.check_live_allocations(&[one, two, elsewhere]));
        for address in [one, two, elsewhere] {
            test.allocator.free_raw(address).unwrap();
        }
        assert!(pool.check_live_allocations(&[]));
    }
}

#[test]
fn p15_p16_a_state_returns_block_by_block_with_both_lists() {
    for config in CONFIGS {
        let test = TestAllocator::with(config);
        let (stream, pool) = (test.stream(), test.allocator.create_pool());
        let sizes = [KIB, 700 * KIB, 3 * MIB, 12 * MIB, 40 * KIB];
        let first: Vec<u64> = sizes.map(|bytes| raw(&test, &pool, bytes, &stream)).to_vec();
        test.allocator.free_raw(first[1]).unwrap();
        let saved = pool.checkpoint().unwrap();
        assert_eq!(saved.pool(), pool.id());
        let mut expected = vec![first[0], first[2], first[3], first[4]];
        expected.sort_unstable();
        // Everything changes: some are freed, others come, another segment is obtained.
        test.allocator.free_raw(first[2]).unwrap();
        test.allocator.free_raw(first[3]).unwrap();
        let later: Vec<u64> = [5 * MIB, 300 * KIB, 20 * MIB].map(|bytes| raw(&test, &pool, bytes, &stream)).to_vec();
        let reserved = test.stats().reserved_bytes.all.current;
        let restored = pool.restore(&saved).unwrap();
        test.allocator.check().unwrap();
        let mut gone = vec![first[0], first[4], later[0], later[1], later[2]];
        gone.sort_unstable();
        assert_eq!(restored.freed, gone, "{config}");
        assert_eq!(restored.allocated, expected, "{config}");
        assert!(pool.check_live_allocations(&expected));
        assert_eq!(test.stats().reserved_bytes.all.current, reserved);
        assert_eq!(pool.stats().allocations, 4);
        // And again: a state can be restored any number of times.
        pool.restore(&saved).unwrap();
        for address in expected {
            test.allocator.free_raw(address).unwrap();
        }
        assert!(pool.check_live_allocations(&[]));
        test.allocator.check().unwrap();
        pool.empty_cache().unwrap();
        assert_eq!(pool.stats().reserved_bytes, 0);
    }
}

#[test]
fn p15_a_state_whose_memory_is_gone_is_refused() {
    let test = TestAllocator::new();
    let (stream, pool) = (test.stream(), test.allocator.create_pool());
    let block = raw(&test, &pool, 30 * MIB, &stream);
    let saved = pool.checkpoint().unwrap();
    test.allocator.free_raw(block).unwrap();
    pool.empty_cache().unwrap();
    let other = raw(&test, &pool, KIB, &stream);
    assert_eq!(problem(pool.restore(&saved)), PoolProblem::Changed { address: block });
    assert!(pool.check_live_allocations(&[other]));
    test.allocator.free_raw(other).unwrap();
}

#[test]
fn p14_blocks_that_wait_are_not_saved() {
    let test = TestAllocator::new();
    let (stream, other, pool) = (test.stream(), test.stream(), test.allocator.create_pool());
    let first = pool.allocate(KIB, &stream).unwrap();
    let owned = pool.allocate(KIB, &stream).unwrap();
    let address = owned.address();
    drop(first);
    let hold = test.free_in_use(owned, &other);
    assert_eq!(problem(pool.checkpoint()), PoolProblem::Waiting { address });
    let_pass(hold, &other);
    assert!(pool.checkpoint().is_ok());
}

#[test]
fn p15_what_an_owner_still_has_stays_with_it() {
    for config in CONFIGS {
        let test = TestAllocator::with(config);
        let (stream, pool) = (test.stream(), test.allocator.create_pool());
        let kept = pool.allocate(3 * MIB, &stream).unwrap();
        test.fill(&kept, 7, &stream);
        let by_address = raw(&test, &pool, KIB, &stream);
        let saved = pool.checkpoint().unwrap();
        test.allocator.free_raw(by_address).unwrap();
        let later = raw(&test, &pool, 5 * MIB, &stream);
        let restored = pool.restore(&saved).unwrap();
        assert_eq!(restored.freed, [later], "{config}");
        assert_eq!(restored.allocated, [by_address], "{config}");
        assert!(pool.check_live_allocations(&[kept.address(), by_address]));
        assert_eq!(test.content(&kept, &stream), Some(7));
        drop(kept);
        test.allocator.free_raw(by_address).unwrap();
        assert!(pool.check_live_allocations(&[]));
        test.allocator.check().unwrap();
    }
}

#[test]
fn p15_what_its_owner_dropped_comes_back_by_address_beside_what_another_keeps() {
    for config in CONFIGS {
        let test = TestAllocator::with(config);
        let (stream, pool) = (test.stream(), test.allocator.create_pool());
        let [owned, kept] = [(); 2].map(|()| pool.allocate(3 * MIB, &stream).unwrap());
        let address = owned.address();
        let saved = pool.checkpoint().unwrap();
        drop(owned);
        let restored = pool.restore(&saved).unwrap();
        assert_eq!((restored.freed, restored.allocated), (vec![], vec![address]), "{config}");
        assert!(pool.check_live_allocations(&[address, kept.address()]), "{config}");
        // It has no owner now: a second restore frees it and brings it back.
        let restored = pool.restore(&saved).unwrap();
        assert_eq!(restored.freed, restored.allocated);
        test.allocator.free_raw(address).unwrap();
        assert!(pool.check_live_allocations(&[kept.address()]));
        test.allocator.check().unwrap();
    }
}

#[test]
fn p15_p17_an_owner_that_came_later_stands_in_the_way() {
    for config in CONFIGS {
        let test = TestAllocator::with(config);
        let (stream, pool) = (test.stream(), test.allocator.create_pool());
        let block = raw(&test, &pool, 3 * MIB, &stream);
        let saved = pool.checkpoint().unwrap();
        test.allocator.free_raw(block).unwrap();
        for bytes in [3 * MIB, 2 * MIB] {
            let owned = pool.allocate(bytes, &stream).unwrap();
            let address = owned.address();
            let refused = problem(pool.restore(&saved));
            assert_eq!(refused, PoolProblem::Owned { address }, "{config}");
            assert!(pool.check_live_allocations(&[address]), "nothing has changed");
        }
        pool.restore(&saved).unwrap();
        test.allocator.free_raw(block).unwrap();
        test.allocator.check().unwrap();
    }
}

#[test]
fn p13_a_state_of_another_pool_is_refused() {
    let test = TestAllocator::new();
    let (one, two) = (test.allocator.create_pool(), test.allocator.create_pool());
    let saved = one.checkpoint().unwrap();
    assert_eq!(problem(two.restore(&saved)), PoolProblem::Foreign);
}

#[test]
fn p15_oversize_blocks_count_through_a_restore() {
    let test = TestAllocator::with("max_split_size_mb:20");
    let (stream, pool) = (test.stream(), test.allocator.create_pool());
    let empty = pool.checkpoint().unwrap();
    let address = raw(&test, &pool, 64 * MIB, &stream);
    let saved = pool.checkpoint().unwrap();
    pool.restore(&empty).unwrap();
    assert_eq!(test.stats().oversize_allocations.current, 0);
    pool.restore(&saved).unwrap();
    assert_eq!(test.stats().oversize_allocations.current, 1);
    test.allocator.free_raw(address).unwrap();
    assert_eq!(test.stats().oversize_allocations.current, 0);
}

#[test]
fn p15_a_checkpoint_of_an_earlier_pool_with_the_same_id_is_refused() {
    for config in CONFIGS {
        let (test, [stream]) = TestAllocator::with(config).with_streams();
        let options = PoolOptions::new().id(PoolId::new());
        let first = test.allocator.create_pool_with(options.clone()).unwrap();
        let address = raw(&test, &first, 4 * MIB, &stream);
        let saved = first.checkpoint().unwrap();
        test.allocator.free_raw(address).unwrap();
        stream.synchronize().unwrap();
        drop(first);
        test.allocator.empty_cache().unwrap();
        let second = test.allocator.create_pool_with(options).unwrap();
        assert_eq!(problem(second.restore(&saved)), PoolProblem::Changed { address }, "{config}");
    }
}
