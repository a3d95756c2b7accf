//! A mistake in a configuration, with its position.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

/// A mistake in a configuration.
///
/// The message describes the mistake and the remedy. If the configuration was text, a copy of the text around the
/// mistake follows, with the mistake underlined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    message: String,
    text: String,
    /// In bytes of `text`; not empty, and inside the text. `None` if the configuration was not text.
    span: Option<Range<usize>>,
    variable: Option<&'static str>,
}

impl ConfigError {
    pub(super) const fn new(message: String) -> Self {
        Self { message, text: String::new(), span: None, variable: None }
    }

    /// `value` is missing, or not one that `key` allows.
    pub(super) fn not_allowed(key: &str, value: &str, rule: &str) -> Self {
        Self::new(match value {
            "" => format!("{key}: the value is missing; use {rule}"),
            _ => format!("{key}: '{}' is not allowed; use {rule}", shortened(value)),
        })
    }

    /// Adds the position; [`in_text`](Self::in_text) must follow.
    pub(super) fn at(self, span: &Range<usize>) -> Self {
        Self { span: Some(span.clone()), ..self }
    }

    pub(super) fn in_text(self, text: &str) -> Self {
        Self { text: text.to_owned(), ..self }
    }

    pub(super) fn in_variable(self, name: &'static str) -> Self {
        Self { variable: Some(name), ..self }
    }

    /// What is wrong and what to write instead, without the position.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The bytes of the text that are wrong; `None` if there was no text.
    #[must_use]
    pub fn span(&self) -> Option<Range<usize>> {
        self.span.clone()
    }

    /// The environment variable that held the text, if any.
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
        let Self { message, text, span: Some(span), .. } = self else { return f.write_str(&self.message) };
        writeln!(f, "at byte {}: {message}", span.start)?;
        let before: Vec<char> = text[..span.start].chars().rev().take(SHOWN).collect();
        let cut = before.iter().map(|c| c.len_utf8()).sum::<usize>() < span.start;
        let marked = shortened(&text[span.clone()]);
        let after = shortened(&text[span.end..]);
        let before: String = cut.then_some('…').into_iter().chain(before.into_iter().rev()).collect();
        // A line break or a tab in the text would displace the underline.
        let shown = format!("{before}{marked}{after}").replace(|c: char| c.is_whitespace() || c.is_control(), " ");
        // Not by a width, which is limited.
        write!(f, "  {shown}\n  {}{}", " ".repeat(before.chars().count()), "^".repeat(marked.chars().count()))
    }
}

impl std::error::Error for ConfigError {}

/// The most characters of the text that are shown of the mistake, before it and after it.
const SHOWN: usize = 200;

/// The beginning of a text, if it is long.
pub(super) fn shortened(text: &str) -> Cow<'_, str> {
    match text.char_indices().nth(SHOWN) {
        None => Cow::Borrowed(text),
        Some((end, _)) => Cow::Owned(format!("{}…", &text[..end])),
    }
}
