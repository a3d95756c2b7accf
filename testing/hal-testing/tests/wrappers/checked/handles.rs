//! Misuse of streams, events, graphs and backings.

use std::fs::File;
use std::os::fd::AsFd;

use cachette_hal::{
    Backing, Capture, CaptureMode, Device, DevicePtr, Event, FabricHandle, Feature, Graph, HostCalls, Sharing, Stream,
    StreamOrdered, StreamRef, Transfer, VirtualMemory,
};
use cachette_hal_testing::Checked;
use cachette_hal_testing::checked::Resource;

use super::{Subject, subject, wrong};
use crate::fake::{Fake, call};

const DEFAULT: StreamRef = StreamRef::DEFAULT;

/// A stream, an event, a graph and a backing that were destroyed, in this order.
fn destroyed(device: &Subject) -> (StreamRef, Event, Graph, Backing) {
    let stream = device.create_stream().unwrap();
    let gone = stream.borrow();
    call!(device.begin_capture(gone, CaptureMode::Global)).unwrap();
    let graph = call!(device.end_capture(gone)).unwrap();
    call!(device.destroy_stream(stream)).unwrap();
    let event = device.create_event().unwrap();
    let backing = device.create_backing(4096, Sharing::Private, false).unwrap();
    let raw = (Event::from_raw(event.raw()), Graph::from_raw(graph.raw()), Backing::from_raw(backing.raw(), 4096));
    call!(device.destroy_event(event)).unwrap();
    call!(device.destroy_graph(graph)).unwrap();
    call!(device.destroy_backing(backing)).unwrap();
    (gone, raw.0, raw.1, raw.2)
}

#[test]
fn a_handle_destroyed_twice_is_caught() {
    let device = subject();
    let (stream, event, graph, backing) = destroyed(&device);
    let raw = stream.raw();
    let created = "it came from create_stream (call 1, thread ";
    let misuse = wrong!(device.destroy_stream(Stream::from_raw(raw)) => EndedTwice,
        "destroy_stream(0x100000): this stream was already destroyed", created, "it was destroyed by destroy_stream (");
    assert_eq!((misuse.subject, misuse.resource), (raw as u64, Resource::Stream));
    wrong!(device.destroy_event(event) => EndedTwice, "this event was already destroyed", "create_event");
    wrong!(device.destroy_graph(graph) => EndedTwice, "this graph was already destroyed", "end_capture");
    wrong!(device.destroy_backing(backing) => EndedTwice, "this backing was already destroyed", "create_backing");
}

#[test]
fn a_foreign_handle_differs_from_an_ended_one() {
    let device = subject();
    let misuse = wrong!(device.destroy_event(Event::from_raw(0x77)) => Foreign,
        "destroy_event(0x77): this event was never seen here", "foreign");
    assert!(misuse.origin.is_none());
    wrong!(device.synchronize(StreamRef::from_raw(0x77)) => Foreign, "this stream was never seen here");
    wrong!(device.destroy_graph(Graph::from_raw(0x77)) => Foreign, "this graph was never seen here");
    wrong!(device.export_backing(&Backing::from_raw(0x77, 4096)) => Foreign, "this backing was never seen here");
}

#[test]
fn every_use_of_a_destroyed_handle_is_caught() {
    let device = subject();
    let (gone, ended, graph, backing) = destroyed(&device);
    let (event, ptr, mut byte) = (device.create_event().unwrap(), device.allocate(4096).unwrap(), 0_u8);
    wrong!(device.synchronize(gone) => UsedAfterEnd, "synchronize(0x100000): this stream is used after it was destroyed");
    wrong!(device.record(&event, gone) => UsedAfterEnd, "this stream", "create_stream (call 1");
    wrong!(device.stream_wait(gone, &event) => UsedAfterEnd, "this stream");
    wrong!(device.allocate_on(1, gone) => UsedAfterEnd, "this stream");
    wrong!(device.free_on(ptr, gone) => UsedAfterEnd, "this stream");
    wrong!(device.capture_status(gone) => UsedAfterEnd, "this stream");
    wrong!(device.begin_capture(gone, CaptureMode::Global) => UsedAfterEnd, "this stream");
    wrong!(device.end_capture(gone) => UsedAfterEnd, "this stream");
    wrong!(device.fill(ptr, 0, 16, gone) => UsedAfterEnd, "this stream");
    wrong!(device.copy(ptr, ptr.add(64), 16, gone) => UsedAfterEnd, "this stream");
    wrong!(device.upload(ptr, &raw const byte, 1, gone) => UsedAfterEnd, "this stream");
    wrong!(device.download(&raw mut byte, ptr, 1, gone) => UsedAfterEnd, "this stream");
    wrong!(device.call_host(gone, Box::new(|| ())) => UsedAfterEnd, "this stream");
    wrong!(device.record(&ended, DEFAULT) => UsedAfterEnd, "this event is used after it was destroyed", "create_event");
    wrong!(device.poll(&ended) => UsedAfterEnd, "this event");
    wrong!(device.wait(&ended) => UsedAfterEnd, "this event");
    wrong!(device.stream_wait(DEFAULT, &ended) => UsedAfterEnd, "this event");
    wrong!(device.launch(&graph, DEFAULT) => UsedAfterEnd, "this graph is used after it was destroyed", "end_capture");
    let at = device.reserve(4096, None).unwrap();
    wrong!(device.map(at, &backing) => UsedAfterEnd, "this backing is used after it was destroyed", "create_backing");
    wrong!(device.export_backing(&backing) => UsedAfterEnd, "this backing");
    wrong!(device.export_fabric(&backing) => UsedAfterEnd, "this backing");
}

#[test]
fn an_adopted_stream_is_used_but_not_destroyed() {
    let device = subject();
    let elsewhere = StreamRef::from_raw(0x5000);
    device.adopt_stream(elsewhere);
    call!(device.synchronize(elsewhere)).unwrap();
    wrong!(device.destroy_stream(Stream::from_raw(0x5000)) => WrongCall, "destroy_stream(0x5000): this stream was only adopted");
    wrong!(device.destroy_stream(Stream::from_raw(0)) => WrongCall, "only adopted");
    assert!(device.leaks().is_empty());
}

#[test]
fn a_capture_ends_once_and_before_its_stream() {
    let device = subject();
    let stream = device.create_stream().unwrap();
    let s = stream.borrow();
    let none = "no capture was begun on this stream";
    wrong!(device.end_capture(s) => NotCaptured, "end_capture(", none, "create_stream");
    // A capture is over even where its end fails, so a second end has nothing to end.
    call!(device.begin_capture(s, CaptureMode::Relaxed)).unwrap();
    device.device().fail_next();
    call!(device.end_capture(s)).unwrap_err();
    wrong!(device.end_capture(s) => NotCaptured, none);
    call!(device.begin_capture(s, CaptureMode::Global)).unwrap();
    wrong!(device.destroy_stream(Stream::from_raw(stream.raw())) => StillCaptured,
        "this stream is still being captured", "the capture came from begin_capture (call 3");
    let graph = call!(device.end_capture(s)).unwrap();
    call!(device.destroy_graph(graph)).unwrap();
    call!(device.destroy_stream(stream)).unwrap();
    assert!(device.leaks().is_empty());
}

#[test]
fn a_backing_imported_twice_is_destroyed_twice() {
    let device = subject();
    let null = File::open("/dev/null").unwrap();
    let first = device.import_backing(null.as_fd(), 4096).unwrap();
    device.device().reuse(first.raw() as u64);
    let second = device.import_fabric(&FabricHandle([7; 64]), 4096).unwrap();
    let third = Backing::from_raw(first.raw(), 4096);
    call!(device.destroy_backing(first)).unwrap();
    call!(device.export_fabric(&second)).unwrap();
    call!(device.destroy_backing(second)).unwrap();
    wrong!(device.destroy_backing(third) => EndedTwice, "this backing was already destroyed", "import_");
}

#[test]
fn a_device_without_groups_says_so() {
    let device = Checked::new(Fake::bare());
    for feature in Feature::ALL {
        assert_eq!(device.missing(feature), device.device().missing(feature));
        assert!(device.missing(feature).is_some());
    }
    assert_eq!(device.granularity().minimum, 1);
    assert!(device.shares(Sharing::Private).is_err());
    assert!(device.reserve(4096, None).is_err());
    let address = DevicePtr::new(0x1000).unwrap();
    call!(device.fill(address, 0, 1, DEFAULT)).unwrap_err();
    assert!(device.misuses().is_empty());
}
