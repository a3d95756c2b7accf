//! Splits the text form into tokens.

use std::ops::Range;

/// A word or a symbol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Token {
    /// The characters without white space.
    pub(super) text: String,
    /// Their position in bytes; never empty.
    pub(super) span: Range<usize>,
}

impl Token {
    /// Whether this is the symbol `symbol`.
    pub(super) fn is(&self, symbol: char) -> bool {
        self.text.chars().eq([symbol])
    }

    /// Whether this is not a symbol.
    pub(super) fn is_word(&self) -> bool {
        !self.text.contains(is_symbol)
    }
}

/// Splits `text` into tokens.
///
/// White space is dropped everywhere, even inside a word, so that long text can be wrapped.
pub(super) fn lex(text: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut word: Option<Token> = None;
    for (start, c) in text.char_indices().filter(|(_, c)| !c.is_whitespace()) {
        let token = Token { text: c.into(), span: start..start + c.len_utf8() };
        match &mut word {
            _ if is_symbol(c) => {
                tokens.extend(word.take());
                tokens.push(token);
            }
            Some(word) => {
                word.text.push(c);
                word.span.end = token.span.end;
            }
            None => word = Some(token),
        }
    }
    tokens.extend(word);
    tokens
}

const fn is_symbol(c: char) -> bool {
    matches!(c, ',' | ':' | '[' | ']')
}
