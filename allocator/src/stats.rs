//! Statistics: each heap counts, a read adds the counters up, and peaks are exact.

#![forbid(unsafe_code)]

mod counters;
mod peaks;
mod report;

pub(crate) use counters::{Counted, Counters, Row};
pub(crate) use peaks::{Measure, PeakTracker};
pub use report::{Stat, StatArray, Stats};
