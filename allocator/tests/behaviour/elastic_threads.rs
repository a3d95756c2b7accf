//! Many streams request each other's idle chunks: a request that comes too late gets other memory.

use std::sync::{Arc, Mutex, OnceLock};
use std::thread;

use cachette::Allocator;
use cachette::hal::{Call, CaptureMode, Device, DevicePtr, ErrorKind};
use cachette_hal::traced::DriverCall;
use cachette_hal_host::HostConfig;

use crate::fixture::{Allocation, ELASTIC, MIB, Stream, TestAllocator, assert_consistent, let_pass};

/// Streams that reuse their idle chunks as soon as they have offered them.
#[derive(Default)]
struct Owners {
    /// Set once there is an idle chunk to reuse.
    parts: OnceLock<(Allocator, Vec<Stream>)>,
    taken: Mutex<Vec<Allocation>>,
}

impl Owners {
    /// An event recorded in an owner's stream shows that the allocator has just listed its chunks.
    fn hear(&self, call: &DriverCall) {
        let Some((allocator, streams)) = self.parts.get() else {
            return;
        };
        let asked = |stream: &Stream| Some(stream.handle()) == call.stream;
        if let Some(asked) = streams.iter().find(|stream| call.call == Call::Record && asked(stream)) {
            let memory = allocator.allocate(2 * MIB, asked);
            let mut taken = self.taken.lock().expect("no thread panicked");
            taken.push(memory.expect("it is a hit"));
        }
    }
}

#[test]
fn a_request_that_always_loses_its_chunks_gets_new_memory() {
    const OWNERS: usize = 16;
    let owners = Arc::new(Owners::default());
    let heard = Arc::clone(&owners);
    // Retry steps that wait could also serve the request.
    let settings = format!("{ELASTIC},never_block:True");
    let observer = move |call: &DriverCall| heard.hear(call);
    let test = TestAllocator::traced(HostConfig::default().stepped(5), &settings, observer);
    let streams: Vec<_> = (0..OWNERS).map(|_| test.stream()).collect();
    drop(streams.iter().map(|stream| test.allocate(2 * MIB, stream)).collect::<Vec<_>>());
    let late = test.stream();
    assert!(owners.parts.set((test.allocator.clone(), streams)).is_ok());

    let memory = test.allocator.allocate(2 * OWNERS as u64 * MIB, &late);

    let taken = std::mem::take(&mut *owners.taken.lock().unwrap());
    assert_eq!(taken.len(), OWNERS, "it was late each time");
    assert!(memory.is_ok(), "{memory:?}");
    assert_consistent(&test.allocator);
}

const THREADS: u64 = 6;

/// Allocates blocks of many sizes in turn, and checks that the bytes written at both ends stay unchanged.
fn churn(allocator: &Allocator, stream: &Stream, number: u64) {
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
    // The second driver maps nothing twice.
    for host in [HostConfig::default(), HostConfig::default().refusing_aliases(1)] {
        to_and_fro(host);
    }
}

fn to_and_fro(host: HostConfig) {
    let test = TestAllocator::checked(host, "expandable_segments:True");
    let allocator = &test.allocator;
    let streams: Vec<_> = (0..2 * THREADS).map(|_| test.stream()).collect();
    for round in 0..6 {
        allocator.empty_cache().expect("nothing fails");
        thread::scope(|scope| {
            let own = streams.iter().cycle().skip(round * 5);
            for (stream, number) in own.zip(0..THREADS) {
                scope.spawn(move || churn(allocator, stream, number));
            }
        });
        assert_consistent(allocator);
    }
    assert_eq!(allocator.stats().num_ooms, 0);
    test.assert_returns_everything_after(streams);
}

#[test]
fn a_stream_that_works_again_lends_no_chunk() {
    let (test, hook) = TestAllocator::hooked(HostConfig::default().stepped(5), ELASTIC);
    let [owner, late] = test.streams();
    drop(test.allocate(4 * MIB, &owner));
    test.device.run_until_idle();
    // The owner is idle at the first query; then it uses and frees its memory once more.
    let (also, stream, device) = (test.allocator.clone(), owner.clone(), test.device.clone());
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
    let mut buffer = test.allocator.allocate_buffer::<u8>(4 << 20, &late).unwrap();
    buffer.fill(2).unwrap();
    test.device.run_until_idle();
    let holding = held.lock().unwrap().take();
    drop(holding.expect("the owner was asked"));
    test.device.run_until_idle();
    assert!(buffer.read().unwrap().iter().all(|byte| *byte == 2));
}

#[test]
fn a_lender_that_was_faster_does_not_exclude_the_others() {
    let (test, hook) = TestAllocator::hooked(HostConfig::default().stepped(5), ELASTIC);
    let [fast, slow, late] = test.streams();
    drop([&fast, &slow].map(|stream| test.allocate(4 * MIB, stream)));
    test.device.run_until_idle();
    // The first lender uses its memory itself after it was asked.
    let (also, stream, taken) = (test.allocator.clone(), fast.clone(), Arc::new(Mutex::new(None)));
    let taking = Arc::clone(&taken);
    hook.set(Call::Record, Some(fast.handle()), move || {
        *taking.lock().unwrap() = Some(also.allocate(4 * MIB, &stream).unwrap());
    });
    let memory = test.allocate(8 * MIB, &late);
    assert!(taken.lock().unwrap().is_some(), "the lender was asked");
    assert_eq!(test.device.physical_bytes(), 12 * MIB, "4 MiB of the other lender moved");
    drop((memory, taken));
}

#[test]
fn a_stream_that_is_captured_meanwhile_lends_no_chunk() {
    let (test, hook) = TestAllocator::hooked(HostConfig::default().stepped(5), ELASTIC);
    let [owner, late] = test.streams();
    drop(test.allocate(4 * MIB, &owner));
    test.device.run_until_idle();
    let (also, stream) = (test.allocator.clone(), owner.clone());
    let captures = Arc::new(Mutex::new(None));
    let begun = Arc::clone(&captures);
    hook.set(Call::Record, Some(owner.handle()), move || {
        let pool = also.create_capture_pool();
        let capture = pool.begin_capture(&stream, CaptureMode::Relaxed);
        *begun.lock().unwrap() = Some(capture.unwrap());
    });
    let memory = test.allocator.allocate(4 * MIB, &late);
    assert!(memory.is_ok(), "{memory:?}");
    let capture = captures.lock().unwrap().take();
    let ended = capture.expect("the owner was asked").end();
    assert!(ended.is_ok(), "{ended:?}");
}

#[test]
fn a_failed_poll_is_no_proof_that_a_donor_is_idle() {
    for nth in 1..40 {
        let (test, [busy, other]) = TestAllocator::of(8 * MIB, &format!("{ELASTIC},never_block:True")).with_streams();
        let memory = test.allocate(8 * MIB, &busy);
        let hold = test.hold(&busy);
        test.fill(&memory, 9, &busy);
        drop(memory);
        test.device.fail_next(Call::Poll, nth, ErrorKind::Other);
        assert!(test.allocator.allocate(4 * MIB, &other).is_err(), "chunks of a stream at work were moved");
        test.device.clear_failures();
        let_pass(hold, &busy);
    }
}
