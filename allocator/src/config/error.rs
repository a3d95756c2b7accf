//! What is wrong with a configuration, and where.

use std::fmt;
use std::ops::Range;

use super::keys::why_refused;
use super::lex::Token;
use super::{Key, Rule};

/// What is wrong with a configuration, and where.
///
/// Its text is a sentence with the remedy; if the configuration came as text, a copy of that follows, with
/// the place marked below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    problem: Problem,
    place: Option<TextPlace>,
    variable: Option<&'static str>,
}

/// A part of the text that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
struct TextPlace {
    text: String,
    /// In bytes; never empty, never beyond the text.
    span: Range<usize>,
}

/// What is wrong with a configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// Something else belongs here.
    #[error("expected {expected}, found {found}")]
    Unexpected {
        /// What belongs here.
        expected: &'static str,
        /// What stands here, quoted, or "the end".
        found: String,
    },
    /// A list is never closed.
    #[error("this '[' is never closed; add ']' after the last entry")]
    Unclosed,
    /// There is no such key.
    #[error("there is no key '{key}'{}; the keys are {}", Suggestion(*closest), Names)]
    UnknownKey {
        /// The key as it was written.
        key: String,
        /// The spelling most like it, if one is alike.
        closest: Option<&'static str>,
    },
    /// PyTorch has this key, and Cachette does not do what it says.
    #[error("{key} is not supported: {why}")]
    Unsupported {
        /// The key as it was written.
        key: String,
        /// The reason, and what to use in its place.
        why: &'static str,
    },
    /// A key is given twice.
    #[error("{key} is given twice, first at byte {first}; keep one of them")]
    RepeatedKey {
        /// The key.
        key: Key,
        /// The byte offset at which it was given first.
        first: usize,
    },
    /// A list names the same thing twice.
    #[error("{key}: the list already has an entry for '{entry}'; keep one of them")]
    RepeatedEntry {
        /// The key of the list.
        key: Key,
        /// The name of the second entry.
        entry: String,
    },
    /// The value is missing, or not one that the key admits.
    #[error("{key}: {}; use {rule}", Refused(value))]
    Invalid {
        /// The key.
        key: Key,
        /// The value as it was written; empty if there is none.
        value: String,
        /// What the key admits.
        rule: Rule,
    },
}

impl ConfigError {
    /// A mistake in values that were never text.
    pub(super) const fn without_text(problem: Problem) -> Self {
        Self { problem, place: None, variable: None }
    }

    /// Says where in `text` the fault lies.
    pub(super) fn in_text(fault: Fault, text: &str) -> Self {
        Self {
            problem: fault.problem,
            place: Some(TextPlace { text: text.to_owned(), span: fault.span }),
            variable: None,
        }
    }

    /// Says which environment variable held the text.
    pub(super) fn in_variable(mut self, name: &'static str) -> Self {
        self.variable = Some(name);
        self
    }

    /// What is wrong.
    #[must_use]
    pub const fn problem(&self) -> &Problem {
        &self.problem
    }

    /// The bytes of the text that are wrong; `None` if there was no text.
    #[must_use]
    pub fn span(&self) -> Option<Range<usize>> {
        self.place.as_ref().map(|place| place.span.clone())
    }

    /// The environment variable that held the text, if one did.
    #[must_use]
    pub const fn variable(&self) -> Option<&'static str> {
        self.variable
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(variable) = self.variable {
            write!(f, "{variable}: ")?;
        }
        let Some(TextPlace { text, span }) = &self.place else {
            return write!(f, "{}", self.problem);
        };
        writeln!(f, "at byte {}: {}", span.start, self.problem)?;
        // A line break or a tab in the text would move the mark away from its place.
        let shown = text.replace(|c: char| c.is_whitespace() || c.is_control(), " ");
        let columns = |range: Range<usize>| text[range].chars().count();
        let (before, marked) = (columns(0..span.start), columns(span.clone()));
        write!(f, "  {shown}\n  {:before$}{:^<marked$}", "", "")
    }
}

impl std::error::Error for ConfigError {}

/// A problem and the bytes that have it, before the text is attached.
#[derive(Debug)]
pub(super) struct Fault {
    problem: Problem,
    span: Range<usize>,
}

impl Fault {
    /// Joins a problem with its place.
    pub(super) fn new(problem: Problem, span: &Range<usize>) -> Self {
        Self { problem, span: span.clone() }
    }

    /// There is no key as `token` spells it.
    pub(super) fn unknown(token: &Token) -> Self {
        let (key, closest) = (token.text.clone(), Key::closest(&token.text));
        let problem = match why_refused(&key) {
            Some(why) => Problem::Unsupported { key, why },
            None => Problem::UnknownKey { key, closest },
        };
        Self::new(problem, &token.span)
    }

    /// The value in `token` is not what `rule` admits.
    pub(super) fn invalid(key: Key, token: &Token, rule: Rule) -> Self {
        let value = token.text.clone();
        Self::new(Problem::Invalid { key, value, rule }, &token.span)
    }
}

/// Writes ` (did you mean 'x'?)`, or nothing.
struct Suggestion(Option<&'static str>);

impl fmt::Display for Suggestion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(name) => write!(f, " (did you mean '{name}'?)"),
            None => Ok(()),
        }
    }
}

/// Writes the names of all keys.
struct Names;

impl fmt::Display for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, key) in Key::ALL.iter().enumerate() {
            let comma = if i == 0 { "" } else { ", " };
            write!(f, "{comma}{key}")?;
        }
        Ok(())
    }
}

/// Writes that a value is refused, or that there is none.
struct Refused<'a>(&'a str);

impl fmt::Display for Refused<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("the value is missing");
        }
        write!(f, "'{}' is not allowed", self.0)
    }
}

#[cfg(test)]
mod tests {
    use crate::config::Config;

    fn error(text: &str) -> String {
        text.parse::<Config>().unwrap_err().to_string()
    }

    #[test]
    fn the_mark_stands_below_the_value_and_the_allowed_ones_are_named() {
        assert_eq!(
            error("caching:True,expandable_segments:true"),
            "at byte 33: expandable_segments: 'true' is not allowed; use True or False
  caching:True,expandable_segments:true
                                   ^^^^"
        );
    }

    #[test]
    fn a_missing_value_is_marked_at_its_colon() {
        assert_eq!(
            error("never_block:"),
            "at byte 11: never_block: the value is missing; use True or False
  never_block:
             ^"
        );
    }

    #[test]
    fn columns_are_counted_in_letters_and_line_breaks_do_not_move_the_mark() {
        assert_eq!(
            error("caching:True,\n never_block:é,backend:ë"),
            "at byte 27: never_block: 'é' is not allowed; use True or False
  caching:True,  never_block:é,backend:ë
                             ^"
        );
    }

    #[test]
    fn a_key_that_pytorch_alone_has_is_refused_with_its_remedy() {
        assert_eq!(
            error("expandable_segments_reserve_by_class:[a:1G]"),
            "at byte 0: expandable_segments_reserve_by_class is not supported: streams have no class here; \
             use expandable_segments_reserve, which holds for all of them
  expandable_segments_reserve_by_class:[a:1G]
  ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^"
        );
    }

    #[test]
    fn an_unknown_key_names_the_closest_and_all() {
        let text = error("max_split_size:40");
        assert!(text.starts_with(
            "at byte 0: there is no key 'max_split_size' (did you mean 'max_split_size_mb'?); \
             the keys are backend, large_segment_size_mb, "
        ));
        assert!(text.contains(", caching\n  max_split_size:40\n  ^^^^^^^^^^^^^^"));
        assert!(error("foo:1").starts_with("at byte 0: there is no key 'foo'; the keys are"));
    }
}
