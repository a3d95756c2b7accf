//! Texts of users, each stored once.

use std::collections::HashMap;

/// The number of a text in a snapshot; zero is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "files", derive(serde::Deserialize))]
pub struct TextId(pub u32);

impl TextId {
    /// No text.
    pub const NONE: Self = Self(0);
}

/// Texts of users, each stored once.
#[derive(Clone, Debug, Default)]
pub struct Texts {
    texts: Vec<String>,
    numbers: HashMap<String, TextId>,
}

impl Texts {
    /// Creates an empty table.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the number of a text; none for an empty text.
    ///
    /// # Panics
    ///
    /// If there are four billion texts.
    pub fn add(&mut self, text: &str) -> TextId {
        if text.is_empty() {
            return TextId::NONE;
        }
        if let Some(&id) = self.numbers.get(text) {
            return id;
        }
        self.texts.push(text.to_owned());
        let id = TextId(u32::try_from(self.texts.len()).expect("fewer texts than that"));
        self.numbers.insert(text.to_owned(), id);
        id
    }

    /// Returns the text of a number; empty for an unknown number.
    #[must_use]
    pub fn get(&self, id: TextId) -> &str {
        let index = (id.0 as usize).wrapping_sub(1);
        self.texts.get(index).map_or("", String::as_str)
    }

    /// All texts, by number minus one.
    #[must_use]
    pub fn all(&self) -> &[String] {
        &self.texts
    }
}

impl PartialEq for Texts {
    fn eq(&self, other: &Self) -> bool {
        self.texts == other.texts
    }
}
