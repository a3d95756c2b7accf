//! Every driver call of sharing and opening fails once, in turn, and nothing is lost by it.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use cachette::hal::{Call, Device, ErrorKind, Sharing};
use cachette::{ImportedMemory, SharedMemory};
use cachette_hal_host::{Hold, HostConfig};

use crate::bytes::{from_hex, holds, put};
use crate::second::Second;
use crate::{DIRECT, ELASTIC, MIB, TestAllocator, eventually, sharing};

const KINDS: [ErrorKind; 2] = [ErrorKind::OutOfMemory, ErrorKind::Other];

#[test]
fn any_failure_of_the_driver_leaves_nothing_behind() {
    let unnamed = HostConfig::default().without_sharing(Sharing::FileDescriptor);
    for (config, host) in [(DIRECT, HostConfig::default()), (ELASTIC, HostConfig::default()), (ELASTIC, unnamed)] {
        let exporter = TestAllocator::on(host, config);
        // More chunks than come at once, so that some come while others are mapped.
        let memory = exporter.allocate(40 * MIB);
        put(&exporter.device, memory.address(), memory.bytes(), 5);
        let shared = exporter.allocator.share(&memory).unwrap();
        let mut second = Second::start();
        let foreign = from_hex(&second.ask(&format!("share {config} 40 5")).unwrap());
        // Tokens of this very process are not opened, so for them the other process shares.
        let handle = if config == DIRECT { foreign } else { shared.handle() };
        for kind in KINDS {
            let test = TestAllocator::new(config);
            let before = (test.device.live(), test.device.physical_bytes());
            let calls = test.device.total_calls();
            drop(test.allocator.open_shared(&handle).unwrap());
            let calls = test.device.total_calls() - calls;
            assert!(calls > 2);
            let mut failed = 0;
            for nth in 1..=calls {
                test.device.fail_nth_call(nth, kind);
                let opened = test.allocator.open_shared(&handle);
                failed += u64::from(opened.is_err());
                drop(opened);
                test.device.clear_failures();
                let after = (test.device.live(), test.device.physical_bytes());
                assert_eq!(after, before, "{config}, call {nth}, {kind:?}");
            }
            assert!(failed > 0, "{config}: nothing failed");
            let opened = test.allocator.open_shared(&handle).unwrap();
            assert!(holds(&test.device, opened.address(), opened.bytes(), 5));
            drop(opened);
            test.assert_returns_everything();
        }
    }
}

#[test]
fn any_failure_of_the_driver_while_closing_is_made_good() {
    for config in [DIRECT, ELASTIC] {
        let (_second, handle) = Second::sharing(config, 6);
        let test = TestAllocator::new(config);
        let before = (test.device.live(), test.device.physical_bytes());
        for call in [Call::SynchronizeDevice, Call::Unmap, Call::Release, Call::DestroyBacking, Call::CloseToken] {
            for nth in 1..=3 {
                let opened = test.allocator.open_shared(&handle).unwrap();
                test.device.fail_next(call, nth, ErrorKind::Other);
                drop(opened);
                test.device.clear_failures();
                let after = (test.device.live(), test.device.physical_bytes());
                assert_eq!(after, before, "{config}, {call:?} {nth}");
            }
        }
    }
}

#[test]
fn a_failure_of_the_exporters_driver_reaches_the_importer() {
    let (test, memory, shared) = sharing(ELASTIC, 40 * MIB);
    let mut second = Second::start();
    // In the first batch, and in the next.
    for nth in [1, 2, 4, 16, 17, 20] {
        test.device.fail_next(Call::ExportBacking, nth, ErrorKind::OutOfMemory);
        let why = second.open("it", &shared.handle()).unwrap_err();
        assert!(why.contains("could not hand the memory over"), "{why}");
        eventually("it is closed", || shared.readers() == 0);
    }
    second.open("it", &shared.handle()).unwrap();
    assert_eq!(second.ask("holds it 1").unwrap(), "true");
    drop((second, shared, memory));
    test.assert_returns_everything();
}

#[test]
fn a_token_that_the_driver_does_not_give_changes_nothing() {
    let test = TestAllocator::new(DIRECT);
    let memory = test.allocate(4 * MIB);
    for kind in [ErrorKind::InvalidValue, ErrorKind::OutOfMemory, ErrorKind::Other] {
        test.device.fail_next(Call::ExportToken, 1, kind);
        let why = test.allocator.share(&memory).unwrap_err().to_string();
        let said = cachette::hal::Error::new(kind, Call::ExportToken.name()).to_string();
        assert!(why.contains(&said), "{why}");
    }
    let address = memory.address();
    drop(memory);
    let again = test.allocate(4 * MIB);
    assert_eq!(again.address(), address, "nothing holds it");
    drop(again);
    test.assert_returns_everything();
}

/// D7: neither addresses nor descriptors run out.
#[test]
fn a_thousand_openings_leave_nothing_behind() {
    for config in [DIRECT, ELASTIC] {
        let (_second, handle) = Second::sharing(config, 4);
        let test = TestAllocator::new(config);
        let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
        let open = || {
            let opened = test.allocator.open_shared(&handle).unwrap();
            (opened.address(), test.device.live())
        };
        let (_, first) = open();
        let before = test.device.live();
        let held = descriptors();
        for _ in 0..1000 {
            let (_, live) = open();
            assert_eq!(live, first);
        }
        assert_eq!(test.device.live(), before);
        // Other tests of this process open and close files too.
        assert!(descriptors() < held + 500);
        test.assert_returns_everything();
    }
}

/// D7: as many addresses as the memory needs, and no more.
#[test]
fn an_import_takes_no_more_addresses_than_it_needs() {
    let mut second = Second::start();
    let test = TestAllocator::new(ELASTIC);
    let mut opened = Vec::new();
    let mut ends = Vec::new();
    for seed in 0..20 {
        let handle = from_hex(&second.ask(&format!("share {ELASTIC} 2 {seed}")).unwrap());
        let memory = test.allocator.open_shared(&handle).unwrap();
        assert!(holds(&test.device, memory.address(), memory.bytes(), seed));
        ends.push((memory.address(), memory.bytes()));
        opened.push(memory);
    }
    assert_eq!(test.device.live().reservations, 20);
    assert_eq!(test.device.live().backings, 0, "mappings alone keep it");
    assert!(ends.iter().all(|(_, bytes)| *bytes == 2 * MIB));
}

/// An import that a held stream is to fill, and what holds it.
fn import_at_work(test: &TestAllocator, shared: &SharedMemory) -> (ImportedMemory, Hold) {
    let import = test.allocator.open_shared(&shared.handle()).expect("it opens");
    let hold = test.device.hold(test.stream.handle()).expect("the stream is live");
    let (at, bytes) = (import.ptr().expect("it has bytes"), import.bytes());
    // SAFETY: 1. the stream lives. 3. the memory is mapped until the work has ended.
    unsafe { test.device.transfer().expect("the host device copies").fill(at, 9, bytes, test.stream.handle()) }
        .expect("a fill is queued");
    (import, hold)
}

#[test]
fn an_import_is_closed_behind_work_that_uses_it() {
    let (_exporter, _memory, shared) = sharing(ELASTIC, 4 * MIB);
    let test = TestAllocator::new(ELASTIC);
    let (import, hold) = import_at_work(&test, &shared);
    let (tell, told) = mpsc::channel();
    let dropping = thread::spawn(move || {
        drop(import);
        tell.send(()).unwrap();
    });
    // The wait for the device is the next call of the import.
    let mut closed = false;
    eventually("the import waits", || {
        closed = told.try_recv().is_ok();
        closed || test.device.calls(Call::SynchronizeDevice) > 0
    });
    assert!(!closed, "unmapped under work");
    hold.release();
    told.recv_timeout(Duration::from_secs(60)).unwrap();
    dropping.join().unwrap();
    test.stream.synchronize().expect("its work has all its memory");
}

#[test]
fn an_import_whose_work_cannot_be_waited_for_stays_mapped() {
    let (_exporter, _memory, shared) = sharing(ELASTIC, 4 * MIB);
    let test = TestAllocator::new(ELASTIC);
    let (import, hold) = import_at_work(&test, &shared);
    for nth in 1..=2 {
        test.device.fail_next(Call::SynchronizeDevice, nth, ErrorKind::Other);
    }
    drop(import);
    test.device.clear_failures();
    hold.release();
    test.stream.synchronize().expect("its work has all its memory");
    assert_eq!(shared.readers(), 1, "the exporter keeps the block");
    test.allocator.empty_cache().expect("the driver answers again");
    eventually("it is closed", || shared.readers() == 0);
    test.assert_returns_everything();
}

#[test]
fn an_import_that_the_driver_does_not_unmap_is_closed_later() {
    let (_exporter, _memory, shared) = sharing(ELASTIC, 4 * MIB);
    for (call, opens) in [(Call::Unmap, true), (Call::Release, true), (Call::Unmap, false)] {
        let test = TestAllocator::new(ELASTIC);
        if !opens {
            test.device.fail_next(Call::SetAccess, 1, ErrorKind::Other);
        }
        let import = opens.then(|| test.allocator.open_shared(&shared.handle()).expect("it opens"));
        for nth in 1..=8 {
            test.device.fail_next(call, nth, ErrorKind::Other);
        }
        if !opens {
            test.allocator.open_shared(&shared.handle()).expect_err("the driver gives no access");
        }
        drop(import);
        test.device.clear_failures();
        assert_eq!(test.device.live().reservations, 1, "{call:?}: it stays as it was");
        eventually("the exporter keeps what was opened", || (shared.readers() == 1) == opens);
        test.allocator.empty_cache().expect("the driver answers again");
        eventually("it is closed", || shared.readers() == 0);
        test.assert_returns_everything();
    }
}
