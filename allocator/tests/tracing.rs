//! The events and spans that a subscriber of the crate `tracing` receives.
//!
//! The test is a separate process. If another thread reaches a call site while the subscriber is being set, `tracing`
//! may cache that the call site has no subscriber.
#![cfg(feature = "tracing")]

#[path = "behaviour/fixture.rs"]
#[expect(dead_code, reason = "most of it serves other tests")]
mod fixture;

use std::fmt::{self, Write};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use fixture::threads::PATIENCE;
use fixture::{MIB, TestAllocator};

/// A subscriber that records its events.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    /// Whether it has received `line`.
    fn contains(&self, line: &str) -> bool {
        let lines = self.0.lock().expect("no test failed in it");
        lines.iter().any(|known| known == line)
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().expect("no test failed in it"))
    }
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if ["action", "bytes", "requested"].contains(&field.name()) {
            write!(self.0, "{value:?} ").expect("no test failed in it");
        }
    }
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "cachette"
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let name = span.metadata().name();
        self.0.lock().expect("no test failed in it").push(format!("span {name}"));
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        self.0.lock().expect("no test failed in it").push(line.0.trim().to_owned());
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[test]
fn segments_waits_and_exhaustion_are_told_and_hits_are_not() {
    let log = Log::default();
    let guard = tracing::subscriber::set_default(log.clone());
    let (test, [stream, side]) = TestAllocator::of(64 * MIB, "").with_streams();
    let memory = test.allocate(12 * MIB, &stream);
    assert_eq!(log.take(), ["\"segment_alloc\" 12582912"]);
    drop(memory);
    for _ in 0..10 {
        drop(test.allocate(12 * MIB, &stream));
    }
    assert_eq!(log.take(), Vec::<String>::new());
    let memory = test.allocate(12 * MIB, &stream);
    memory.record_stream(&side);
    drop(memory);
    assert!(test.allocator.allocate(99 * MIB, &stream).is_err());
    let told = log.take();
    assert!(told.iter().any(|line| line == "\"segment_free\" 12582912"), "{told:?}");
    assert_eq!(told.last().unwrap(), "\"oom\" 103809024");
    let memory = test.allocate(12 * MIB, &stream);
    let hold = test.hold(&side);
    memory.record_stream(&side);
    drop(memory);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let begun = Instant::now();
            while !log.contains("span wait") && begun.elapsed() < PATIENCE {
                std::thread::yield_now();
            }
            hold.release();
        });
        test.allocator.empty_cache().unwrap();
    });
    assert!(log.contains("span wait"));
    drop(guard);
}
