//! Pools that are put to sleep while another thread moves their chunks: the sleep waits for it.

use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use cachette::hal::Call;
use cachette::sleep::{Contents, SleepStats};
use cachette::{Allocator, Error, Pool, Stream};
use cachette_hal_host::{HostConfig, HostDevice, Live};
use cachette_hal_testing::{Checked, Traced};

use crate::bed::{MIB, assert_consistent, config, device};
use crate::hook::Hook;

type Watched = Arc<Checked<Traced<HostDevice>>>;

/// A pool whose first stream has a free chunk and one in use.
struct Scene {
    host: HostDevice,
    hook: Arc<Hook>,
    allocator: Allocator<Watched>,
    pool: Arc<Pool<Watched>>,
    streams: [Stream<Watched>; 2],
}

impl Scene {
    fn new(host: HostConfig) -> Self {
        let hook = Arc::new(Hook::default());
        let host = device(host);
        let traced = Traced::new(host.clone(), Arc::clone(&hook));
        let text = "expandable_segments:True,elastic_largest_chunk_mb:2,elastic_slack:0";
        let allocator = Allocator::with_config(Arc::new(Checked::new(traced)), &config(text));
        let streams = [(); 2].map(|()| allocator.create_stream().expect("the device makes streams"));
        let pool = Arc::new(allocator.create_pool());
        Self { host, hook, allocator, pool, streams }
    }

    /// Puts the pool to sleep on another thread in the middle of `act`, after such a call of the driver for the first
    /// stream; then checks that the pool wakes with what it held.
    fn sleep_amid(self, call: Call, with_stream: bool, act: impl FnOnce(&Self)) {
        let mut buffer = {
            let _inside = self.pool.enter_all();
            let spare = self.allocator.allocate(2 * MIB, &self.streams[0]).expect("nothing fails");
            let buffer = self.allocator.allocate_buffer::<u8>(2 << 20, &self.streams[0]);
            drop(spare);
            buffer.expect("nothing fails")
        };
        buffer.fill(7).expect("nothing fails");
        self.streams[0].synchronize().expect("nothing fails");
        let (sender, slept) = mpsc::channel::<Result<SleepStats, Error>>();
        let pool = Arc::clone(&self.pool);
        let (tell, told) = mpsc::channel();
        let stream = with_stream.then(|| self.streams[0].handle());
        self.hook.set(call, stream, move || {
            thread::spawn(move || sender.send(pool.sleep(Contents::Keep)));
            // A sleep that waits for this thread is still under way then.
            let _ = tell.send(slept.recv_timeout(Duration::from_millis(200)).map_err(|_| slept));
        });

        act(&self);

        let early = told.recv().expect("the call was made");
        let slept = early.unwrap_or_else(|slept| slept.recv().expect("it sleeps at last"));
        slept.expect("nothing forbids it");
        self.pool.wake().expect("there is room");
        assert!(buffer.read().expect("nothing fails").iter().all(|byte| *byte == 7));
        drop(buffer);
        assert_consistent(&self.allocator);
        self.end();
    }

    /// The device gets everything back.
    fn end(self) {
        let watched = Arc::clone(self.allocator.device());
        self.pool.empty_cache().expect("nothing fails");
        self.allocator.empty_cache().expect("nothing fails");
        assert_eq!(self.allocator.stats().reserved_bytes.all.current, 0);
        drop((self.pool, self.allocator, self.streams));
        assert!(watched.misuses().is_empty(), "{:?}", watched.misuses());
        assert_eq!(self.host.live(), Live::default());
        assert_eq!(self.host.physical_bytes(), 0);
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
            drop(scene.allocator.allocate(2 * MIB, &scene.streams[1]).unwrap());
        });
    }
}
