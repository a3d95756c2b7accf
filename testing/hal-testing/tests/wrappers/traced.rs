//! A traced device reports every driver call, and nothing else.

use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};

use cachette_hal::traced::Traced;
use cachette_hal::traced::{Counts, DriverCall, Observer};
use cachette_hal::{
    Call, Capture, CaptureMode, CaptureNode, Device, DevicePtr, ErrorKind, Feature, HostCalls, HostMemory, Ipc,
    IpcToken, Ordinal, PeerAccess, Sharing, StreamOrdered, StreamRef, Transfer, VirtualMemory,
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
fn facts_and_accessors_are_not_calls() {
    let (device, log) = subject();
    assert_eq!(device.info().ordinal, Ordinal(0));
    assert_eq!(device.granularity().minimum, 4096);
    for feature in Feature::ALL {
        assert_eq!(device.missing(feature), None);
    }
    assert!(log.calls().is_empty());
    assert_eq!(device.into_inner().calls(), []);
}

#[test]
fn a_device_without_groups_says_so_and_makes_no_call() {
    let log = Arc::new(Log::default());
    let device = Traced::new(Fake::bare(), Arc::clone(&log));
    for feature in Feature::ALL {
        assert_eq!(device.missing(feature), device.device().missing(feature));
        assert!(device.missing(feature).is_some());
    }
    let error = device.reserve(4096, None).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(log.calls().is_empty());
}

#[test]
fn every_call_of_the_contract_is_reported_once() {
    let (device, log) = subject();
    device_calls(&device);
    virtual_memory_calls(&device);
    other_calls(&device);
    assert_eq!(log.calls(), device.device().calls());
    let mut heard = log.calls();
    heard.sort();
    assert_eq!(heard, Call::ALL);
}

/// Makes each call of `Device` once.
fn device_calls(device: &dyn Device) {
    device.memory_info().expect("fakes agree");
    let ptr = device.allocate(STRIDE).expect("fakes agree");
    call!(device.free(ptr)).expect("fakes agree");
    let stream = device.create_stream().expect("fakes agree");
    call!(device.synchronize(stream.borrow())).expect("fakes agree");
    device.synchronize_device().expect("fakes agree");
    let event = device.create_event().expect("fakes agree");
    call!(device.record(&event, stream.borrow())).expect("fakes agree");
    assert!(call!(device.poll(&event)).expect("fakes agree").is_done());
    call!(device.wait(&event)).expect("fakes agree");
    call!(device.stream_wait(stream.borrow(), &event)).expect("fakes agree");
    call!(device.destroy_event(event)).expect("fakes agree");
    call!(device.destroy_stream(stream)).expect("fakes agree");
}

/// Makes each call of `VirtualMemory` once.
fn virtual_memory_calls(device: &dyn Device) {
    let group = device.virtual_memory().expect("fakes have it");
    let start = group.reserve(4096, None).expect("fakes agree");
    let backing = group.create_backing(4096, Sharing::FileDescriptor, false);
    let backing = backing.expect("fakes agree");
    call!(group.map(start, &backing)).expect("fakes agree");
    call!(group.set_access(start, 4096, &[])).expect("fakes agree");
    call!(group.unmap(start, 4096)).expect("fakes agree");
    let fd = call!(group.export_backing(&backing)).expect("fakes agree");
    let imported = group.import_backing(fd.as_fd(), 4096);
    assert_eq!(imported.expect("fakes agree").bytes(), 4096);
    let name = call!(group.export_fabric(&backing)).expect("fakes agree");
    let imported = group.import_fabric(&name, 4096);
    assert_eq!(imported.expect("fakes agree").bytes(), 4096);
    call!(group.destroy_backing(backing)).expect("fakes agree");
    call!(group.release(start, 4096)).expect("fakes agree");
}

/// Makes each call of the other groups once.
fn other_calls(device: &Traced<Arc<Fake>>) {
    let default = StreamRef::DEFAULT;
    let ptr = call!(device.allocate_on(64, default)).expect("fakes agree");
    call!(device.free_on(ptr, default)).expect("fakes agree");
    device.trim(0).expect("fakes agree");

    let host: NonNull<u8> = device.allocate_pinned(64).expect("fakes agree");
    device.device_address(host).expect("fakes agree");
    call!(device.free_pinned(host)).expect("fakes agree");
    call!(device.register(host, 64)).expect("fakes agree");
    call!(device.unregister(host)).expect("fakes agree");

    let token: IpcToken = call!(device.export_token(ptr)).expect("fakes agree");
    let opened: DevicePtr = device.open_token(&token).expect("fakes agree");
    call!(device.close_token(opened)).expect("fakes agree");

    call!(device.begin_capture(default, CaptureMode::Global)).expect("fakes agree");
    call!(device.capture_status(default)).expect("fakes agree");
    let mut nodes: Vec<CaptureNode> = Vec::new();
    call!(device.frontier(default, &mut nodes)).expect("fakes agree");
    let node = nodes[0];
    call!(device.dependencies(node, &mut nodes)).expect("fakes agree");
    assert_eq!(nodes, [node, node]);
    let graph = call!(device.end_capture(default)).expect("fakes agree");
    call!(device.launch(&graph, default)).expect("fakes agree");
    call!(device.destroy_graph(graph)).expect("fakes agree");
    let mode = device.exchange_capture_mode(CaptureMode::Relaxed);
    assert_eq!(mode, Ok(CaptureMode::Global));

    assert_eq!(device.can_reach(Ordinal(1)), Ok(true));
    device.enable_peer(Ordinal(1)).expect("fakes agree");
    device.disable_peer(Ordinal(1)).expect("fakes agree");

    let mut byte = 0_u8;
    call!(device.fill(ptr, 0, 1, default)).expect("fakes agree");
    call!(device.copy(ptr, opened, 1, default)).expect("fakes agree");
    call!(device.upload(ptr, &raw const byte, 1, default)).expect("fakes agree");
    call!(device.download(&raw mut byte, ptr, 1, default)).expect("fakes agree");
    call!(device.call_host(default, Box::new(|| ()))).expect("fakes agree");
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

#[test]
fn a_closure_observes() {
    let (sender, heard) = std::sync::mpsc::channel();
    let device = Traced::new(Fake::new(), move |call: &DriverCall| {
        sender.send(call.call).expect("the test outlives its device");
    });
    device.memory_info().unwrap();
    assert_eq!(heard.try_iter().collect::<Vec<_>>(), [Call::MemoryInfo]);
}
