//! Words of users, each kept once.

use std::collections::HashMap;

/// Words among those of a snapshot; zero is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TextId(pub u32);

impl TextId {
    /// No words.
    pub const NONE: Self = Self(0);
}

/// Words of users, each kept once.
#[derive(Clone, Debug, Default)]
pub struct Texts {
    texts: Vec<String>,
    numbers: HashMap<String, TextId>,
}

impl Texts {
    /// No words.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The number of these words; none for no words.
    ///
    /// # Panics
    ///
    /// If there are four thousand million of them.
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

    /// The words of a number; nothing for one that is not known.
    #[must_use]
    pub fn get(&self, id: TextId) -> &str {
        let index = (id.0 as usize).wrapping_sub(1);
        self.texts.get(index).map_or("", String::as_str)
    }

    /// All of them, by number less one.
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
