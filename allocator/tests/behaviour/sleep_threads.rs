//! Pools that are put to sleep while another thread moves their chunks: the sleep waits for it.

use std::sync::{Arc, mpsc};

use cachette::TraceAction;
use cachette::hal::{AnyDevice, Call};
use cachette::sleep::Contents;
use cachette_hal::traced::Traced;
use cachette_hal_host::{HostConfig, HostDevice};
use cachette_hal_testing::Checked;

use crate::elastic_turns::waiting_sink;
use crate::fixture::threads::{PATIENCE, in_time, is_waiting, start};
use crate::fixture::{ELASTIC, MIB, Pool, Stream, TestAllocator, assert_consistent, let_pass};
use crate::hook::Hook;

type Watched = Arc<Checked<Traced<HostDevice>>>;

/// A pool whose first stream has a free chunk and one in use.
struct Scene {
    test: TestAllocator,
    watched: Watched,
    hook: Arc<Hook>,
    pool: Arc<Pool>,
    streams: [Stream; 2],
}

impl Scene {
    fn new(host: HostConfig) -> Self {
        let hook = Arc::new(Hook::default());
        let wrap = |host| Arc::new(Checked::new(Traced::new(host, Arc::clone(&hook))));
        let mut watched = None;
        let test = TestAllocator::around(host, ELASTIC, |host| Arc::clone(watched.insert(wrap(host))) as AnyDevice);
        let pool = Arc::new(test.allocator.create_pool());
        let watched = watched.expect("the device is wrapped");
        Self { hook, watched, pool, streams: test.streams(), test }
    }

    /// Puts the pool to sleep on another thread in the middle of `act`, after such a call of the driver for the first
    /// stream; then checks that the pool wakes with what it held.
    fn sleep_amid(self, call: Call, with_stream: bool, act: impl FnOnce(&Self)) {
        let mut buffer = {
            let _inside = self.pool.enter_all();
            let spare = self.test.allocate(2 * MIB, &self.streams[0]);
            let buffer = self.test.allocator.allocate_buffer::<u8>(2 << 20, &self.streams[0]);
            drop(spare);
            buffer.expect("nothing fails")
        };
        buffer.fill(7).expect("nothing fails");
        self.streams[0].synchronize().expect("nothing fails");
        let pool = Arc::clone(&self.pool);
        let (tell, told) = mpsc::channel();
        let stream = with_stream.then(|| self.streams[0].handle());
        self.hook.set(call, stream, move || {
            let slept = start(move || pool.sleep(Contents::Keep));
            // It waits for this thread, or has ended.
            is_waiting(&slept);
            tell.send(slept).expect("the test waits");
        });

        act(&self);

        let slept = told.recv().expect("the call was made");
        slept.recv_timeout(PATIENCE).expect("it sleeps at last").expect("nothing forbids it");
        self.pool.wake().expect("there is room");
        assert!(buffer.read().expect("nothing fails").iter().all(|byte| *byte == 7));
        drop(buffer);
        assert_consistent(&self.test.allocator);
        self.end();
    }

    /// The device gets everything back.
    fn end(self) {
        self.pool.empty_cache().expect("nothing fails");
        self.test.allocator.empty_cache().expect("nothing fails");
        assert_eq!(self.test.allocator.stats().reserved_bytes.all.current, 0);
        drop((self.pool, self.streams));
        self.test.assert_returns_everything();
        assert!(self.watched.misuses().is_empty(), "{:?}", self.watched.misuses());
    }
}

/// Devices that free unmapped memory at once, or with its addresses only.
fn devices() -> [HostConfig; 2] {
    [HostConfig::default(), HostConfig::default().withholding()]
}

#[test]
fn a_sleep_waits_for_chunks_that_leave_for_the_device() {
    for host in devices() {
        Scene::new(host).sleep_amid(Call::Record, true, |scene| {
            scene.pool.empty_cache().unwrap();
        });
    }
}

#[test]
fn a_sleep_waits_for_addresses_that_are_unmapped() {
    for host in devices() {
        Scene::new(host).sleep_amid(Call::Unmap, false, |scene| {
            scene.pool.empty_cache().unwrap();
        });
    }
}

#[test]
fn a_sleep_waits_for_chunks_that_move_to_another_stream() {
    for host in devices() {
        Scene::new(host).sleep_amid(Call::Map, false, |scene| {
            let _inside = scene.pool.enter_all();
            drop(scene.test.allocate(2 * MIB, &scene.streams[1]));
        });
    }
}

#[test]
fn a_sink_that_hears_of_a_release_stops_no_sleep() {
    let (test, [stream]) = TestAllocator::with(ELASTIC).with_streams();
    let pool = Arc::new(test.allocator.create_pool());
    drop(pool.allocate(4 * MIB, &stream).unwrap());
    stream.synchronize().unwrap();
    let (log, in_sink) = waiting_sink(&test, |event| event.action == TraceAction::SegmentUnmap);
    let held = log.lock().unwrap();
    let also = Arc::clone(&pool);
    let emptied = start(move || also.empty_cache());
    in_sink.recv().expect("the sink hears of it");
    let slept = in_time(move || pool.sleep(Contents::Keep).map(drop));
    drop(held);
    assert_eq!(slept, Some(Ok(())), "the sleep waits for the sink");
    emptied.recv().unwrap().unwrap();
}

#[test]
fn a_sleep_waits_for_recorded_uses_of_another_allocators_stream() {
    for frees in [false, true] {
        let (test, [stream]) = TestAllocator::with(ELASTIC).with_streams();
        let foreign = test.beside("").stream();
        let pool = test.allocator.create_pool();
        let (memory, kept) = (pool.allocate(4 * MIB, &stream).unwrap(), pool.allocate(4 * MIB, &stream).unwrap());
        let hold = test.hold(&foreign);
        test.fill(&memory, 7, &foreign);
        memory.record_stream(&foreign);
        let memory = (!frees).then_some(memory);
        let sleeper = start(move || (pool.sleep(Contents::Keep).map(drop), pool));
        assert!(is_waiting(&sleeper), "freed: {frees}");
        let_pass(hold, &foreign);
        assert_eq!(sleeper.recv_timeout(PATIENCE).unwrap().0, Ok(()), "freed: {frees}");
        drop((memory, kept));
    }
}
