//! How long shared memory stays, and for whom.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use cachette::growable::GrowableProblem;
use cachette::ipc::{IpcError, OpenError};
use cachette::sleep::Contents;
use cachette::{Error, TraceAction};

use crate::bytes::{from_hex, holds, put};
use crate::second::Second;
use crate::{DIRECT, ELASTIC, MIB, TestAllocator, eventually, sharing};

#[test]
fn freed_memory_is_not_reused_while_it_is_shared() {
    for config in [DIRECT, ELASTIC] {
        let test = TestAllocator::new(config);
        let memory = test.allocate(4 * MIB);
        let (address, bytes) = (memory.address(), memory.bytes());
        put(&test.device, address, bytes, 1);
        let shared = test.allocator.share(&memory).unwrap();
        drop(memory);
        test.allocator.empty_cache().unwrap();
        let others: Vec<_> = (0..8).map(|_| test.allocate(4 * MIB)).collect();
        let apart = |other: &&cachette::Allocation<_>| {
            other.address() + other.bytes() <= address || address + bytes <= other.address()
        };
        assert!(others.iter().all(|other| apart(&other)), "{config}");
        for other in &others {
            put(&test.device, other.address(), other.bytes(), 9);
        }
        let mut second = Second::with(&shared);
        assert_eq!(second.ask("holds it 1").unwrap(), "true");
        drop(others);
        // Withdrawn, but the second process has it.
        drop(shared);
        let stats = test.allocator.stats();
        assert_eq!(stats.allocated_bytes.all.current, 0);
        assert_eq!(stats.active_bytes.all.current, bytes);
        test.allocator.empty_cache().unwrap();
        assert_eq!(second.ask("holds it 1").unwrap(), "true");
        second.ask("close it").unwrap();
        eventually("the memory is free", || test.allocator.stats().active_bytes.all.current == 0);
        test.allocator.empty_cache().unwrap();
        assert_eq!(test.device.physical_bytes(), 0);
        test.assert_returns_everything();
    }
}

#[test]
fn a_recorded_use_outlasts_the_end_of_an_export() {
    for config in [DIRECT, ELASTIC] {
        let test = TestAllocator::new(config);
        let side = test.allocator.create_stream().unwrap();
        let memory = test.allocate(4 * MIB);
        let (address, bytes) = (memory.address(), memory.bytes());
        let shared = test.allocator.share(&memory).unwrap();
        memory.record_stream(&side);
        let hold = test.device.hold(side.handle()).unwrap();
        drop(shared);
        drop(memory);
        assert_eq!(test.allocator.stats().active_bytes.all.current, bytes, "{config}: the other stream uses it");
        assert_ne!(test.allocate(4 * MIB).address(), address, "{config}");
        hold.release();
        side.synchronize().unwrap();
        test.allocator.empty_cache().unwrap();
        assert_eq!(test.allocator.stats().active_bytes.all.current, 0, "{config}");
        drop(side);
        test.assert_returns_everything();
    }
}

#[test]
fn pages_of_a_growable_allocation_stay_while_they_are_shared() {
    let test = TestAllocator::new(ELASTIC);
    let stream = test.allocator.create_stream().unwrap();
    let cache = test.allocator.allocate_growable(16 * MIB, &stream).unwrap();
    cache.commit(0..8 * MIB).unwrap();
    let shared = test.allocator.share_raw(cache.address()).unwrap();
    // Of the shared block no page goes, and none at its side is split from it.
    for range in [0..2 * MIB, 2 * MIB..4 * MIB, 6 * MIB..8 * MIB] {
        let refused = cache.decommit(range).unwrap_err();
        assert!(matches!(refused, Error::Growable(GrowableProblem::Exported)), "{refused}");
    }
    cache.commit(8 * MIB..10 * MIB).unwrap();
    let second = Second::with(&shared);
    drop(shared);
    assert!(cache.decommit(0..2 * MIB).is_err(), "the other process has it");
    second.kill();
    eventually("it is closed", || cache.decommit(0..2 * MIB).is_ok());
    drop((cache, stream));
    test.assert_returns_everything();
}

#[test]
fn a_process_that_dies_gives_back_what_it_had_opened() {
    for config in [DIRECT, ELASTIC] {
        let (test, memory, shared) = sharing(config, 4 * MIB);
        let second = Second::with(&shared);
        assert_eq!(shared.readers(), 1);
        second.kill();
        eventually("it is closed", || shared.readers() == 0);
        drop((shared, memory));
        test.assert_returns_everything();
    }
}

/// Uses by streams that were recorded are waited for after the last process has closed the memory.
#[test]
fn recorded_uses_delay_reuse_once_the_memory_is_closed() {
    let test = TestAllocator::new(ELASTIC);
    let other = test.allocator.create_stream().unwrap();
    let memory = test.allocate(4 * MIB);
    let shared = test.allocator.share(&memory).unwrap();
    memory.record_stream(&other);
    let hold = test.device.hold(other.handle()).unwrap();
    drop(memory);
    drop(shared);
    let active = || test.allocator.stats().active_bytes.all.current;
    test.allocator.set_config(&ELASTIC.parse().unwrap());
    assert_eq!(active(), 4 * MIB);
    drop(hold);
    other.synchronize().unwrap();
    test.allocator.empty_cache().unwrap();
    assert_eq!(active(), 0);
    drop(other);
    test.assert_returns_everything();
}

#[test]
fn memory_in_chunks_outlives_the_process_that_shared_it() {
    let test = TestAllocator::new(ELASTIC);
    let mut second = Second::start();
    let handle = from_hex(&second.ask(&format!("share {ELASTIC} 6 3")).unwrap());
    let opened = test.allocator.open_shared(&handle).unwrap();
    assert!(opened.is_kept());
    second.kill();
    assert!(!opened.is_kept());
    assert!(holds(&test.device, opened.address(), opened.bytes(), 3));
    put(&test.device, opened.address(), opened.bytes(), 4);
    // What is open stays open, and is found again.
    let again = test.allocator.open_shared(&handle).unwrap();
    assert!(holds(&test.device, again.address(), again.bytes(), 4));
    drop((opened, again));
    test.assert_returns_everything();
}

#[test]
fn memory_of_a_process_that_is_gone_does_not_open() {
    for config in [DIRECT, ELASTIC] {
        let test = TestAllocator::new(config);
        let mut second = Second::start();
        let pid = second.pid();
        let handle = from_hex(&second.ask(&format!("share {config} 2 3")).unwrap());
        second.kill();
        let error = test.allocator.open_shared(&handle).unwrap_err();
        assert_eq!(error, Error::Ipc(IpcError::Open(OpenError::Gone { pid })));
        test.assert_returns_everything();
    }
}

#[test]
fn a_late_importer_gets_the_reason() {
    let test = TestAllocator::new(ELASTIC);
    let memory = test.allocate(4 * MIB);
    let (kept, shared) = (test.allocator.share(&memory).unwrap(), test.allocator.share(&memory).unwrap());
    let handle = shared.handle();
    drop(shared);
    let mut second = Second::start();
    let why = second.open("it", &handle).unwrap_err();
    assert!(why.contains("does not share this any more"), "{why}");
    second.open("it", &kept.handle()).unwrap();
    drop((second, kept, memory));
    test.assert_returns_everything();
}

/// The thread that answers ends with the allocator, and later for those who still have something open.
#[test]
fn memory_stays_with_its_readers_when_the_allocator_goes() {
    for config in [DIRECT, ELASTIC] {
        let test = TestAllocator::new(config);
        let memory = test.allocate(4 * MIB);
        put(&test.device, memory.address(), memory.bytes(), 6);
        let shared = test.allocator.share(&memory).unwrap();
        let handle = shared.handle();
        let mut second = Second::start();
        second.open("it", &handle).unwrap();
        drop((memory, shared));
        let TestAllocator { device, allocator, stream } = test;
        drop((allocator, stream));
        assert!(device.physical_bytes() >= 4 * MIB);
        assert_eq!(second.ask("holds it 6").unwrap(), "true");
        assert_eq!(second.ask("kept it").unwrap(), "true");
        let mut third = Second::start();
        let why = third.open("it", &handle).unwrap_err();
        assert!(why.contains("has ended or has closed its allocator"), "{why}");
        second.ask("close it").unwrap();
        eventually("the device has everything back", || device.live() == cachette_hal_host::Live::default());
        assert_eq!(device.physical_bytes(), 0);
    }
}

#[test]
fn what_shares_memory_outlives_its_allocator() {
    let (test, memory, shared) = sharing(DIRECT, 4 * MIB);
    let TestAllocator { device, allocator, stream } = test;
    drop((memory, allocator, stream));
    assert!(device.physical_bytes() >= 4 * MIB);
    drop(shared);
    assert_eq!(device.physical_bytes(), 0);
    assert_eq!(device.live(), cachette_hal_host::Live::default());
}

#[test]
fn a_sharing_pool_cannot_sleep_and_a_sleeping_one_cannot_share() {
    let test = TestAllocator::new(ELASTIC);
    let pool = test.allocator.create_pool();
    let memory = pool.allocate(4 * MIB, &test.stream).unwrap();
    put(&test.device, memory.address(), memory.bytes(), 2);
    let shared = test.allocator.share(&memory).unwrap();
    let why = pool.sleep(Contents::Keep).unwrap_err().to_string();
    assert!(why.contains("shared with other processes"), "{why}");
    assert!(!pool.is_asleep());
    let mut second = Second::with(&shared);
    drop(shared);
    assert!(pool.sleep(Contents::Keep).is_err(), "a reader has it");
    second.ask("close it").unwrap();
    eventually("the pool sleeps", || pool.sleep(Contents::Keep).is_ok());
    let why = test.allocator.share(&memory).unwrap_err().to_string();
    assert!(why.contains("wake it first"), "{why}");
    pool.wake().unwrap();
    let shared = test.allocator.share(&memory).unwrap();
    second.open("again", &shared.handle()).unwrap();
    assert_eq!(second.ask("holds again 2").unwrap(), "true");
    drop((second, shared, memory, pool));
    test.assert_returns_everything();
}

/// A saved state may name memory that other processes have.
#[test]
fn a_pool_that_shares_memory_cannot_be_restored() {
    let test = TestAllocator::new(ELASTIC);
    let pool = test.allocator.create_pool();
    let memory = pool.allocate(4 * MIB, &test.stream).unwrap();
    let saved = pool.checkpoint().unwrap();
    let shared = test.allocator.share(&memory).unwrap();
    assert!(pool.restore(&saved).is_err());
    drop(shared);
    pool.restore(&saved).unwrap();
    drop((memory, pool));
    test.assert_returns_everything();
}

#[test]
fn memory_shared_twice_stays_until_both_are_over() {
    for config in [DIRECT, ELASTIC] {
        let test = TestAllocator::new(config);
        let memory = test.allocate(4 * MIB);
        let [first, second, third] = [(); 3].map(|()| test.allocator.share(&memory).unwrap());
        let active = || test.allocator.stats().active_bytes.all.current;
        drop(first);
        drop(memory);
        drop(second);
        assert_eq!(active(), 4 * MIB, "{config}: it is shared yet");
        drop(third);
        eventually("the memory is free", || active() == 0);
        test.assert_returns_everything();
    }
}

#[test]
fn a_recorded_use_outlasts_a_share_that_is_over() {
    let test = TestAllocator::new(DIRECT);
    let other = test.allocator.create_stream().unwrap();
    let memory = test.allocate(4 * MIB);
    memory.record_stream(&other);
    let hold = test.device.hold(other.handle()).unwrap();
    drop(test.allocator.share(&memory).unwrap());
    drop(memory);
    let active = || test.allocator.stats().active_bytes.all.current;
    assert_eq!(active(), 4 * MIB, "the other stream still uses it");
    drop(hold);
    other.synchronize().unwrap();
    test.allocator.empty_cache().unwrap();
    assert_eq!(active(), 0);
}

#[test]
fn a_tracker_that_panics_on_the_exporters_thread_ends_no_service() {
    let (test, importer) = (TestAllocator::new(ELASTIC), TestAllocator::new(ELASTIC));
    let (first, second) = (test.allocate(4 * MIB), test.allocate(4 * MIB));
    let [closed, kept] = [&first, &second].map(|memory| test.allocator.share(memory).unwrap());
    let opened = importer.allocator.open_shared(&closed.handle()).unwrap();
    drop((closed, first));
    let armed = Arc::new(AtomicBool::new(true));
    let also = Arc::clone(&armed);
    test.allocator.track(move |event| {
        let panics = event.action == TraceAction::FreeCompleted && also.swap(false, SeqCst);
        assert!(!panics, "this tracker fails");
    });
    // The exporter's thread frees the memory, since the importer was the last user.
    drop(opened);
    eventually("the tracker is called", || !armed.load(SeqCst));
    drop(importer.allocator.open_shared(&kept.handle()).unwrap());
    eventually("the importer has closed it", || kept.readers() == 0);
    drop((kept, second));
    test.assert_returns_everything();
}
