//! Every driver call of every change to elastic segments fails once, in turn, and no memory is lost.

use std::ops::Deref;

use cachette::Error;
use cachette::hal::{Call, ErrorKind};
use cachette_hal_host::HostConfig;

use crate::fixture::{Allocation, ELASTIC, MIB, Stream, TestAllocator, assert_consistent, fail_call};

const KINDS: [ErrorKind; 2] = [ErrorKind::OutOfMemory, ErrorKind::Other];

/// An allocator with elastic segments on a stepped device that notices every misuse.
struct ElasticTest {
    test: TestAllocator,
    streams: [Stream; 3],
    live: Vec<(Allocation, u8)>,
}

impl Deref for ElasticTest {
    type Target = TestAllocator;

    fn deref(&self) -> &Self::Target {
        &self.test
    }
}

impl ElasticTest {
    fn new() -> Self {
        Self::of(32)
    }

    /// On a device of `mib` MiB.
    fn of(mib: u64) -> Self {
        Self::on(HostConfig::default().capacity(mib * MIB))
    }

    fn on(host: HostConfig) -> Self {
        let test = TestAllocator::checked(host.stepped(11), ELASTIC);
        Self { streams: test.streams(), test, live: Vec::new() }
    }

    fn allocate(&self, mib: u64, stream: usize) -> Allocation {
        self.test.allocate(mib * MIB, &self.streams[stream])
    }

    /// Allocates memory, fills it with a distinct byte and keeps it.
    fn keep(&mut self, mib: u64, stream: usize) {
        let memory = self.allocate(mib, stream);
        let byte = u8::try_from(self.live.len() + 1).expect("few are kept");
        self.fill(&memory, byte, &self.streams[stream]);
        self.live.push((memory, byte));
    }

    /// Everything that was kept holds what it was filled with.
    fn assert_contents(&self) {
        for (memory, byte) in &self.live {
            let stream = self.streams.iter().find(|stream| stream.handle() == memory.stream());
            let read = self.content(memory, stream.expect("the test has made it"));
            self.device.run_until_idle();
            assert_eq!(read, Some(*byte), "{byte} was lost");
        }
    }

    /// The allocator's figures are the device's, after all pending unmaps.
    fn assert_sound(&self) {
        assert_consistent(&self.allocator);
        self.device.run_until_idle();
        self.allocator.empty_cache().expect("nothing fails any more");
        assert_consistent(&self.allocator);
        let stats = self.allocator.stats();
        let held = stats.reserved_bytes.all.current;
        assert_eq!(self.device.physical_bytes(), held);
        let chunks = self.device.live().backings as u64;
        assert_eq!(stats.num_device_alloc - stats.num_device_free, chunks);
        assert_eq!(self.device.live().mappings as u64, chunks, "no alias is left");
    }

    /// Drops everything. The device must have everything back, and no driver call may have been wrong.
    fn close(self) {
        drop((self.live, self.streams));
        self.test.assert_returns_everything();
    }
}

/// Does `act` after `prepare` with its first driver call failing, its second, and so on until none is
/// left; then once more without a failure. Returns how many calls there were.
fn enumerate<T>(prepare: impl Fn(&mut ElasticTest), act: impl Fn(&ElasticTest) -> Result<T, Error>) -> u64 {
    enumerate_on(&HostConfig::default().capacity(32 * MIB), prepare, act)
}

/// The same on a device like `host`.
fn enumerate_on<T>(
    host: &HostConfig,
    prepare: impl Fn(&mut ElasticTest),
    act: impl Fn(&ElasticTest) -> Result<T, Error>,
) -> u64 {
    let mut calls = 0;
    for kind in KINDS {
        for nth in 1.. {
            let mut test = ElasticTest::on(host.clone());
            prepare(&mut test);
            let (outcome, reached) = fail_call(&test.device, nth, kind, || act(&test).map(drop));
            match outcome {
                Ok(()) => {}
                Err(Error::Device(error)) if reached => assert_eq!(error.kind(), kind),
                Err(Error::OutOfMemory(_)) if reached && kind == ErrorKind::OutOfMemory => {}
                Err(error) => panic!("call {nth}, {kind:?}: {error}"),
            }
            assert_consistent(&test.allocator);
            test.assert_contents();
            if let Err(error) = act(&test) {
                panic!("call {nth}, {kind:?}, tried again: {error}");
            }
            test.assert_contents();
            test.assert_sound();
            test.close();
            if !reached {
                calls = nth - 1;
                break;
            }
        }
    }
    calls
}

#[test]
fn d3_the_first_growth_survives_every_failure() {
    let calls = enumerate(|_| {}, |test| test.allocator.allocate(5 * MIB, &test.streams[0]));
    // A reservation, three chunks made and mapped, the right to use them.
    assert!(calls >= 8, "{calls} calls");
}

#[test]
fn d3_growth_beside_live_memory_survives_every_failure() {
    let prepare = |test: &mut ElasticTest| {
        test.keep(3, 0);
        let free = test.allocate(3, 0);
        test.keep(2, 0);
        drop(free);
    };
    let act = |test: &ElasticTest| test.allocator.allocate(9 * MIB, &test.streams[0]);
    assert!(enumerate(prepare, act) >= 8);
}

#[test]
fn d3_a_move_of_own_and_foreign_chunks_survives_every_failure() {
    let prepare = |test: &mut ElasticTest| {
        let own = test.allocate(6, 0);
        test.keep(2, 0);
        let foreign = test.allocate(4, 1);
        test.keep(2, 1);
        let farther = test.allocate(4, 2);
        test.keep(2, 2);
        drop((own, foreign, farther));
        test.device.run_until_idle();
    };
    let mut test = ElasticTest::new();
    prepare(&mut test);
    let made = test.device.calls(Call::CreateBacking);
    drop(test.allocate(18, 0));
    let made = test.device.calls(Call::CreateBacking) - made;
    assert_eq!(made, 2, "14 of 18 MiB are idle");
    let act = |test: &ElasticTest| test.allocator.allocate(18 * MIB, &test.streams[0]);
    let calls = enumerate(prepare, act);
    assert!(calls >= 20, "{calls} calls");
}

/// Leaves 6 MiB of stream 0 and 4 MiB of stream 1 idle beside live memory.
fn leave_idle_chunks(test: &mut ElasticTest) {
    let own = test.allocate(6, 0);
    test.keep(2, 0);
    let foreign = test.allocate(4, 1);
    test.keep(2, 1);
    drop((own, foreign));
    test.device.run_until_idle();
}

#[test]
fn d3_a_move_after_an_unmap_survives_every_failure() {
    let host = HostConfig::default().capacity(32 * MIB).refusing_aliases(1);
    let act = |test: &ElasticTest| test.allocator.allocate(14 * MIB, &test.streams[0]);
    let mut test = ElasticTest::on(host.clone());
    leave_idle_chunks(&mut test);
    let made = test.device.calls(Call::CreateBacking);
    drop(act(&test));
    assert_eq!(test.device.calls(Call::CreateBacking) - made, 2, "10 of 14 MiB are idle");
    let calls = enumerate_on(&host, leave_idle_chunks, act);
    assert!(calls >= 30, "{calls} calls");
}

#[test]
fn d3_a_chunk_that_cannot_be_mapped_back_is_given_back() {
    // The driver refuses access to the new addresses, and then one call of the way back.
    for (call, nth) in [(Call::Map, 11), (Call::Map, 14), (Call::SetAccess, 2), (Call::SetAccess, 6)] {
        let mut test = ElasticTest::on(HostConfig::default().capacity(32 * MIB).refusing_aliases(1));
        leave_idle_chunks(&mut test);
        test.device.fail_next(Call::SetAccess, 1, ErrorKind::Other);
        test.device.fail_next(call, nth, ErrorKind::Other);
        assert!(test.allocator.allocate(10 * MIB, &test.streams[0]).is_err());
        assert_consistent(&test.allocator);
        assert_eq!(test.allocator.stats().reserved_bytes.all.current, 12 * MIB, "{call:?}, {nth}");
        assert_eq!(test.device.physical_bytes(), 12 * MIB, "one chunk of 2 MiB is gone");
        test.assert_contents();
        test.allocator.allocate(10 * MIB, &test.streams[0]).expect("nothing fails any more");
        test.assert_sound();
        test.close();
    }
}

#[test]
fn d3_a_move_behind_work_under_way_survives_every_failure() {
    let prepare = |test: &mut ElasticTest| {
        let own = test.allocate(8, 0);
        test.keep(2, 0);
        for _ in 0..4 {
            test.fill(&own, 99, &test.streams[0]);
        }
        drop(own);
    };
    let act = |test: &ElasticTest| test.allocator.allocate(10 * MIB, &test.streams[0]);
    assert!(enumerate(prepare, act) >= 10);
}

#[test]
fn d3_giving_memory_back_survives_every_failure() {
    let prepare = |test: &mut ElasticTest| {
        let own = test.allocate(6, 0);
        test.keep(2, 0);
        drop(test.allocate(8, 0));
        drop((own, test.allocate(4, 1)));
    };
    let act = |test: &ElasticTest| test.allocator.empty_cache();
    assert!(enumerate(prepare, act) >= 10);
}

#[test]
fn d3_a_request_on_a_full_device_survives_every_failure() {
    // The device has room for half of the request; the other half is idle on another stream.
    let prepare = |test: &mut ElasticTest| {
        test.keep(2, 0);
        let free = test.allocate(4, 1);
        test.keep(2, 1);
        drop(free);
    };
    let act = |test: &ElasticTest| test.allocator.allocate(8 * MIB, &test.streams[2]);
    let calls = enumerate_on(&HostConfig::default().capacity(12 * MIB), prepare, act);
    assert!(calls >= 10, "{calls} calls");
}

#[test]
fn d3_a_rollback_that_fails_too_is_finished_later() {
    for (call, nth) in [(Call::Unmap, 1), (Call::Unmap, 2), (Call::DestroyBacking, 1)] {
        let mut test = ElasticTest::new();
        let own = test.allocate(4, 0);
        test.keep(2, 0);
        drop(own);
        test.device.fail_next(Call::SetAccess, 1, ErrorKind::Other);
        test.device.fail_next(call, nth, ErrorKind::Other);
        assert!(test.allocator.allocate(8 * MIB, &test.streams[0]).is_err());
        assert_consistent(&test.allocator);
        let reserved = test.allocator.stats().reserved_bytes.all.current;
        assert_eq!(test.device.physical_bytes(), reserved, "D5: what is left is counted");
        test.assert_contents();
        test.assert_sound();
        test.close();
    }
}

#[test]
fn a_destructor_tries_again_what_failed() {
    for kind in KINDS {
        for nth in 1..40 {
            let mut test = ElasticTest::new();
            let own = test.allocate(6, 0);
            test.keep(2, 0);
            drop(own);
            drop(test.allocate(8, 0));
            let ElasticTest { test: TestAllocator { device, allocator, .. }, streams, live } = test;
            device.run_until_idle();
            drop(live);
            fail_call(&device, nth, kind, || drop((streams, allocator)));
            assert_eq!(device.physical_bytes(), 0, "call {nth}, {kind:?}");
        }
    }
}

#[test]
fn addresses_stay_reserved_while_something_is_mapped_there() {
    let test = TestAllocator::checked(HostConfig::default(), "expandable_segments:True");
    drop(test.allocate(4 * MIB, &test.stream()));
    for nth in 1..=64 {
        test.device.fail_next(Call::Unmap, nth, ErrorKind::Other);
    }
    let TestAllocator { device, checked, allocator } = test;
    drop(allocator);
    device.clear_failures();
    let checked = checked.expect("the device is checked");
    assert!(checked.misuses().is_empty(), "{:?}", checked.misuses());
    assert_eq!(device.live().reservations, 1, "the mapping needs its addresses");
}

#[test]
fn memory_that_the_driver_does_not_map_is_served_by_a_direct_segment() {
    let (test, [stream]) = TestAllocator::elastic("").with_streams();
    for nth in 1..=50 {
        test.device.fail_next(Call::Map, nth, ErrorKind::OutOfMemory);
    }
    let memory = test.allocator.allocate(8 * MIB, &stream).expect("the device has room");
    test.fill(&memory, 3, &stream);
    assert_eq!(test.content(&memory, &stream), Some(3));
    assert!(test.stats().segment.all.current > 0);
    test.assert_returns_everything_after((memory, stream));
}
