//! An observer that counts.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::Call;

use super::{DriverCall, Observer};

#[derive(Debug, Default)]
struct Row {
    calls: AtomicU64,
    failures: AtomicU64,
}

/// An observer that counts calls, per kind of call. Its `Display` lists those that were made.
#[derive(Debug)]
pub struct Counts {
    /// One for each of [`Call::ALL`], in that order.
    rows: Box<[Row]>,
}

impl Counts {
    /// Creates counters at zero.
    #[must_use]
    pub fn new() -> Self {
        Self { rows: Call::ALL.iter().map(|_| Row::default()).collect() }
    }

    /// Returns the number of calls of one kind.
    #[must_use]
    pub fn of(&self, call: Call) -> u64 {
        read(&self.row(call).calls)
    }

    /// Returns the number of failed calls of one kind.
    #[must_use]
    pub fn failures_of(&self, call: Call) -> u64 {
        read(&self.row(call).failures)
    }

    /// Returns the number of calls.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.rows.iter().map(|row| read(&row.calls)).sum()
    }

    fn row(&self, call: Call) -> &Row {
        &self.rows[call as usize]
    }
}

impl Default for Counts {
    fn default() -> Self {
        Self::new()
    }
}

impl Observer for Counts {
    fn call(&self, call: &DriverCall) {
        let row = self.row(call.call);
        // Relaxed: the counters are independent; a reader that compares them joins the threads first.
        row.calls.fetch_add(1, Ordering::Relaxed);
        row.failures.fetch_add(u64::from(call.outcome.is_err()), Ordering::Relaxed);
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut made = Call::ALL.iter().copied().filter(|call| self.of(*call) > 0);
        made.try_for_each(|call| writeln!(f, "{call}: {}, {} failed", self.of(call), self.failures_of(call)))
    }
}

fn read(figure: &AtomicU64) -> u64 {
    // Relaxed: as in `Observer::call` above, which writes it.
    figure.load(Ordering::Relaxed)
}
