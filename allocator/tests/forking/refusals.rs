//! What requests, frees and drops do in a child.

use std::fmt::Debug;
use std::thread;

use cachette::hal::StreamRef;
use cachette::sleep::Contents;
use cachette::{Error, Snapshot};

use super::child::in_child;
use super::held::{BYTES, Held, allocate_raw};

/// The call was refused because of the fork.
fn refused<T: Debug>(answer: Result<T, Error>) {
    match answer {
        Err(Error::Forked) => {}
        other => panic!("{other:?} is no refusal"),
    }
}

/// Requests memory in every way, and makes the calls that libraries make at their end.
fn request(held: &Held) {
    let Held { allocator, stream, pool, .. } = held;
    refused(allocator.allocate(BYTES, stream));
    refused(allocator.allocate(3 << 20, stream));
    refused(allocate_raw(allocator, stream.handle()));
    refused(allocate_raw(allocator, StreamRef::from_raw(0x5000)));
    refused(allocator.allocate_buffer::<u8>(16, stream));
    refused(allocator.create_stream());
    refused(allocator.default_stream());
    refused(stream.record_event());
    refused(stream.wait(stream));
    refused(allocator.pinned().allocate(4096));
    refused(allocator.pinned().allocate_raw(4096));
    refused(pool.allocate(BYTES, stream));
    let inside = pool.enter_all();
    refused(allocator.allocate(BYTES, stream));
    refused(allocate_raw(allocator, stream.handle()));
    drop(inside);
    refused(held.growable.commit(BYTES..2 * BYTES));
    refused(held.growable.decommit(0..BYTES));
    refused(allocator.allocate_growable(BYTES, stream));
    refused(held.asleep.make_resident());
    refused(held.asleep.wake());
    refused(pool.sleep(Contents::Keep));
    refused(allocator.evict(1));
    refused(allocator.empty_cache());
    allocator.stop_history();
    assert_eq!(allocator.snapshot(), Snapshot::default());
    assert!(format!("{allocator:?}").contains("Allocator"));
}

/// Frees everything, in every way that there is.
pub(crate) fn free_everything(held: Held) {
    let Held { allocator, stream, .. } = &held;
    for address in [held.raw, held.uncached_raw, 0x1234] {
        assert_eq!(allocator.free_raw(address), Ok(()));
        assert_eq!(allocator.free_raw(address), Ok(()), "freed or not");
    }
    assert_eq!(allocator.pinned().free_raw(held.pinned_raw), Ok(()));
    drop(stream.clone());
    let Held {
        allocator,
        memory,
        used,
        uncached,
        pinned,
        capture,
        stream,
        pooled,
        resident,
        asleep,
        slept,
        growable,
        ..
    } = held;
    drop(allocator);
    drop((memory, pooled));
    assert_eq!(used.release_after(&[&stream]), Ok(()));
    drop((pinned, uncached, stream));
    drop((resident, asleep, slept, growable));
    assert_eq!(capture.end().unwrap_err(), Error::Forked);
}

/// Requests and frees in every way, and drops everything.
pub(crate) fn do_everything(held: Held) {
    request(&held);
    free_everything(held);
}

#[test]
fn requests_are_refused_and_the_parent_notices_nothing() {
    let mut held = Some(Held::new());
    let before = held.as_ref().map(|held| held.allocator.stats());
    in_child(|| do_everything(held.take().unwrap()));
    let held = held.unwrap();
    assert_eq!(Some(held.allocator.stats()), before);
    assert_eq!(held.buffer.read().unwrap(), [7; 16]);
    assert!(held.allocator.allocate(BYTES, &held.stream).is_ok());
    held.assert_returns_everything();
}

#[test]
fn dropping_everything_is_silent() {
    let mut held = Some(Held::new());
    in_child(|| drop(held.take()));
    in_child(|| {
        let held = held.take().unwrap();
        drop((held.memory, held.uncached, held.pinned));
    });
    held.unwrap().assert_returns_everything();
}

#[test]
fn threads_of_a_child_are_refused_too() {
    let mut held = Some(Held::new());
    in_child(|| {
        let held = held.take().unwrap();
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    request(&held);
                    assert_eq!(held.allocator.free_raw(held.raw), Ok(()));
                });
            }
        });
        let Held { memory, pinned, .. } = held;
        thread::spawn(|| drop((memory, pinned))).join().unwrap();
    });
    held.unwrap().assert_returns_everything();
}

#[test]
fn a_pool_entered_before_the_fork_refuses_and_can_be_left() {
    let held = Held::new();
    let inside = held.pool.enter(&held.stream).unwrap();
    drop(held.allocator.allocate(BYTES, &held.stream).unwrap());
    let mut inside = Some(inside);
    in_child(|| {
        refused(held.allocator.allocate(BYTES, &held.stream));
        drop(inside.take());
        refused(held.allocator.allocate(BYTES, &held.stream));
    });
    drop(inside);
    held.assert_returns_everything();
}

#[test]
fn a_child_of_a_child_is_refused_by_both() {
    let mut held = Some(Held::new());
    in_child(|| {
        let mut own = Some(Held::new());
        in_child(|| {
            do_everything(held.take().unwrap());
            do_everything(own.take().unwrap());
            Held::new().assert_returns_everything();
        });
        refused(held.take().unwrap().allocator.create_stream());
        own.unwrap().assert_returns_everything();
    });
    held.unwrap().assert_returns_everything();
}

#[test]
fn the_error_says_what_to_do() {
    let text = Error::Forked.to_string();
    assert!(text.contains("forked") && text.contains("spawn or exec"), "{text}");
}
