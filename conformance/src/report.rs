//! The results of a run of the suite.

mod junit;
mod text;

use std::fmt;

use cachette_hal::{BackendInfo, DeviceInfo};
use serde::{Deserialize, Serialize};

/// The outcome of one case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Outcome {
    /// The promise was kept.
    Passed,
    /// The promise was broken.
    Failed {
        /// The reason, with the line.
        text: String,
    },
    /// The case could not run on the device.
    Skipped {
        /// The missing requirement.
        reason: String,
    },
    /// The driver breaks the promise, as listed.
    Deviates {
        /// The listed behaviour of the driver.
        reason: String,
        /// The observed behaviour.
        text: String,
    },
    /// The promise was kept although the driver is listed as breaking it.
    DeviationGone {
        /// The listed behaviour of the driver.
        reason: String,
    },
}

impl Outcome {
    /// Returns whether it fails the run.
    #[must_use]
    pub const fn is_failure(&self) -> bool {
        matches!(self, Self::Failed { .. } | Self::DeviationGone { .. })
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Passed => f.write_str("passed"),
            Self::Failed { text } => write!(f, "failed: {text}"),
            Self::Skipped { reason } => write!(f, "skipped: {reason}"),
            Self::Deviates { reason, .. } => write!(f, "deviates: {reason}"),
            Self::DeviationGone { reason } => {
                write!(f, "failed: no longer deviates: remove it ({reason})")
            }
        }
    }
}

/// The outcome of one case, and its duration.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct CaseReport {
    /// The case's full name.
    pub name: &'static str,
    /// The promise.
    pub about: &'static str,
    /// Its outcome.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// The duration in seconds.
    pub seconds: f64,
}

/// The tested backend and device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Header {
    /// The fixture's name.
    pub fixture: String,
    /// The backend's name.
    pub backend: String,
    /// The vendor of its devices.
    pub vendor: String,
    /// The driver's version.
    pub version: String,
    /// The library it was loaded from.
    pub library: String,
    /// Whether that library emulates the vendor's.
    pub emulated: bool,
    /// The device's name.
    pub device: String,
    /// The device's position.
    pub ordinal: u32,
}

impl Header {
    pub(crate) fn new(fixture: String, backend: &BackendInfo, device: &DeviceInfo) -> Self {
        Self {
            fixture,
            backend: backend.name.to_owned(),
            vendor: backend.vendor.to_string(),
            version: backend.version.to_string(),
            library: backend.library.clone(),
            emulated: backend.emulated,
            device: device.name.clone(),
            ordinal: device.ordinal.0,
        }
    }
}

/// The number of cases with each outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Totals {
    /// Promises kept.
    pub passed: usize,
    /// Promises broken.
    pub failed: usize,
    /// Cases that could not run.
    pub skipped: usize,
    /// Promises that this driver is known to break.
    pub deviates: usize,
    /// Promises kept although the driver is listed as breaking them.
    pub deviation_gone: usize,
}

/// The results of a run of the suite.
///
/// `Display` writes it as text, [`to_json`](Self::to_json) and [`to_junit`](Self::to_junit) for machines.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// The tested backend and device.
    pub header: Header,
    /// The number of cases with each outcome.
    pub totals: Totals,
    /// Every selected case, in the order of the suite.
    pub cases: Vec<CaseReport>,
}

impl Report {
    pub(crate) fn new(header: Header, cases: Vec<CaseReport>) -> Self {
        let mut totals = Totals::default();
        for case in &cases {
            *match case.outcome {
                Outcome::Passed => &mut totals.passed,
                Outcome::Failed { .. } => &mut totals.failed,
                Outcome::Skipped { .. } => &mut totals.skipped,
                Outcome::Deviates { .. } => &mut totals.deviates,
                Outcome::DeviationGone { .. } => &mut totals.deviation_gone,
            } += 1;
        }
        Self { header, totals, cases }
    }

    /// Returns whether no case failed.
    #[must_use]
    pub const fn is_success(&self) -> bool {
        self.totals.failed == 0 && self.totals.deviation_gone == 0
    }

    /// The cases that fail the run.
    pub fn failures(&self) -> impl Iterator<Item = &CaseReport> {
        self.cases.iter().filter(|case| case.outcome.is_failure())
    }

    /// The report as JSON.
    ///
    /// # Panics
    ///
    /// Never: every value in a report can be written as JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("a report holds only text and numbers")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A report with one case of each outcome, in which every text needs escaping.
    pub(super) fn sample() -> Report {
        let tricky = || "a < b && \"c\" > 'd'\u{1}".to_owned();
        let outcomes = [
            Outcome::Passed,
            Outcome::Failed { text: tricky() },
            Outcome::Skipped { reason: tricky() },
            Outcome::Deviates { reason: tricky(), text: tricky() },
            Outcome::DeviationGone { reason: tricky() },
        ];
        let cases = outcomes
            .into_iter()
            .map(|outcome| CaseReport {
                name: "memory::content_is_kept",
                about: "What is written stays.",
                outcome,
                seconds: 0.25,
            })
            .collect();
        let header = Header {
            fixture: "host".into(),
            backend: "host".into(),
            vendor: "host".into(),
            version: "1.0".into(),
            library: "none".into(),
            emulated: true,
            device: "Host <0>".into(),
            ordinal: 0,
        };
        Report::new(header, cases)
    }

    #[test]
    fn totals_count_each_outcome_once() {
        let report = sample();
        let one_each = Totals { passed: 1, failed: 1, skipped: 1, deviates: 1, deviation_gone: 1 };
        assert_eq!(report.totals, one_each);
        assert!(!report.is_success());
        assert_eq!(report.failures().count(), 2);
    }

    #[test]
    fn json_reads_back() {
        let value: serde_json::Value = serde_json::from_str(&sample().to_json()).unwrap();
        assert_eq!(value["header"]["emulated"], true);
        assert_eq!(value["totals"]["deviation_gone"], 1);
        assert_eq!(value["cases"][1]["outcome"], "failed");
        assert_eq!(value["cases"][1]["text"], "a < b && \"c\" > 'd'\u{1}");
    }
}
