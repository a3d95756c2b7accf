//! A report as human-readable text.

use std::fmt;

use super::{CaseReport, Header, Report, Totals};

impl fmt::Display for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let emulated = if self.emulated { ", emulated" } else { "" };
        write!(
            f,
            "{}: {} {} from {}{emulated}; device {}: {}",
            self.fixture, self.backend, self.version, self.library, self.ordinal, self.device
        )
    }
}

/// One line, and the promise below it if it was broken.
impl fmt::Display for CaseReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "  {} ... {}", self.name, self.outcome)?;
        if self.outcome.is_failure() {
            write!(f, "\n    promise: {}", self.about)?;
        }
        Ok(())
    }
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let failed = self.failed + self.deviation_gone;
        write!(f, "{} passed, {failed} failed, {} skipped, {} deviate", self.passed, self.skipped, self.deviates)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.header)?;
        for case in &self.cases {
            writeln!(f, "{case}")?;
        }
        write!(f, "{}", self.totals)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::sample;

    #[test]
    fn the_text_says_what_was_tested_and_which_promise_broke() {
        let text = sample().to_string();
        let first = "host: host 1.0 from none, emulated; device 0: Host <0>\n";
        assert!(text.starts_with(first), "{text}");
        assert!(text.contains("    promise: What is written stays.\n"), "{text}");
        assert!(text.ends_with("1 passed, 2 failed, 1 skipped, 1 deviate"), "{text}");
    }
}
