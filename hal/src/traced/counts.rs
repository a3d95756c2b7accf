//! An observer that counts.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::Call;

use super::{DriverCall, Observer};

/// The counters of one kind of call.
#[derive(Debug, Default)]
struct Row {
    calls: AtomicU64,
    failures: AtomicU64,
    nanoseconds: AtomicU64,
}

/// An observer that counts calls and adds up their time, per kind of call.
///
/// Its `Display` is a table of the calls that were made.
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

    /// Returns the total time of all calls of one kind.
    #[must_use]
    pub fn time_of(&self, call: Call) -> Duration {
        Duration::from_nanos(read(&self.row(call).nanoseconds))
    }

    /// Returns the number of calls.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.rows.iter().map(|row| read(&row.calls)).sum()
    }

    /// Returns the total time of all calls.
    #[must_use]
    pub fn total_time(&self) -> Duration {
        let nanoseconds = self.rows.iter().map(|row| read(&row.nanoseconds)).sum();
        Duration::from_nanos(nanoseconds)
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
        let nanoseconds = u64::try_from(call.took.as_nanos()).unwrap_or(u64::MAX);
        // Relaxed: the counters are independent; a reader that compares them joins the threads first.
        row.calls.fetch_add(1, Ordering::Relaxed);
        row.failures.fetch_add(u64::from(call.outcome.is_err()), Ordering::Relaxed);
        row.nanoseconds.fetch_add(nanoseconds, Ordering::Relaxed);
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:<22}{:>10}{:>10}{:>14}", "call", "count", "failed", "total µs")?;
        for (call, row) in Call::ALL.iter().zip(&self.rows) {
            let calls = read(&row.calls);
            if calls > 0 {
                let (failed, took) = (read(&row.failures), self.time_of(*call).as_micros());
                writeln!(f, "{:<22}{calls:>10}{failed:>10}{took:>14}", call.name())?;
            }
        }
        let failed: u64 = self.rows.iter().map(|row| read(&row.failures)).sum();
        let (calls, took) = (self.total(), self.total_time().as_micros());
        write!(f, "{:<22}{calls:>10}{failed:>10}{took:>14}", "all")
    }
}

fn read(figure: &AtomicU64) -> u64 {
    // Relaxed: as in `Observer::call` above, which writes it.
    figure.load(Ordering::Relaxed)
}
