//! Host functions in stream order.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use cachette_hal::{Device, HostFunction};

use crate::rig::prelude::*;

cases! { host_calls:
    /// A function queued once runs once.
    a_function_runs_once(HostCalls) = |on| runs_once(on, &on.stream()?);
    /// Functions of one stream run one after the other, in the order they were queued.
    functions_of_one_stream_run_in_order(HostCalls);
    /// Functions of different streams all run.
    functions_of_several_streams_all_run(HostCalls);
    /// The default stream runs functions too.
    a_function_runs_in_the_default_stream(HostCalls) = |on| runs_once(on, &DefaultStream);
    /// A function sees what earlier work of its stream brought to the host.
    a_function_runs_after_earlier_work(HostCalls, Transfer, HostMemory);
    /// Queueing a function returns although an earlier one still runs.
    queueing_does_not_wait_for_the_function(HostCalls);
    /// What a function has captured is dropped once it has run.
    what_a_function_holds_is_dropped(HostCalls);
}

impl Subject {
    fn call_host(&self, stream: &impl AsStream, function: HostFunction) -> Verdict {
        let calls = self.device.host_calls()?;
        // SAFETY: 1. the stream lives.
        Ok(unsafe { calls.call_host(stream.handle(), function) }?)
    }
}

fn counting(count: &Arc<AtomicU32>) -> HostFunction {
    let count = Arc::clone(count);
    Box::new(move || {
        // Relaxed: the stream is synchronised before the count is read.
        count.fetch_add(1, Ordering::Relaxed);
    })
}

fn runs_once(on: &Subject, stream: &impl AsStream) -> Verdict {
    let count = Arc::default();
    on.call_host(stream, counting(&count))?;
    on.synchronize(stream)?;
    settle();
    ensure_eq!(count.load(Ordering::Relaxed), 1, "how often it ran")
}

fn functions_of_one_stream_run_in_order(on: &Subject) -> Verdict {
    let stream = on.stream()?;
    let order = Arc::new(Mutex::new(Vec::new()));
    for i in 0..64 {
        let order = Arc::clone(&order);
        let note = move || order.lock().unwrap_or_else(PoisonError::into_inner).push(i);
        on.call_host(&stream, Box::new(note))?;
    }
    stream.synchronize()?;
    let found = order.lock().unwrap_or_else(PoisonError::into_inner).clone();
    ensure_eq!(found, (0..64).collect::<Vec<_>>(), "the order")
}

fn functions_of_several_streams_all_run(on: &Subject) -> Verdict {
    let (streams, count) = ((0..8).map(|_| on.stream()).collect::<Result<Vec<_>, _>>()?, Arc::default());
    for _ in 0..4 {
        for stream in &streams {
            on.call_host(stream, counting(&count))?;
        }
    }
    for stream in &streams {
        stream.synchronize()?;
    }
    ensure_eq!(count.load(Ordering::Relaxed), 32, "how many ran")
}

fn a_function_runs_after_earlier_work(on: &Subject) -> Verdict {
    let area = on.filled(64 * KIB, 1)?;
    let host = Arc::new(on.pinned(64 << 10)?);
    write_pinned(&host, &vec![0; 64 << 10]);
    let stream = on.stream()?;
    let seen = Arc::new(AtomicU32::new(0));
    on.fill(area.span(), 7, &stream)?;
    on.download_into(&host, 0, area.span(), &stream)?;
    let (note, reads) = (Arc::clone(&seen), Arc::downgrade(&host));
    // A weak reference: the last owner must not be dropped where driver calls are forbidden.
    let look = move || {
        if let Some(host) = reads.upgrade() {
            note.store(u32::from(read_pinned_byte(&host, 65_535)), Ordering::Relaxed);
        }
    };
    on.call_host(&stream, Box::new(look))?;
    stream.synchronize()?;
    ensure_eq!(seen.load(Ordering::Relaxed), 7, "what the function saw")
}

fn queueing_does_not_wait_for_the_function(on: &Subject) -> Verdict {
    let (stream, event, count) = (on.stream()?, on.event()?, Arc::default());
    let gate = on.hold(&stream)?;
    for _ in 0..8 {
        on.call_host(&stream, counting(&count))?;
    }
    event.record(&stream)?;
    ensure_eq!(count.load(Ordering::Relaxed), 0, "how many ran behind the held one")?;
    ensure!(!event.poll()?.is_done(), "the stream was not held any more")?;
    gate.release_and_wait(&stream)?;
    ensure_eq!(count.load(Ordering::Relaxed), 8, "how many ran afterwards")
}

fn what_a_function_holds_is_dropped(on: &Subject) -> Verdict {
    let stream = on.stream()?;
    let held = Arc::new(());
    for _ in 0..4 {
        let holds = Arc::clone(&held);
        on.call_host(&stream, Box::new(move || drop(holds)))?;
    }
    stream.synchronize()?;
    settle();
    ensure_eq!(Arc::strong_count(&held), 1, "owners of what the functions held")
}
