//! Captures: what is recorded, what is forbidden, and what a replay does.

use std::thread;

use cachette_hal::{Capture, CaptureMode, CaptureNode, CaptureStatus, Device, ErrorKind, Result, StreamRef};

use crate::rig::{MIB, Rig, rig, stepped, threaded};

fn kind<T: std::fmt::Debug>(result: Result<T>) -> ErrorKind {
    result.unwrap_err().kind()
}

#[test]
fn two_joined_streams_replay_in_an_order_their_events_permit() {
    for seed in 0..40 {
        let device = rig(stepped(seed));
        let memory = device.allocate(64).unwrap();
        let (one, two) = (device.stream(), device.stream());
        let (fork, join) = (device.event(), device.event());
        device.begin_capture(one.borrow(), CaptureMode::Global).unwrap();
        device.fill(memory, 1, 64, one.borrow()).unwrap();
        device.record(&fork, one.borrow()).unwrap();
        device.stream_wait(two.borrow(), &fork).unwrap();
        device.fill(memory, 2, 16, two.borrow()).unwrap();
        device.fill(memory.add(16), 3, 16, one.borrow()).unwrap();
        device.record(&join, two.borrow()).unwrap();
        device.stream_wait(one.borrow(), &join).unwrap();
        device.copy(memory.add(32), memory, 32, one.borrow()).unwrap();
        let graph = device.end_capture(one.borrow()).unwrap();
        assert_eq!(device.capture_status(two.borrow()), CaptureStatus::Idle);
        assert_eq!(device.read(memory, 64), [0; 64], "nothing ran");

        device.launch(&graph, two.borrow()).unwrap();
        device.destroy_graph(graph).unwrap();
        device.synchronize(two.borrow()).unwrap();
        let expected = [[2; 16], [3; 16], [2; 16], [3; 16]].concat();
        assert_eq!(device.read(memory, 64), expected, "seed {seed}");
    }
}

#[test]
fn a_graph_can_hold_a_graph_and_run_again() {
    let device = rig(threaded());
    let memory = device.allocate(32).unwrap();
    let stream = device.stream();
    let stream = stream.borrow();
    device.fill(memory, 1, 8, stream).unwrap();
    device.begin_capture(stream, CaptureMode::Relaxed).unwrap();
    device.copy(memory.add(8), memory, 8, stream).unwrap();
    let inner = device.end_capture(stream).unwrap();
    device.begin_capture(stream, CaptureMode::Relaxed).unwrap();
    device.launch(&inner, stream).unwrap();
    device.copy(memory.add(16), memory.add(8), 8, stream).unwrap();
    let outer = device.end_capture(stream).unwrap();
    device.destroy_graph(inner).unwrap();
    for byte in [1, 9] {
        device.fill(memory, byte, 8, stream).unwrap();
        device.launch(&outer, stream).unwrap();
        assert_eq!(device.read_on(memory.add(16), 8, stream).unwrap(), [byte; 8]);
    }
}

/// What an allocation meets in a thread of this mode, while `stream` is captured.
fn allocate_in(device: &Rig, mode: CaptureMode) -> Result<()> {
    let before = device.exchange_capture_mode(mode)?;
    let answer = device.allocate(8).and_then(|memory| device.free(memory));
    assert_eq!(device.exchange_capture_mode(before)?, mode);
    answer
}

#[test]
fn who_may_allocate_depends_on_both_modes() {
    use CaptureMode::{Global, Relaxed, ThreadLocal};
    // The capture's mode, the thread's mode, and whether the beginner's and another thread may.
    let table = [
        (Global, Global, false, false),
        (Global, ThreadLocal, false, true),
        (Global, Relaxed, true, true),
        (ThreadLocal, Global, false, true),
        (ThreadLocal, ThreadLocal, false, true),
        (ThreadLocal, Relaxed, true, true),
        (Relaxed, Global, true, true),
        (Relaxed, ThreadLocal, true, true),
        (Relaxed, Relaxed, true, true),
    ];
    for (capture, mode, own, other) in table {
        for (elsewhere, permitted) in [(false, own), (true, other)] {
            let device = rig(threaded());
            let stream = device.stream();
            device.begin_capture(stream.borrow(), capture).unwrap();
            let answer = if elsewhere {
                thread::scope(|scope| scope.spawn(|| allocate_in(&device, mode)).join().unwrap())
            } else {
                allocate_in(&device, mode)
            };
            let text = format!("{capture:?}, {mode:?}, elsewhere: {elsewhere}");
            assert_eq!(answer.is_ok(), permitted, "{text}");
            let ended = device.end_capture(stream.borrow());
            if permitted {
                device.destroy_graph(ended.unwrap()).unwrap();
            } else {
                assert_eq!(kind(answer), ErrorKind::CaptureForbids, "{text}");
                assert_eq!(kind(ended), ErrorKind::CaptureBroken, "{text}");
            }
            device.allocate(8).unwrap();
        }
    }
}

#[test]
fn what_cannot_be_captured_breaks_the_capture() {
    type Attempt = fn(&Rig, StreamRef) -> Result<()>;
    let attempts: [(&str, Attempt); 4] = [
        ("synchronize", |device, stream| device.synchronize(stream)),
        ("call_host", |device, stream| device.call_host(stream, || {})),
        ("allocate_on", |device, stream| device.allocate_on(8, stream).map(drop)),
        ("hold", |device, stream| device.hold(stream).map(drop)),
    ];
    for (name, attempt) in attempts {
        let device = rig(threaded());
        let stream = device.stream();
        let stream = stream.borrow();
        device.begin_capture(stream, CaptureMode::Relaxed).unwrap();
        assert_eq!(kind(attempt(&device, stream)), ErrorKind::CaptureForbids, "{name}");
        assert_eq!(device.capture_status(stream), CaptureStatus::Broken, "{name}");
        assert_eq!(kind(device.end_capture(stream)), ErrorKind::CaptureBroken, "{name}");
        assert_eq!(device.capture_status(stream), CaptureStatus::Idle, "{name}");
        attempt(&device, stream).unwrap();
    }
}

#[test]
fn an_event_of_a_capture_can_neither_be_polled_nor_waited_for() {
    let device = rig(threaded());
    let (stream, event) = (device.stream(), device.event());
    let stream = stream.borrow();
    for ask in [|d: &Rig, e: &_| d.poll(e).map(drop), |d: &Rig, e: &_| d.wait(e)] {
        device.begin_capture(stream, CaptureMode::Relaxed).unwrap();
        device.record(&event, stream).unwrap();
        assert_eq!(kind(ask(&device, &event)), ErrorKind::CaptureForbids);
        assert_eq!(kind(device.end_capture(stream)), ErrorKind::CaptureBroken);
    }
    device.record(&event, stream).unwrap();
    device.wait(&event).unwrap();
}

#[test]
fn captures_do_not_mix() {
    let device = rig(threaded());
    let (one, two) = (device.stream(), device.stream());
    let (before, inside) = (device.event(), device.event());
    device.record(&before, two.borrow()).unwrap();
    device.begin_capture(one.borrow(), CaptureMode::Relaxed).unwrap();
    let outside = device.stream_wait(one.borrow(), &before);
    assert_eq!(kind(outside), ErrorKind::CaptureForbids, "work from before the capture");
    assert_eq!(kind(device.end_capture(one.borrow())), ErrorKind::CaptureBroken);

    device.begin_capture(one.borrow(), CaptureMode::Relaxed).unwrap();
    device.begin_capture(two.borrow(), CaptureMode::Relaxed).unwrap();
    device.record(&inside, one.borrow()).unwrap();
    let merged = device.stream_wait(two.borrow(), &inside);
    assert_eq!(kind(merged), ErrorKind::CaptureForbids, "another capture");
    for stream in [&one, &two] {
        assert_eq!(kind(device.end_capture(stream.borrow())), ErrorKind::CaptureBroken);
    }

    device.begin_capture(one.borrow(), CaptureMode::Relaxed).unwrap();
    device.record(&inside, one.borrow()).unwrap();
    let default = device.stream_wait(StreamRef::DEFAULT, &inside);
    assert_eq!(kind(default), ErrorKind::CaptureForbids, "the default stream");
    assert_eq!(kind(device.end_capture(one.borrow())), ErrorKind::CaptureBroken);
    let over = device.stream_wait(two.borrow(), &inside);
    assert_eq!(kind(over), ErrorKind::CaptureForbids, "a capture that is over");
}

#[test]
fn destroying_the_stream_of_a_capture_ends_it() {
    let device = rig(threaded());
    let (one, two, event) = (device.stream(), device.stream(), device.event());
    device.begin_capture(one.borrow(), CaptureMode::Global).unwrap();
    device.record(&event, one.borrow()).unwrap();
    device.stream_wait(two.borrow(), &event).unwrap();
    device.destroy_stream(one).unwrap();
    assert_eq!(device.capture_status(two.borrow()), CaptureStatus::Idle);
    device.allocate(MIB).unwrap();
}

#[test]
fn nodes_are_unknown_after_their_capture() {
    let device = rig(threaded());
    let (stream, memory) = (device.stream(), device.allocate(8).unwrap());
    device.begin_capture(stream.borrow(), CaptureMode::Global).unwrap();
    device.fill(memory, 1, 8, stream.borrow()).unwrap();
    let node = device.frontier(stream.borrow())[0];
    let graph = device.end_capture(stream.borrow()).unwrap();
    for node in [node, CaptureNode::from_raw(0), CaptureNode::from_raw(usize::MAX)] {
        assert_eq!(kind(device.dependencies(node)), ErrorKind::InvalidHandle);
    }
    device.destroy_graph(graph).unwrap();
    assert_eq!(device.live().graphs, 0);
}
