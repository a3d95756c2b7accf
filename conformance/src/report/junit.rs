//! A report as `JUnit` XML.

use std::fmt::Write;

use super::{CaseReport, Outcome, Report};

impl Report {
    /// The report as `JUnit` XML.
    #[must_use]
    pub fn to_junit(&self) -> String {
        let seconds: f64 = self.cases.iter().map(|case| case.seconds).sum();
        let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n");
        // Writing to a string cannot fail.
        let _ = writeln!(
            xml,
            "<testsuite name=\"{}\" tests=\"{}\" failures=\"{}\" errors=\"0\" skipped=\"{}\" time=\"{seconds:.3}\">",
            escape(&self.header.to_string()),
            self.cases.len(),
            self.totals.failed + self.totals.deviation_gone,
            self.totals.skipped + self.totals.deviates,
        );
        for case in &self.cases {
            write_case(&mut xml, case);
        }
        xml.push_str("</testsuite>\n</testsuites>\n");
        xml
    }
}

fn write_case(xml: &mut String, case: &CaseReport) {
    let (group, sentence) = case.name.split_once("::").unwrap_or(("", case.name));
    // Writing to a string cannot fail.
    let _ = write!(
        xml,
        "<testcase classname=\"{}\" name=\"{}\" time=\"{:.3}\"",
        escape(group),
        escape(sentence),
        case.seconds
    );
    let element = match &case.outcome {
        Outcome::Passed => {
            xml.push_str("/>\n");
            return;
        }
        Outcome::Failed { .. } | Outcome::DeviationGone { .. } => "failure",
        Outcome::Skipped { .. } | Outcome::Deviates { .. } => "skipped",
    };
    let message = escape(&case.outcome.to_string());
    let _ = writeln!(xml, "><{element} message=\"{message}\"/></testcase>");
}

/// Escapes text for an attribute. Characters that XML does not allow become U+FFFD.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&apos;"),
            '\n' => escaped.push_str("&#10;"),
            '\t' => escaped.push_str("&#9;"),
            '\r' => escaped.push_str("&#13;"),
            '\u{0}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => escaped.push('\u{fffd}'),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::super::tests::sample;
    use super::*;

    #[test]
    fn everything_is_escaped_and_counted() {
        let xml = sample().to_junit();
        assert!(xml.contains("tests=\"5\" failures=\"2\" errors=\"0\" skipped=\"2\""), "{xml}");
        assert!(xml.contains("Host &lt;0&gt;"), "{xml}");
        assert!(!xml.contains("a < b"), "{xml}");
        assert_eq!(xml.matches("<testcase ").count(), 5);
        assert_eq!(xml.matches("<failure ").count(), 2);
        assert_eq!(xml.matches("<skipped ").count(), 2);
    }

    #[test]
    fn no_control_character_survives() {
        assert_eq!(escape("a\u{1}\n<&\"'>"), "a\u{fffd}&#10;&lt;&amp;&quot;&apos;&gt;");
    }
}
