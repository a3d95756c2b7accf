//! A report as human-readable text.

use std::fmt;

use super::{Header, Report};

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

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.header)?;
        for case in &self.cases {
            writeln!(f, "  {} ... {}", case.name, case.outcome)?;
            if case.outcome.is_failure() {
                writeln!(f, "    promise: {}", case.about)?;
            }
        }
        let totals = self.totals;
        write!(
            f,
            "{} passed, {} failed, {} skipped, {} deviate",
            totals.passed,
            totals.failed + totals.deviation_gone,
            totals.skipped,
            totals.deviates
        )
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
