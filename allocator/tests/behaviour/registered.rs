//! Memory that may be registered by its address, and observers that end registrations in time.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use cachette::evict::Priority;
use cachette::pool::PoolProblem;
use cachette::sleep::Contents;
use cachette::{Error, Notice, PoolOptions};
use cachette_hal_host::HostConfig;

use crate::fixture::{ELASTIC, MIB, Pool, TestAllocator};
use crate::sleep::problem;

/// A registered pool with other options.
fn registered(test: &TestAllocator, options: PoolOptions) -> Pool {
    test.allocator.create_pool_with(options.registered(true)).expect("the options are allowed")
}

/// The ranges that observers have heard of, with what they contained when they were about to leave.
#[derive(Default)]
struct Registrations {
    live: BTreeMap<u64, u64>,
    ended: Vec<u64>,
    unknown: u64,
}

/// Registers every range that has memory. A read of a range that has already lost it would fault.
fn register(test: &TestAllocator) -> Arc<Mutex<Registrations>> {
    let all = Arc::new(Mutex::new(Registrations::default()));
    let heard = Arc::clone(&all);
    test.allocator.on_notice(move |notice| {
        let mut all = heard.lock().expect("no observer panics");
        match *notice {
            Notice::Mapped { address, bytes } => {
                for page in (address..address + bytes).step_by(512) {
                    all.live.insert(page, 512);
                }
            }
            Notice::Unmapping { address, bytes } => {
                let first = usize::try_from(address).expect("it fits the host") as *const u8;
                // SAFETY: the range has memory until the observer returns, and memory of the host device is the host's.
                let _ = unsafe { first.read_volatile() };
                for page in (address..address + bytes).step_by(512) {
                    all.unknown += u64::from(all.live.remove(&page).is_none());
                    all.ended.push(page);
                }
            }
            _ => {}
        }
    });
    all
}

#[test]
fn every_registration_ends_before_its_memory_leaves() {
    for config in [ELASTIC, ""] {
        let test = TestAllocator::on(HostConfig::default().stepped(3), config);
        let registrations = register(&test);
        let (stream, side) = (test.stream(), test.stream());
        let pool = test.allocator.create_pool();
        let sizes = [MIB / 2, 20 * MIB, 5 * MIB, 30 * MIB];
        let all: Vec<_> = sizes.iter().map(|bytes| test.allocate(*bytes, &stream)).collect();
        let slept = pool.allocate(10 * MIB, &side).expect("there is room");
        if !config.is_empty() {
            pool.sleep(Contents::Keep).expect("it can sleep");
            pool.wake().expect("there is room");
        }
        drop(all);
        // Idle memory moves to another stream, or returns to the device.
        let more: Vec<_> = sizes.iter().map(|bytes| test.allocate(3 * bytes, &side)).collect();
        drop((more, slept, pool));
        test.allocator.empty_cache().expect("nothing is in use");
        let registrations = registrations.lock().unwrap();
        assert_eq!((registrations.live.len(), registrations.unknown), (0, 0));
        assert!(!registrations.ended.is_empty());
    }
}

#[test]
fn memory_of_a_registered_pool_never_leaves_its_addresses() {
    let test = TestAllocator::checked(HostConfig::default(), &format!("{ELASTIC},memory_limit:64MiB"));
    let (stream, side) = (test.stream(), test.stream());
    let registrations = register(&test);
    let pool = registered(&test, PoolOptions::new());
    let addresses: Vec<_> = [20 * MIB, 10 * MIB]
        .into_iter()
        .zip([&stream, &side])
        .map(|(bytes, stream)| pool.allocate(bytes, stream).expect("there is room").address())
        .collect();
    assert_eq!(test.device.live().rdma_backings, test.device.live().backings, "network cards may access it");
    // Neither an emptied cache, nor requests of other pools and of its other streams, takes the idle memory.
    test.allocator.empty_cache().expect("the rest is released");
    assert_eq!(pool.empty_cache().expect("it has users"), 0);
    test.allocator.allocate(40 * MIB, &stream).expect_err("its memory is not taken");
    pool.allocate(50 * MIB, &side).expect_err("not from one stream to another");
    assert_eq!(problem(pool.sleep(Contents::Keep)), PoolProblem::Registered);
    assert!(registrations.lock().unwrap().ended.is_empty());
    assert_eq!(test.stats().reserved_bytes.all.current, 30 * MIB);
    for address in addresses {
        assert!(test.allocator.is_stable(address) && test.allocator.is_stable(address + MIB));
    }
    drop((pool, stream, side));
    test.allocator.empty_cache().expect("its last user has gone");
    assert!(registrations.lock().unwrap().live.is_empty());
    test.assert_returns_everything();
}

#[test]
fn memory_that_can_move_or_sleep_is_not_stable() {
    let test = TestAllocator::elastic("");
    let stream = test.stream();
    let memory = test.allocate(10 * MIB, &stream);
    assert!(!test.allocator.is_stable(memory.address()));
    assert!(!test.allocator.is_stable(0x10));
    let direct = TestAllocator::new();
    let stream = direct.stream();
    let memory = direct.allocate(10 * MIB, &stream);
    assert!(direct.allocator.is_stable(memory.address() + 512));
}

#[test]
fn a_registered_pool_sleeps_if_its_callback_agrees() {
    let test = TestAllocator::elastic("");
    let stream = test.stream();
    let (agrees, calls) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let agree = {
        let (agrees, calls) = (Arc::clone(&agrees), Arc::clone(&calls));
        move |_| {
            calls.fetch_add(1, Relaxed);
            if agrees.load(Relaxed) { Ok(()) } else { Err("a transfer runs") }
        }
    };
    let pool = registered(&test, PoolOptions::new().evictable(Priority(1)).before_sleep(agree));
    let memory = pool.allocate(10 * MIB, &stream).expect("there is room");
    test.fill(&memory, 7, &stream);
    let refused = pool.sleep(Contents::Keep).unwrap_err();
    assert!(matches!(&refused, Error::PoolCallback { error, .. } if error == "a transfer runs"), "{refused}");
    assert_eq!(test.allocator.evict(1).expect("it is passed over"), 0);
    assert!(!pool.is_asleep());
    agrees.store(true, Relaxed);
    assert_eq!(test.allocator.evict(1).expect("it agrees"), 10 * MIB);
    let _here = pool.make_resident().expect("there is room");
    assert_eq!(test.content(&memory, &stream), Some(7));
    assert_eq!(calls.load(Relaxed), 3);
    assert_eq!(test.device.live().rdma_backings, test.device.live().backings, "also after it woke");
}
