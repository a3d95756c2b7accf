//! Every driver call of every change to elastic segments fails once, in turn, and no memory is lost.

use std::sync::Arc;

use cachette::hal::{Call, Device, ErrorKind};
use cachette::{Allocation, Allocator, Error, Stream};
use cachette_hal_host::{HostConfig, HostDevice, Live};
use cachette_hal_testing::Checked;

use crate::bed::{MIB, assert_consistent, config, device};

type Watched = Arc<Checked<HostDevice>>;

const KINDS: [ErrorKind; 2] = [ErrorKind::OutOfMemory, ErrorKind::Other];

/// An allocator with elastic segments on a stepped device that notices every misuse.
struct Rig {
    host: HostDevice,
    watched: Watched,
    allocator: Allocator<Watched>,
    streams: [Stream<Watched>; 3],
    live: Vec<(Allocation<Watched>, u8)>,
}

impl Rig {
    fn new() -> Self {
        Self::of(32)
    }

    /// On a device of `mib` MiB.
    fn of(mib: u64) -> Self {
        let text = "expandable_segments:True,elastic_largest_chunk_mb:2,elastic_slack:0";
        let host = device(HostConfig::default().capacity(mib * MIB).stepped(11));
        let watched = Arc::new(Checked::new(host.clone()));
        let allocator = Allocator::with_config(Arc::clone(&watched), &config(text));
        let streams = std::array::from_fn(|_| allocator.create_stream().expect("nothing fails"));
        Self { host, watched, allocator, streams, live: Vec::new() }
    }

    fn allocate(&self, mib: u64, stream: usize) -> Allocation<Watched> {
        let memory = self.allocator.allocate(mib * MIB, &self.streams[stream]);
        memory.expect("nothing fails yet")
    }

    /// Allocates memory, fills it with a distinct byte and keeps it.
    fn keep(&mut self, mib: u64, stream: usize) {
        let memory = self.allocate(mib, stream);
        let byte = u8::try_from(self.live.len() + 1).expect("few are kept");
        let transfer = self.watched.transfer().expect("the host device copies");
        let at = memory.ptr().expect("it has an address");
        // SAFETY: 1. the stream is live. 3. the memory is allocated.
        unsafe { transfer.fill(at, byte, memory.bytes(), memory.stream()) }.expect("it is queued");
        self.live.push((memory, byte));
    }

    /// Everything that was kept holds what it was filled with.
    fn assert_contents(&self) {
        let transfer = self.watched.transfer().expect("the host device copies");
        for (memory, byte) in &self.live {
            let length = usize::try_from(memory.bytes()).expect("it fits the host");
            let mut read = vec![0; length];
            let from = memory.ptr().expect("it has an address");
            // SAFETY: 1. the stream is live. 3. the memory is allocated. 4. `read` is not touched before the
            // device is idle.
            unsafe { transfer.download(read.as_mut_ptr(), from, length, memory.stream()) }.expect("it is queued");
            self.host.run_until_idle();
            assert!(read == vec![*byte; length], "{byte} was lost");
        }
    }

    /// The allocator's figures are the device's, once what is stale is gone.
    fn assert_sound(&self) {
        assert_consistent(&self.allocator);
        self.host.run_until_idle();
        self.allocator.empty_cache().expect("nothing fails any more");
        assert_consistent(&self.allocator);
        let stats = self.allocator.stats();
        let held = stats.reserved_bytes.all.current;
        assert_eq!(self.host.physical_bytes(), held);
        let chunks = self.host.live().backings as u64;
        assert_eq!(stats.num_device_alloc - stats.num_device_free, chunks);
        assert_eq!(self.host.live().mappings as u64, chunks, "no alias is left");
    }

    /// Ends everything; the device must have everything back, and no wrong call been made.
    fn close(self) {
        drop((self.live, self.streams, self.allocator));
        assert_eq!(self.host.live(), Live::default());
        assert_eq!(self.host.physical_bytes(), 0);
        let misuses = self.watched.misuses();
        assert!(misuses.is_empty(), "{misuses:?}");
    }
}

/// Does `act` on a rig made by `prepare` with its first driver call failing, its second, and so on until none is
/// left; then once more without a failure. Returns how many calls there were.
fn enumerate<T>(prepare: impl Fn(&mut Rig), act: impl Fn(&Rig) -> Result<T, Error>) -> u64 {
    enumerate_on(32, prepare, act)
}

/// The same on a device of `mib` MiB.
fn enumerate_on<T>(mib: u64, prepare: impl Fn(&mut Rig), act: impl Fn(&Rig) -> Result<T, Error>) -> u64 {
    let mut calls = 0;
    for kind in KINDS {
        for nth in 1.. {
            let mut rig = Rig::of(mib);
            prepare(&mut rig);
            let before = rig.host.total_calls();
            rig.host.fail_nth_call(nth, kind);
            let outcome = act(&rig).map(drop);
            rig.host.clear_failures();
            let blown = rig.host.total_calls() - before >= nth;
            match outcome {
                Ok(()) => {}
                Err(Error::Device(error)) if blown => assert_eq!(error.kind(), kind),
                Err(Error::OutOfMemory(_)) if blown && kind == ErrorKind::OutOfMemory => {}
                Err(error) => panic!("call {nth}, {kind:?}: {error}"),
            }
            assert_consistent(&rig.allocator);
            rig.assert_contents();
            if let Err(error) = act(&rig) {
                panic!("call {nth}, {kind:?}, tried again: {error}");
            }
            rig.assert_contents();
            rig.assert_sound();
            rig.close();
            if !blown {
                calls = nth - 1;
                break;
            }
        }
    }
    calls
}

#[test]
fn d3_the_first_growth_survives_every_failure() {
    let calls = enumerate(|_| {}, |rig| rig.allocator.allocate(5 * MIB, &rig.streams[0]));
    // A reservation, three chunks made and mapped, the right to use them.
    assert!(calls >= 8, "{calls} calls");
}

#[test]
fn d3_growth_beside_live_memory_survives_every_failure() {
    let prepare = |rig: &mut Rig| {
        rig.keep(3, 0);
        let free = rig.allocate(3, 0);
        rig.keep(2, 0);
        drop(free);
    };
    let act = |rig: &Rig| rig.allocator.allocate(9 * MIB, &rig.streams[0]);
    assert!(enumerate(prepare, act) >= 8);
}

#[test]
fn d3_a_move_of_own_and_foreign_chunks_survives_every_failure() {
    let prepare = |rig: &mut Rig| {
        let own = rig.allocate(6, 0);
        rig.keep(2, 0);
        let foreign = rig.allocate(4, 1);
        rig.keep(2, 1);
        let farther = rig.allocate(4, 2);
        rig.keep(2, 2);
        drop((own, foreign, farther));
        rig.host.run_until_idle();
    };
    let mut rig = Rig::new();
    prepare(&mut rig);
    let made = rig.host.calls(Call::CreateBacking);
    drop(rig.allocate(18, 0));
    let made = rig.host.calls(Call::CreateBacking) - made;
    assert_eq!(made, 2, "14 of 18 MiB are idle");
    let act = |rig: &Rig| rig.allocator.allocate(18 * MIB, &rig.streams[0]);
    let calls = enumerate(prepare, act);
    assert!(calls >= 20, "{calls} calls");
}

#[test]
fn d3_a_move_behind_work_under_way_survives_every_failure() {
    let prepare = |rig: &mut Rig| {
        let own = rig.allocate(8, 0);
        rig.keep(2, 0);
        let transfer = rig.watched.transfer().expect("the host device copies");
        let at = own.ptr().expect("it has an address");
        for _ in 0..4 {
            // SAFETY: 1. the stream is live. 3. the memory stays mapped until the stream has come so far.
            unsafe { transfer.fill(at, 99, own.bytes(), rig.streams[0].handle()) }.expect("it is queued");
        }
        drop(own);
    };
    let act = |rig: &Rig| rig.allocator.allocate(10 * MIB, &rig.streams[0]);
    assert!(enumerate(prepare, act) >= 10);
}

#[test]
fn d3_giving_memory_back_survives_every_failure() {
    let prepare = |rig: &mut Rig| {
        let own = rig.allocate(6, 0);
        rig.keep(2, 0);
        drop(rig.allocate(8, 0));
        drop((own, rig.allocate(4, 1)));
    };
    let act = |rig: &Rig| rig.allocator.empty_cache();
    assert!(enumerate(prepare, act) >= 10);
}

#[test]
fn d3_a_request_that_a_full_device_refuses_survives_every_failure() {
    // The device has room for half of the request; the other half is idle on another stream.
    let prepare = |rig: &mut Rig| {
        rig.keep(2, 0);
        let free = rig.allocate(4, 1);
        rig.keep(2, 1);
        drop(free);
    };
    let act = |rig: &Rig| rig.allocator.allocate(8 * MIB, &rig.streams[2]);
    let calls = enumerate_on(12, prepare, act);
    assert!(calls >= 10, "{calls} calls");
}

#[test]
fn d3_a_rollback_that_fails_too_is_finished_later() {
    for (call, nth) in [(Call::Unmap, 1), (Call::Unmap, 2), (Call::DestroyBacking, 1)] {
        let mut rig = Rig::new();
        let own = rig.allocate(4, 0);
        rig.keep(2, 0);
        drop(own);
        rig.host.fail_next(Call::SetAccess, 1, ErrorKind::Other);
        rig.host.fail_next(call, nth, ErrorKind::Other);
        assert!(rig.allocator.allocate(8 * MIB, &rig.streams[0]).is_err());
        assert_consistent(&rig.allocator);
        let reserved = rig.allocator.stats().reserved_bytes.all.current;
        assert_eq!(rig.host.physical_bytes(), reserved, "D5: what is left is counted");
        rig.assert_contents();
        rig.assert_sound();
        rig.close();
    }
}

#[test]
fn d4_d5_chunks_and_mappings_are_as_many_as_counted_after_every_step() {
    let rig = Rig::new();
    let mut live = Vec::new();
    for round in 0..30_u64 {
        let stream = usize::try_from(round % 3).expect("it is small");
        live.push(rig.allocate(1 + round * 5 % 7, stream));
        if live.len() > 5 {
            live.remove(usize::try_from(round).expect("it is small") * 7 % live.len());
        }
        if round % 10 == 9 {
            rig.assert_sound();
        }
        let stats = rig.allocator.stats();
        let held = stats.num_device_alloc - stats.num_device_free;
        assert_eq!(rig.host.live().backings as u64, held);
    }
    drop(live);
    rig.assert_sound();
    rig.close();
}

#[test]
fn a_destructor_tries_again_what_failed() {
    for kind in KINDS {
        for nth in 1..40 {
            let mut rig = Rig::new();
            let own = rig.allocate(6, 0);
            rig.keep(2, 0);
            drop(own);
            drop(rig.allocate(8, 0));
            let Rig { host, allocator, streams, live, .. } = rig;
            host.run_until_idle();
            drop(live);
            host.fail_nth_call(nth, kind);
            drop((streams, allocator));
            host.clear_failures();
            assert_eq!(host.physical_bytes(), 0, "call {nth}, {kind:?}");
        }
    }
}

#[test]
fn addresses_stay_reserved_while_something_is_mapped_there() {
    let host = device(HostConfig::default());
    let checked = Arc::new(Checked::new(host.clone()));
    let text = "expandable_segments:True";
    let allocator = Allocator::with_config(Arc::clone(&checked), &config(text));
    let stream = allocator.create_stream().unwrap();
    drop(allocator.allocate(4 * MIB, &stream).unwrap());
    for nth in 1..=64 {
        host.fail_next(Call::Unmap, nth, ErrorKind::Other);
    }
    drop((stream, allocator));
    host.clear_failures();
    let wrong: Vec<String> = checked.misuses().iter().map(ToString::to_string).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
    assert_eq!(host.live().reservations, 1, "the mapping needs its addresses");
}
