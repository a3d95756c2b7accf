//! Misuse of streams, events, graphs and backings.

use cachette_hal::{
    Backing, Call, Capture, CaptureMode, Device, DevicePtr, Event, Graph, HostCalls, Sharing, Stream, StreamOrdered,
    StreamRef, Transfer, VirtualMemory,
};
use cachette_hal_testing::checked::{MisuseKind, Resource};

use super::{caught, subject};
use crate::fake::call;

#[test]
fn handles_that_are_used_well_pass() {
    let device = subject();
    let stream = device.create_stream().unwrap();
    let event = device.create_event().unwrap();
    call!(device.record(&event, stream.borrow())).unwrap();
    call!(device.record(&event, StreamRef::DEFAULT)).unwrap();
    call!(device.poll(&event)).unwrap();
    call!(device.begin_capture(stream.borrow(), CaptureMode::Global)).unwrap();
    let graph = call!(device.end_capture(stream.borrow())).unwrap();
    call!(device.launch(&graph, stream.borrow())).unwrap();
    call!(device.destroy_graph(graph)).unwrap();
    call!(device.destroy_event(event)).unwrap();
    call!(device.destroy_stream(stream)).unwrap();
    assert!(device.finish().is_ok());
}

#[test]
fn a_stream_destroyed_twice_is_caught() {
    let device = subject();
    let stream = device.create_stream().unwrap();
    let raw = stream.raw();
    call!(device.destroy_stream(stream)).unwrap();
    let parts = [
        "destroy_stream(0x100000): this stream was already destroyed",
        "it came from create_stream (call 1, thread ",
        "it was destroyed by destroy_stream (call 2, thread ",
    ];
    let misuse =
        caught(&device, MisuseKind::EndedTwice, &parts, || call!(device.destroy_stream(Stream::from_raw(raw))));
    assert_eq!(misuse.subject, raw as u64);
    assert_eq!(misuse.resource, Resource::Stream);
}

#[test]
fn an_event_a_graph_and_a_backing_destroyed_twice_are_caught() {
    let device = subject();
    let event = device.create_event().unwrap();
    let again = Event::from_raw(event.raw());
    call!(device.destroy_event(event)).unwrap();
    let parts = ["this event was already destroyed", "create_event"];
    caught(&device, MisuseKind::EndedTwice, &parts, || call!(device.destroy_event(again)));

    let stream = device.create_stream().unwrap();
    call!(device.begin_capture(stream.borrow(), CaptureMode::Global)).unwrap();
    let graph = call!(device.end_capture(stream.borrow())).unwrap();
    let again = Graph::from_raw(graph.raw());
    call!(device.destroy_graph(graph)).unwrap();
    let parts = ["this graph was already destroyed", "end_capture"];
    caught(&device, MisuseKind::EndedTwice, &parts, || call!(device.destroy_graph(again)));

    let backing = device.create_backing(4096, Sharing::Private, false).unwrap();
    let again = Backing::from_raw(backing.raw(), 4096);
    call!(device.destroy_backing(backing)).unwrap();
    let parts = ["this backing was already destroyed", "create_backing"];
    caught(&device, MisuseKind::EndedTwice, &parts, || call!(device.destroy_backing(again)));
}

#[test]
fn a_foreign_handle_differs_from_an_ended_one() {
    let device = subject();
    let parts = ["destroy_event(0x77): this event was never seen here", "foreign"];
    let misuse = caught(&device, MisuseKind::Foreign, &parts, || call!(device.destroy_event(Event::from_raw(0x77))));
    assert!(misuse.origin.is_none());
    let parts = ["synchronize(0x77): this stream was never seen here"];
    caught(&device, MisuseKind::Foreign, &parts, || call!(device.synchronize(StreamRef::from_raw(0x77))));
    let parts = ["destroy_graph(0x77): this graph was never seen here"];
    caught(&device, MisuseKind::Foreign, &parts, || call!(device.destroy_graph(Graph::from_raw(0x77))));
    let parts = ["export_backing(0x77): this backing was never seen here"];
    caught(&device, MisuseKind::Foreign, &parts, || call!(device.export_backing(&Backing::from_raw(0x77, 4096))));
}

#[test]
fn every_use_of_a_destroyed_stream_is_caught() {
    let device = subject();
    let stream = device.create_stream().unwrap();
    let gone = stream.borrow();
    call!(device.destroy_stream(stream)).unwrap();
    let event = device.create_event().unwrap();
    let ptr = device.allocate(4096).unwrap();
    let mut byte = 0_u8;

    let wrong = |call: Call, run: &mut dyn FnMut() -> cachette_hal::Result<()>| {
        let what = format!("{call}(0x100000): this stream is used after it was destroyed");
        let parts = [what.as_str(), "create_stream (call 1", "destroy_stream (call 2"];
        let misuse = caught(&device, MisuseKind::UsedAfterEnd, &parts, run);
        assert_eq!(misuse.call, call);
    };
    wrong(Call::Synchronize, &mut || call!(device.synchronize(gone)));
    wrong(Call::Record, &mut || call!(device.record(&event, gone)));
    wrong(Call::StreamWait, &mut || call!(device.stream_wait(gone, &event)));
    wrong(Call::AllocateOn, &mut || call!(device.allocate_on(1, gone)).map(|_| ()));
    wrong(Call::FreeOn, &mut || call!(device.free_on(ptr, gone)));
    wrong(Call::CaptureStatus, &mut || call!(device.capture_status(gone)).map(|_| ()));
    wrong(Call::BeginCapture, &mut || call!(device.begin_capture(gone, CaptureMode::Global)));
    wrong(Call::EndCapture, &mut || call!(device.end_capture(gone)).map(|_| ()));
    wrong(Call::Fill, &mut || call!(device.fill(ptr, 0, 16, gone)));
    wrong(Call::Copy, &mut || call!(device.copy(ptr, ptr.add(64), 16, gone)));
    wrong(Call::Upload, &mut || call!(device.upload(ptr, &raw const byte, 1, gone)));
    wrong(Call::Download, &mut || call!(device.download(&raw mut byte, ptr, 1, gone)));
    wrong(Call::CallHost, &mut || call!(device.call_host(gone, Box::new(|| ()))));
}

#[test]
fn every_use_of_a_destroyed_event_graph_or_backing_is_caught() {
    let device = subject();
    let event = device.create_event().unwrap();
    let gone = Event::from_raw(event.raw());
    call!(device.destroy_event(event)).unwrap();
    let default = StreamRef::DEFAULT;
    let ended = MisuseKind::UsedAfterEnd;
    let parts = ["this event is used after it was destroyed", "create_event"];
    caught(&device, ended, &parts, || call!(device.record(&gone, default)));
    caught(&device, ended, &parts, || call!(device.poll(&gone)));
    caught(&device, ended, &parts, || call!(device.wait(&gone)));
    caught(&device, ended, &parts, || call!(device.stream_wait(default, &gone)));

    let stream = device.create_stream().unwrap();
    call!(device.begin_capture(stream.borrow(), CaptureMode::Global)).unwrap();
    let graph = call!(device.end_capture(stream.borrow())).unwrap();
    let gone = Graph::from_raw(graph.raw());
    call!(device.destroy_graph(graph)).unwrap();
    let parts = ["this graph is used after it was destroyed", "end_capture"];
    caught(&device, ended, &parts, || call!(device.launch(&gone, default)));

    let backing = device.create_backing(4096, Sharing::Private, false).unwrap();
    let gone = Backing::from_raw(backing.raw(), 4096);
    call!(device.destroy_backing(backing)).unwrap();
    let at = device.reserve(4096, None).unwrap();
    let parts = ["this backing is used after it was destroyed", "create_backing"];
    caught(&device, ended, &parts, || call!(device.map(at, &gone)));
    caught(&device, ended, &parts, || call!(device.export_backing(&gone)));
}

#[test]
fn an_adopted_stream_is_used_but_not_destroyed() {
    let device = subject();
    let elsewhere = StreamRef::from_raw(0x5000);
    device.adopt_stream(elsewhere);
    call!(device.synchronize(elsewhere)).unwrap();
    let parts = ["destroy_stream(0x5000): this stream was only adopted"];
    caught(&device, MisuseKind::WrongCall, &parts, || call!(device.destroy_stream(Stream::from_raw(0x5000))));
    caught(&device, MisuseKind::WrongCall, &["only adopted"], || call!(device.destroy_stream(Stream::from_raw(0))));
    assert!(device.leaks().is_empty());
}

#[test]
fn a_capture_that_was_not_begun_cannot_be_ended() {
    let device = subject();
    let stream = device.create_stream().unwrap();
    let parts = ["end_capture(", "no capture was begun on this stream", "create_stream"];
    caught(&device, MisuseKind::NotCaptured, &parts, || call!(device.end_capture(stream.borrow())));
    // A capture is over even where its end fails, so a second end has nothing to end.
    call!(device.begin_capture(stream.borrow(), CaptureMode::Relaxed)).unwrap();
    device.device().fail_next();
    call!(device.end_capture(stream.borrow())).unwrap_err();
    caught(&device, MisuseKind::NotCaptured, &parts, || call!(device.end_capture(stream.borrow())));
}

#[test]
fn a_stream_that_is_captured_cannot_be_destroyed() {
    let device = subject();
    let stream = device.create_stream().unwrap();
    call!(device.begin_capture(stream.borrow(), CaptureMode::Global)).unwrap();
    let parts = [
        "destroy_stream(0x100000): this stream is still being captured",
        "the capture came from begin_capture (call 2",
    ];
    caught(&device, MisuseKind::StillCaptured, &parts, || call!(device.destroy_stream(Stream::from_raw(stream.raw()))));
    let graph = call!(device.end_capture(stream.borrow())).unwrap();
    call!(device.destroy_stream(stream)).unwrap();
    call!(device.destroy_graph(graph)).unwrap();
}

#[test]
fn a_backing_imported_twice_is_destroyed_twice() {
    let device = subject();
    let null = std::fs::File::open("/dev/null").unwrap();
    let fd = std::os::fd::AsFd::as_fd(&null);
    let first = device.import_backing(fd, 4096).unwrap();
    device.device().reuse(first.raw() as u64);
    let second = device.import_backing(fd, 4096).unwrap();
    let third = Backing::from_raw(first.raw(), 4096);
    call!(device.destroy_backing(first)).unwrap();
    call!(device.export_backing(&second)).unwrap();
    call!(device.destroy_backing(second)).unwrap();
    let parts = ["this backing was already destroyed", "import_backing"];
    caught(&device, MisuseKind::EndedTwice, &parts, || call!(device.destroy_backing(third)));
}

#[test]
fn a_backing_of_the_fabric_is_known_like_any_other() {
    let device = subject();
    let name = cachette_hal::FabricHandle([7; 64]);
    let backing = device.import_fabric(&name, 4096).unwrap();
    assert_eq!(call!(device.export_fabric(&backing)), Ok(name));
    let gone = Backing::from_raw(backing.raw(), 4096);
    call!(device.destroy_backing(backing)).unwrap();
    let parts = ["used after it was destroyed", "import_fabric"];
    caught(&device, MisuseKind::UsedAfterEnd, &parts, || call!(device.export_fabric(&gone)));
}

#[test]
fn a_device_without_groups_says_so() {
    let device = cachette_hal_testing::Checked::new(crate::fake::Fake::bare());
    for feature in cachette_hal::Feature::ALL {
        assert_eq!(device.missing(feature), device.device().missing(feature));
        assert!(device.missing(feature).is_some());
    }
    assert_eq!(device.granularity().minimum, 1);
    assert!(device.shares(Sharing::Private).is_err());
    assert!(device.reserve(4096, None).is_err());
    let address = DevicePtr::new(0x1000).unwrap();
    call!(device.fill(address, 0, 1, StreamRef::DEFAULT)).unwrap_err();
    assert!(device.misuses().is_empty());
}
