//! A traced device reports every driver call, and nothing else.

use std::os::fd::AsFd;
use std::sync::{Arc, Mutex};

use cachette_hal::traced::Traced;
use cachette_hal::traced::{Counts, DriverCall, Observer};
use cachette_hal::{
    Call, Capture, CaptureMode, Device, ErrorKind, Feature, HostCalls, HostMemory, Ipc, Ordinal, PeerAccess, Sharing,
    StreamOrdered, StreamRef, Transfer, VirtualMemory,
};

use crate::fake::{Fake, STRIDE, call};

/// An observer that keeps every call.
#[derive(Default)]
struct Log(Mutex<Vec<DriverCall>>);

impl Log {
    fn last(&self) -> DriverCall {
        let log = self.0.lock().expect("no test panics under the lock");
        *log.last().expect("a call was made")
    }

    fn calls(&self) -> Vec<Call> {
        let log = self.0.lock().expect("no test panics under the lock");
        log.iter().map(|heard| heard.call).collect()
    }
}

impl Observer for Log {
    fn call(&self, call: &DriverCall) {
        let mut log = self.0.lock().expect("no test panics under the lock");
        log.push(*call);
    }
}

/// A traced fake and the log of its calls.
fn subject() -> (Traced<Arc<Fake>>, Arc<Log>) {
    let log = Arc::new(Log::default());
    let device = Traced::new(Arc::new(Fake::new()), Arc::clone(&log));
    (device, log)
}

#[test]
fn a_call_is_reported_with_its_facts() {
    let (device, log) = subject();
    device.device().reuse(0xabc00);
    let ptr = device.allocate(4096).unwrap();
    let heard = log.last();
    assert_eq!((heard.call, heard.subject, heard.bytes), (Call::Allocate, 0xabc00, 4096));
    assert_eq!((heard.stream, heard.outcome), (None, Ok(())));

    let stream = device.create_stream().unwrap();
    assert_eq!(log.last().subject, stream.raw() as u64);
    call!(device.fill(ptr, 0, 64, stream.borrow())).unwrap();
    let heard = log.last();
    assert_eq!((heard.call, heard.subject, heard.bytes), (Call::Fill, 0xabc00, 64));
    assert_eq!(heard.stream, Some(stream.borrow()));

    let event = device.create_event().unwrap();
    call!(device.record(&event, StreamRef::DEFAULT)).unwrap();
    let heard = log.last();
    assert_eq!(heard.subject, event.raw() as u64);
    assert_eq!(heard.stream, Some(StreamRef::DEFAULT));
}

#[test]
fn a_failure_is_reported_and_returned() {
    let (device, log) = subject();
    device.device().fail_next();
    let error = device.allocate(4096).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Other);
    let heard = log.last();
    assert_eq!((heard.subject, heard.bytes), (0, 4096));
    assert_eq!(heard.outcome, Err(error));
}

#[test]
fn facts_and_missing_groups_are_not_calls() {
    let (device, log) = subject();
    assert_eq!(device.info().ordinal, Ordinal(0));
    assert_eq!(device.granularity().minimum, 4096);
    assert!(Feature::ALL.into_iter().all(|feature| device.missing(feature).is_none()));
    assert!(log.calls().is_empty());
    assert_eq!(device.device().calls(), []);

    let device = Traced::new(Fake::bare(), Arc::clone(&log));
    for feature in Feature::ALL {
        assert!(device.missing(feature).is_some());
        assert_eq!(device.missing(feature), device.device().missing(feature));
    }
    assert_eq!(device.reserve(4096, None).unwrap_err().kind(), ErrorKind::Unsupported);
    assert!(log.calls().is_empty());
}

#[test]
fn every_call_of_the_contract_is_reported_once() {
    let (device, log) = subject();
    device_calls(&device);
    group_calls(&device);
    assert_eq!(log.calls(), device.device().calls());
    let mut heard = log.calls();
    heard.sort();
    assert_eq!(heard, Call::ALL);
}

/// Makes each call of `Device` and of its virtual memory once.
fn device_calls(device: &Traced<Arc<Fake>>) {
    device.memory_info().unwrap();
    let ptr = device.allocate(STRIDE).unwrap();
    call!(device.free(ptr)).unwrap();
    let stream = device.create_stream().unwrap();
    call!(device.synchronize(stream.borrow())).unwrap();
    device.synchronize_device().unwrap();
    let event = device.create_event().unwrap();
    call!(device.record(&event, stream.borrow())).unwrap();
    assert!(call!(device.poll(&event)).unwrap().is_done());
    call!(device.wait(&event)).unwrap();
    call!(device.stream_wait(stream.borrow(), &event)).unwrap();
    call!(device.destroy_event(event)).unwrap();
    call!(device.destroy_stream(stream)).unwrap();

    let start = device.reserve(4096, None).unwrap();
    let backing = device.create_backing(4096, Sharing::FileDescriptor, false).unwrap();
    call!(device.map(start, &backing)).unwrap();
    call!(device.set_access(start, 4096, &[])).unwrap();
    call!(device.unmap(start, 4096)).unwrap();
    let fd = call!(device.export_backing(&backing)).unwrap();
    assert_eq!(device.import_backing(fd.as_fd(), 4096).unwrap().bytes(), 4096);
    let name = call!(device.export_fabric(&backing)).unwrap();
    assert_eq!(device.import_fabric(&name, 4096).unwrap().bytes(), 4096);
    call!(device.destroy_backing(backing)).unwrap();
    call!(device.release(start, 4096)).unwrap();
}

/// Makes each call of the other groups once.
fn group_calls(device: &Traced<Arc<Fake>>) {
    let default = StreamRef::DEFAULT;
    let ptr = call!(device.allocate_on(64, default)).unwrap();
    call!(device.free_on(ptr, default)).unwrap();
    device.trim(0).unwrap();

    let host = device.allocate_pinned(64).unwrap();
    device.device_address(host).unwrap();
    call!(device.free_pinned(host)).unwrap();
    call!(device.register(host, 64)).unwrap();
    call!(device.unregister(host)).unwrap();

    let token = call!(device.export_token(ptr)).unwrap();
    let opened = device.open_token(&token).unwrap();
    call!(device.close_token(opened)).unwrap();

    call!(device.begin_capture(default, CaptureMode::Global)).unwrap();
    call!(device.capture_status(default)).unwrap();
    let mut nodes = Vec::new();
    call!(device.frontier(default, &mut nodes)).unwrap();
    call!(device.dependencies(nodes[0], &mut nodes)).unwrap();
    assert_eq!(nodes, [nodes[0]; 2]);
    let graph = call!(device.end_capture(default)).unwrap();
    call!(device.launch(&graph, default)).unwrap();
    call!(device.destroy_graph(graph)).unwrap();
    assert_eq!(device.exchange_capture_mode(CaptureMode::Relaxed), Ok(CaptureMode::Global));

    assert_eq!(device.can_reach(Ordinal(1)), Ok(true));
    device.enable_peer(Ordinal(1)).unwrap();
    device.disable_peer(Ordinal(1)).unwrap();

    let mut byte = 0_u8;
    call!(device.fill(ptr, 0, 1, default)).unwrap();
    call!(device.copy(ptr, opened, 1, default)).unwrap();
    call!(device.upload(ptr, &raw const byte, 1, default)).unwrap();
    call!(device.download(&raw mut byte, ptr, 1, default)).unwrap();
    call!(device.call_host(default, Box::new(|| ()))).unwrap();
}

#[test]
fn counts_are_kept_per_call() {
    let counts = Arc::new(Counts::new());
    let device = Traced::new(Arc::new(Fake::new()), Arc::clone(&counts));
    assert_eq!(counts.total(), 0);
    device.allocate(64).unwrap();
    device.allocate(64).unwrap();
    device.device().fail_next();
    device.synchronize_device().unwrap_err();
    assert_eq!(counts.of(Call::Allocate), 2);
    assert_eq!(counts.of(Call::Free), 0);
    assert_eq!(counts.failures_of(Call::SynchronizeDevice), 1);
    assert_eq!(counts.failures_of(Call::Allocate), 0);
    assert_eq!(counts.total(), 3);
    assert_eq!(counts.to_string(), "allocate: 2, 0 failed\nsynchronize_device: 1, 1 failed\n");
}
