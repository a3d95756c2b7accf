//! Cuts the text form into tokens.

use std::ops::Range;

/// A word or a symbol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Token {
    /// The characters without white space.
    pub(super) text: String,
    /// Where they stand, in bytes; never empty.
    pub(super) span: Range<usize>,
}

impl Token {
    /// Whether this is the symbol `symbol`.
    pub(super) fn is(&self, symbol: char) -> bool {
        self.text.chars().eq([symbol])
    }

    /// Whether this is no symbol.
    pub(super) fn is_word(&self) -> bool {
        !self.text.contains(is_symbol)
    }
}

/// Cuts `text` into tokens.
///
/// White space is dropped wherever it stands, even inside a word, as those who write long lines expect.
pub(super) fn lex(text: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut word: Option<Token> = None;
    for (start, c) in text.char_indices() {
        if c.is_whitespace() {
            continue;
        }
        let span = start..start + c.len_utf8();
        if is_symbol(c) {
            tokens.extend(word.take());
            let text = c.into();
            tokens.push(Token { text, span });
        } else if let Some(word) = &mut word {
            word.text.push(c);
            word.span.end = span.end;
        } else {
            let text = c.into();
            word = Some(Token { text, span });
        }
    }
    tokens.extend(word);
    tokens
}

/// Whether `c` stands for itself; everything between symbols is a word.
pub(super) const fn is_symbol(c: char) -> bool {
    matches!(c, ',' | ':' | '[' | ']')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_symbols_know_where_they_stand() {
        let tokens = lex(" a b:[é>,");
        let seen: Vec<_> = tokens.iter().map(|t| (t.text.as_str(), t.span.clone(), t.is_word())).collect();
        assert_eq!(
            seen,
            [("ab", 1..4, true), (":", 4..5, false), ("[", 5..6, false), ("é>", 6..9, true), (",", 9..10, false),]
        );
        assert!(tokens[1].is(':') && !tokens[1].is(','));
        assert!(lex(" \t\n").is_empty());
    }
}
