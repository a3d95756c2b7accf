//! Many streams request each other's idle chunks: a request that comes too late gets other memory.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;

use cachette::hal::{Call, CaptureMode, Device, DevicePtr};
use cachette::{Allocation, Allocator, Stream};
use cachette_hal_host::{HostConfig, HostDevice, Live};
use cachette_hal_testing::traced::DriverCall;
use cachette_hal_testing::{Checked, Traced};

use crate::bed::{MIB, assert_consistent, config, device};
use crate::hook::Hook;

type Told = Traced<HostDevice>;

/// Streams of which one reuses its idle chunk whenever all streams have offered theirs.
#[derive(Default)]
struct Owners {
    /// Set once there is an idle chunk to reuse.
    parts: OnceLock<(Allocator<Told>, Vec<Stream<Told>>)>,
    taken: Mutex<Vec<Allocation<Told>>>,
    /// The last stream in which an event was recorded.
    last: AtomicUsize,
}

impl Owners {
    /// An event recorded in an owner's stream shows that the allocator has just listed its chunks.
    fn hear(&self, call: &DriverCall) {
        let Some((allocator, streams)) = self.parts.get() else {
            return;
        };
        let asked = |stream: &Stream<Told>| Some(stream.handle()) == call.stream;
        let asked = streams.iter().position(asked);
        let Some(asked) = asked.filter(|_| call.call == Call::Record) else {
            return;
        };
        let before = self.last.swap(asked, Relaxed);
        // The streams come in order, so this stream is the first of a new round.
        if asked <= before {
            let memory = allocator.allocate(2 * MIB, &streams[asked]);
            let mut taken = self.taken.lock().expect("no thread panicked");
            taken.push(memory.expect("it is a hit"));
        }
    }
}

#[test]
fn a_request_that_loses_its_chunks_to_others_every_time_gets_new_memory() {
    const OWNERS: usize = 16;
    let owners = Arc::new(Owners { last: AtomicUsize::new(OWNERS), ..Owners::default() });
    let heard = Arc::clone(&owners);
    let host = device(HostConfig::default().stepped(5));
    let traced = Traced::new(host, move |call: &DriverCall| heard.hear(call));
    // Retry steps that wait could also serve the request.
    let text = "expandable_segments:True,elastic_largest_chunk_mb:2,elastic_slack:0,never_block:True";
    let allocator = Allocator::with_config(traced, &config(text));
    let stream = || allocator.create_stream().expect("the device makes streams");
    let streams: Vec<_> = (0..OWNERS).map(|_| stream()).collect();
    let spare = |stream| allocator.allocate(2 * MIB, stream).expect("there is room");
    drop(streams.iter().map(spare).collect::<Vec<_>>());
    let late = stream();
    assert!(owners.parts.set((allocator.clone(), streams)).is_ok());

    let memory = allocator.allocate(2 * OWNERS as u64 * MIB, &late);

    let taken = std::mem::take(&mut *owners.taken.lock().unwrap());
    assert!(taken.len() > 1, "it was late {} times", taken.len());
    assert!(memory.is_ok(), "{memory:?}");
    assert_consistent(&allocator);
}

type Watched = Arc<Checked<HostDevice>>;

const THREADS: u64 = 6;

/// Allocates blocks of many sizes in turn, and checks that the bytes written at both ends stay unchanged.
fn churn(allocator: &Allocator<Watched>, stream: &Stream<Watched>, number: u64) {
    let transfer = allocator.device().transfer().expect("the host device copies");
    let _kept = allocator.allocate(4000, stream).expect("there is room");
    let mut last = None;
    for turn in 0..60 {
        let bytes = 4 * (1 + (turn * 7919 * (number + 1)) % (2 * MIB));
        let memory = allocator.allocate(bytes, stream);
        let memory = memory.unwrap_or_else(|error| panic!("thread {number}, turn {turn}: {error}"));
        let mark = u8::try_from(THREADS * turn % 251 + number).expect("it is small");
        let tail = DevicePtr::new(memory.address() + bytes - 1).expect("it is no null");
        let mut read = [0; 2];
        for (at, byte) in [memory.ptr().expect("it has an address"), tail].into_iter().zip(&mut read) {
            // SAFETY: 1. the stream is live. 3. the memory is allocated.
            unsafe { transfer.fill(at, mark, 1, stream.handle()) }.expect("a fill is queued");
            // SAFETY: 1. 3. as above. 4. `read` is not touched before the stream has been waited for.
            unsafe { transfer.download(byte, at, 1, stream.handle()) }.expect("a download is queued");
        }
        stream.synchronize().expect("the stream runs dry");
        assert_eq!(read, [mark; 2], "thread {number}, turn {turn}");
        last = Some(memory);
    }
    drop(last);
}

#[test]
fn threads_that_move_chunks_to_and_fro_are_all_served() {
    to_and_fro(HostConfig::default());
}

#[test]
fn threads_are_served_where_the_driver_maps_nothing_twice() {
    to_and_fro(HostConfig::default().refusing_aliases());
}

fn to_and_fro(host: HostConfig) {
    let host = device(host);
    let watched = Arc::new(Checked::new(host.clone()));
    let allocator = Allocator::with_config(Arc::clone(&watched), &config("expandable_segments:True"));
    let stream = |_| allocator.create_stream().expect("the device makes streams");
    let streams: Vec<_> = (0..2 * THREADS).map(stream).collect();
    for round in 0..6 {
        allocator.empty_cache().expect("nothing fails");
        thread::scope(|scope| {
            let own = streams.iter().cycle().skip(round * 5);
            for (stream, number) in own.zip(0..THREADS) {
                let allocator = &allocator;
                scope.spawn(move || churn(allocator, stream, number));
            }
        });
        assert_consistent(&allocator);
    }
    assert_eq!(allocator.stats().num_ooms, 0);
    drop((allocator, streams));
    assert!(watched.misuses().is_empty(), "{:?}", watched.misuses());
    assert_eq!(host.live(), Live::default());
}

/// An allocator of small chunks over a stepped device, with a hook on its calls.
fn hooked(text: &str) -> (HostDevice, Allocator<Told>, Arc<Hook>) {
    let hook = Arc::new(Hook::default());
    let host = device(HostConfig::default().stepped(5));
    let traced = Traced::new(host.clone(), Arc::clone(&hook));
    (host, Allocator::with_config(traced, &config(text)), hook)
}

const CHUNKS: &str = "expandable_segments:True,elastic_largest_chunk_mb:2,elastic_slack:0";

#[test]
fn a_stream_that_works_again_lends_no_chunk() {
    let (host, allocator, hook) = hooked(CHUNKS);
    let [owner, late] = [(); 2].map(|()| allocator.create_stream().unwrap());
    drop(allocator.allocate(4 * MIB, &owner).unwrap());
    host.run_until_idle();
    // The owner is idle at the first query; then it uses and frees its memory once more.
    let (also, stream, device) = (allocator.clone(), owner.clone(), host.clone());
    let held = Arc::new(Mutex::new(None));
    let holding = Arc::clone(&held);
    hook.set(Call::Record, Some(owner.handle()), move || {
        device.run_until_idle();
        *holding.lock().unwrap() = Some(device.hold(stream.handle()).unwrap());
        let memory = also.allocate(4 * MIB, &stream).unwrap();
        let transfer = device.transfer().unwrap();
        // SAFETY: 1. the stream lives. 3. memory that its stream may still use stays mapped.
        unsafe { transfer.fill(memory.ptr().unwrap(), 1, 4 * MIB, stream.handle()) }.unwrap();
    });
    let mut buffer = allocator.allocate_buffer::<u8>(4 << 20, &late).unwrap();
    buffer.fill(2).unwrap();
    host.run_until_idle();
    let holding = held.lock().unwrap().take();
    drop(holding.expect("the owner was asked"));
    host.run_until_idle();
    assert!(buffer.read().unwrap().iter().all(|byte| *byte == 2));
}

#[test]
fn a_stream_that_is_captured_meanwhile_lends_no_chunk() {
    let (host, allocator, hook) = hooked(CHUNKS);
    let [owner, late] = [(); 2].map(|()| allocator.create_stream().unwrap());
    drop(allocator.allocate(4 * MIB, &owner).unwrap());
    host.run_until_idle();
    let (also, stream) = (allocator.clone(), owner.clone());
    let captures = Arc::new(Mutex::new(None));
    let begun = Arc::clone(&captures);
    hook.set(Call::Record, Some(owner.handle()), move || {
        let pool = also.create_capture_pool();
        let capture = pool.begin_capture(&stream, CaptureMode::Relaxed);
        *begun.lock().unwrap() = Some(capture.unwrap());
    });
    let memory = allocator.allocate(4 * MIB, &late);
    assert!(memory.is_ok(), "{memory:?}");
    let capture = captures.lock().unwrap().take();
    let ended = capture.expect("the owner was asked").end();
    assert!(ended.is_ok(), "{ended:?}");
}

#[test]
fn a_borrower_waits_for_what_its_lender_waits_for_only_later() {
    let (host, allocator, hook) = hooked("lend_across_streams:True");
    let [owner, side, late] = [(); 3].map(|()| allocator.create_stream().unwrap());
    let [wanted, other] = [24, 12].map(|mib| allocator.allocate(mib * MIB, &owner).unwrap());
    let hold = host.hold(side.handle()).unwrap();
    let transfer = host.transfer().unwrap();
    // SAFETY: 1. the stream lives. 3. the memory stays: no segment goes before its streams are done.
    unsafe { transfer.fill(wanted.ptr().unwrap(), 1, 24 * MIB, side.handle()) }.unwrap();
    wanted.release_after(&[&side]).unwrap();
    other.release_after(&[&side]).unwrap();
    // The owner's stream waits for the side stream just after the borrower has recorded its event.
    let (also, stream) = (allocator.clone(), owner.clone());
    hook.set(Call::Record, Some(owner.handle()), move || {
        let _ = also.allocate(12 * MIB, &stream).unwrap().into_raw();
    });
    let mut lent = allocator.allocate_buffer::<u8>(24 << 20, &late).unwrap();
    lent.fill(2).unwrap();
    host.run_until_idle();
    hold.release();
    host.run_until_idle();
    assert!(lent.read().unwrap().iter().all(|byte| *byte == 2));
    assert_eq!(allocator.stats().segment.all.current, 2, "it was lent");
}
