//! What the driver was asked, in a form in which two runs can be compared.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use cachette::hal::{Call, ErrorKind};
use cachette_hal::traced::{DriverCall, Observer};

/// One call. Addresses and handles are counted in the order of their first use, since the system chooses them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    call: Call,
    /// Which range of addresses or which handle, and where in it.
    subject: (usize, u64),
    bytes: u64,
    stream: usize,
    failed: Option<ErrorKind>,
}

/// Listens to a device.
#[derive(Debug)]
pub(crate) struct CallLog {
    /// Failed calls, by their kind.
    failed: Vec<AtomicU64>,
    written: Option<Mutex<Written>>,
}

#[derive(Debug, Default)]
struct Written {
    lines: Vec<Line>,
    /// Ranges by their first address: bytes, and a number.
    ranges: BTreeMap<u64, (u64, usize)>,
    handles: HashMap<u64, usize>,
}

impl CallLog {
    /// Counts failures, and writes every call down if `writes`.
    pub(crate) fn new(writes: bool) -> Self {
        Self { failed: Call::ALL.iter().map(|_| AtomicU64::new(0)).collect(), written: writes.then(Mutex::default) }
    }

    /// How many calls of a kind failed.
    pub(crate) fn failed(&self, call: Call) -> u64 {
        self.failed[call as usize].load(Relaxed)
    }

    /// Everything that was written down.
    pub(crate) fn lines(&self) -> Vec<Line> {
        let written = self.written.as_ref();
        written.map_or_else(Vec::new, |written| {
            let mut written = written.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut written.lines)
        })
    }
}

impl Observer for CallLog {
    fn call(&self, call: &DriverCall) {
        if call.outcome.is_err() {
            self.failed[call.call as usize].fetch_add(1, Relaxed);
        }
        if let Some(written) = &self.written {
            let mut written = written.lock().unwrap_or_else(PoisonError::into_inner);
            written.write(call);
        }
    }
}

impl Written {
    fn write(&mut self, call: &DriverCall) {
        let makes_range = matches!(call.call, Call::Allocate | Call::Reserve | Call::AllocatePinned | Call::Register);
        if makes_range && call.outcome.is_ok() {
            self.ranges.insert(call.subject, (call.bytes, self.lines.len()));
        }
        // Host memory that could not be registered has no name: the process chose its address, and may choose it again.
        let is_unnamed = call.call == Call::Register && call.outcome.is_err();
        let line = Line {
            call: call.call,
            subject: if is_unnamed { (0, 0) } else { self.place(call.subject) },
            bytes: call.bytes,
            stream: call.stream.map_or(0, |stream| self.handle(stream.raw() as u64)),
            failed: call.outcome.err().map(|error| error.kind()),
        };
        self.lines.push(line);
        let ends_range = matches!(call.call, Call::Free | Call::Release | Call::FreePinned | Call::Unregister);
        if ends_range && call.outcome.is_ok() {
            self.ranges.remove(&call.subject);
        }
    }

    fn place(&mut self, subject: u64) -> (usize, u64) {
        match self.ranges.range(..=subject).next_back() {
            Some((start, (bytes, number))) if subject - start < *bytes => (*number, subject - start),
            _ => (self.handle(subject), 0),
        }
    }

    fn handle(&mut self, handle: u64) -> usize {
        let next = self.handles.len();
        *self.handles.entry(handle).or_insert(next)
    }
}
