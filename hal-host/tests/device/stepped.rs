//! Stepped mode: every interleaving can be replayed.

use std::collections::HashSet;

use cachette_hal::{Device, ErrorKind, Progress, StreamRef};
use cachette_hal_host::{StepRecord, WorkKind};

use crate::rig::{MIB, Rig, rig, stepped, threaded};

/// Three streams of five fills each, the third waiting for the first half way.
fn three_streams(device: &Rig) -> Vec<StepRecord> {
    let memory = device.allocate(MIB).unwrap();
    let streams: Vec<_> = (0..3).map(|_| device.stream()).collect();
    let event = device.event();
    for round in 0..5 {
        for stream in &streams {
            device.fill(memory, round, MIB, stream.borrow()).unwrap();
        }
        if round == 2 {
            device.record(&event, streams[0].borrow()).unwrap();
            device.stream_wait(streams[2].borrow(), &event).unwrap();
        }
    }
    device.run_until_idle();
    device.interleaving()
}

#[test]
fn the_same_seed_gives_the_same_interleaving() {
    let first = three_streams(&rig(stepped(42)));
    assert_eq!(first.len(), 17);
    assert_eq!(first, three_streams(&rig(stepped(42))));
    for (i, step) in first.iter().enumerate() {
        assert_eq!(step.sequence, i as u64);
    }
}

#[test]
fn other_seeds_give_other_interleavings() {
    let all: HashSet<_> = (0..20).map(|seed| three_streams(&rig(stepped(seed)))).collect();
    assert!(all.len() > 15, "{} of 20 differ", all.len());
}

#[test]
fn a_wait_never_runs_before_its_record() {
    for seed in 0..50 {
        let log = three_streams(&rig(stepped(seed)));
        let place = |kind| log.iter().position(|step| step.work == kind).unwrap();
        assert!(place(WorkKind::Record) < place(WorkKind::Wait), "seed {seed}");
    }
}

#[test]
fn nothing_runs_before_a_step_and_one_thing_in_each() {
    let device = rig(stepped(1));
    let memory = device.allocate(8).unwrap();
    let (stream, event) = (device.stream(), device.event());
    device.fill(memory, 7, 8, stream.borrow()).unwrap();
    device.record(&event, stream.borrow()).unwrap();
    assert_eq!(device.poll(&event), Ok(Progress::Pending));
    assert_eq!(device.step().unwrap().work, WorkKind::Fill);
    assert_eq!(device.poll(&event), Ok(Progress::Pending));
    let step = device.step().unwrap();
    assert_eq!((step.work, step.stream), (WorkKind::Record, stream.borrow()));
    assert_eq!(device.poll(&event), Ok(Progress::Done));
    assert_eq!(device.step(), None);
    assert_eq!(device.read(memory, 8), [7; 8]);
}

#[test]
fn a_call_that_blocks_takes_the_steps_it_needs() {
    let device = rig(stepped(1));
    let memory = device.allocate(8).unwrap();
    let (stream, event) = (device.stream(), device.event());
    device.fill(memory, 7, 8, stream.borrow()).unwrap();
    device.record(&event, stream.borrow()).unwrap();
    device.wait(&event).unwrap();
    assert_eq!(device.interleaving().len(), 2);
    device.fill(memory, 8, 8, stream.borrow()).unwrap();
    device.synchronize_device().unwrap();
    assert_eq!(device.interleaving().len(), 3);
    device.fill(memory, 9, 8, stream.borrow()).unwrap();
    device.free(memory).unwrap();
    assert_eq!(device.interleaving().len(), 4);
}

#[test]
fn a_wait_that_nothing_can_end_is_an_error_and_changes_nothing() {
    let device = rig(stepped(1));
    let memory = device.allocate(8).unwrap();
    let (stream, event) = (device.stream(), device.event());
    let hold = device.hold(stream.borrow()).unwrap();
    device.record(&event, stream.borrow()).unwrap();
    let error = device.wait(&event).unwrap_err();
    assert_eq!((error.kind(), error.call()), (ErrorKind::Other, "wait"));
    assert_eq!(device.free(memory).unwrap_err().kind(), ErrorKind::Other);
    hold.release();
    device.wait(&event).unwrap();
    device.free(memory).unwrap();
}

#[test]
fn several_threads_may_take_steps() {
    let device = rig(stepped(3));
    let streams: Vec<_> = (0..4).map(|_| device.stream()).collect();
    let memory = device.allocate(4 * MIB).unwrap();
    std::thread::scope(|scope| {
        for (i, stream) in (0_u8..).zip(&streams) {
            let device = &device;
            let at = memory.add(u64::from(i) * MIB);
            scope.spawn(move || {
                for _ in 0..50 {
                    device.fill(at, i + 1, MIB / 64, stream.borrow()).unwrap();
                    device.synchronize(stream.borrow()).unwrap();
                }
            });
        }
    });
    for i in 0..4_u8 {
        assert_eq!(device.read(memory.add(u64::from(i) * MIB), 16), [i + 1; 16]);
    }
    let fills = |step: &&StepRecord| step.work == WorkKind::Fill;
    assert_eq!(device.interleaving().iter().filter(fills).count(), 200);
}

#[test]
fn with_threads_there_is_nothing_to_step() {
    let device = rig(threaded());
    let memory = device.allocate(8).unwrap();
    device.fill(memory, 1, 8, StreamRef::DEFAULT).unwrap();
    assert_eq!(device.step(), None);
    device.synchronize_device().unwrap();
    assert_eq!(device.interleaving(), []);
}
