//! One thing that was looked at.

use std::fmt;

use console::{StyledObject, style};
use serde::Serialize;

use crate::stdout::WIDTH;

/// Columns before the text.
const INDENT: usize = 28;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Status {
    /// It is present and works.
    Ok,
    /// It is absent or limited, and some programs need it.
    Note,
    /// It is present and does not work.
    Broken,
}

impl Status {
    /// Coloured on terminals alone.
    fn word(self) -> StyledObject<String> {
        let word = |text: &str| style(format!("{text:<7}"));
        match self {
            Self::Ok => word("ok").green(),
            Self::Note => word("note").yellow(),
            Self::Broken => word("broken").red().bold(),
        }
    }
}

/// One thing that was looked at, and what to do if it is absent or broken.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Finding {
    pub(super) topic: String,
    pub(super) status: Status,
    pub(super) text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) remedy: Option<String>,
}

impl Finding {
    pub(super) fn ok(topic: impl Into<String>, text: impl Into<String>) -> Self {
        Self { topic: topic.into(), status: Status::Ok, text: text.into(), remedy: None }
    }

    pub(super) fn note(topic: impl Into<String>, text: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { status: Status::Note, remedy: Some(remedy.into()), ..Self::ok(topic, text) }
    }

    pub(super) fn broken(topic: impl Into<String>, text: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { status: Status::Broken, ..Self::note(topic, text, remedy) }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{:<20} ", self.status.word(), self.topic)?;
        let indent = " ".repeat(INDENT);
        let mut lines = textwrap::wrap(&self.text, WIDTH - INDENT);
        if let Some(remedy) = &self.remedy {
            let options = textwrap::Options::new(WIDTH - INDENT).initial_indent("-> ").subsequent_indent("   ");
            lines.extend(textwrap::wrap(remedy, options));
        }
        for (number, line) in lines.iter().enumerate() {
            let indent = if number == 0 { "" } else { &indent };
            writeln!(f, "{indent}{line}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_fits_eighty_columns_and_has_its_remedy_below() {
        let text = "a reason that is so long that it needs more than one line of this narrow column";
        let finding = Finding::note("topic", text, "install it from somewhere that has a long name, and try again");
        let shown = finding.to_string();
        assert!(shown.starts_with("note   topic                a reason"), "{shown}");
        assert!(shown.lines().all(|line| line.chars().count() <= WIDTH), "{shown}");
        let remedy: Vec<_> = shown.lines().filter(|line| line.contains("-> ")).collect();
        assert_eq!(remedy.len(), 1, "{shown}");
        assert!(remedy[0].starts_with(&format!("{}-> install", " ".repeat(INDENT))), "{shown}");
    }
}
