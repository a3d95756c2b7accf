//! The grammar of the text form.
//!
//! ```text
//! config = [ entry { ',' entry } [ ',' ] ]
//! entry  = key ':' ( word | list )
//! list   = '[' [ pair { ',' pair } [ ',' ] ] ']'
//! pair   = word ':' word
//! ```

use std::ops::Range;

use super::Key;
use super::error::{Fault, Problem};
use super::lex::{Token, lex};

/// A key with its value.
#[derive(Debug)]
pub(super) struct ConfigEntry {
    pub(super) key: Key,
    /// Where the key stands.
    pub(super) span: Range<usize>,
    pub(super) value: Value,
}

/// What stands after the colon of a key.
#[derive(Debug)]
pub(super) enum Value {
    /// One word; an empty one, placed at the colon, if there is none.
    Word(Token),
    /// A list in brackets.
    List {
        pairs: Vec<Pair>,
        /// From bracket to bracket.
        span: Range<usize>,
    },
}

/// A name with its value, in a list.
#[derive(Debug)]
pub(super) struct Pair {
    pub(super) name: Token,
    /// An empty word, placed at the colon, if there is none.
    pub(super) value: Token,
}

/// Reads every entry of `text`, in order; no key comes twice.
///
/// `unknown` says what becomes of a key that there is not: an error, or an entry that is left out.
pub(super) fn parse(
    text: &str,
    mut unknown: impl FnMut(Fault) -> Result<(), Fault>,
) -> Result<Vec<ConfigEntry>, Fault> {
    let mut parser = Parser { tokens: lex(text), next: 0 };
    let mut entries: Vec<ConfigEntry> = Vec::new();
    while parser.peek().is_some() {
        if let Some(entry) = parser.entry(&mut unknown)? {
            if let Some(first) = entries.iter().find(|first| first.key == entry.key) {
                let (key, first) = (first.key, first.span.start);
                return Err(Fault::new(Problem::RepeatedKey { key, first }, &entry.span));
            }
            entries.push(entry);
        }
        if parser.peek().is_some() {
            parser.symbol(',', "',' or the end")?;
        }
    }
    Ok(entries)
}

/// The tokens and how many of them are read.
struct Parser {
    tokens: Vec<Token>,
    next: usize,
}

impl Parser {
    /// The next token, which stays unread.
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.next)
    }

    /// Reads the next token if `wanted` likes it.
    fn take(&mut self, wanted: impl FnOnce(&Token) -> bool) -> Option<Token> {
        let token = self.peek().filter(|token| wanted(token)).cloned()?;
        self.next += 1;
        Some(token)
    }

    /// Reads `symbol`.
    fn symbol(&mut self, symbol: char, expected: &'static str) -> Result<Token, Fault> {
        self.take(|token| token.is(symbol)).ok_or_else(|| self.unexpected(expected))
    }

    /// Reads a word.
    fn word(&mut self, expected: &'static str) -> Result<Token, Fault> {
        self.take(Token::is_word).ok_or_else(|| self.unexpected(expected))
    }

    /// Reads the word after `colon`, or makes an empty one where the entry ends.
    fn word_after(&mut self, colon: &Token) -> Result<Token, Fault> {
        match self.peek() {
            Some(token) if !token.is(',') && !token.is(']') => self.word("a value"),
            _ => Ok(Token { text: String::new(), span: colon.span.clone() }),
        }
    }

    /// The next token is not what belongs there; at the end, the last one lacks a successor.
    fn unexpected(&self, expected: &'static str) -> Fault {
        let (found, token) = match self.peek() {
            Some(token) => (format!("'{}'", token.text), Some(token)),
            None => ("the end".to_owned(), self.tokens.last()),
        };
        let span = token.map_or(0..0, |token| token.span.clone());
        Fault::new(Problem::Unexpected { expected, found }, &span)
    }

    /// Reads a key and its value; `None` for a key that `unknown` lets pass.
    fn entry(&mut self, unknown: &mut impl FnMut(Fault) -> Result<(), Fault>) -> Result<Option<ConfigEntry>, Fault> {
        let name = self.word("a key")?;
        let key = Key::find(&name.text);
        if key.is_none() {
            unknown(Fault::unknown(&name))?;
        }
        let colon = self.symbol(':', "':' and a value after the key")?;
        let value = match self.take(|token| token.is('[')) {
            Some(open) => self.list(&open)?,
            None => Value::Word(self.word_after(&colon)?),
        };
        let span = name.span;
        Ok(key.map(|key| ConfigEntry { key, span, value }))
    }

    /// Reads the rest of the list that `open` begins.
    fn list(&mut self, open: &Token) -> Result<Value, Fault> {
        let mut pairs = Vec::new();
        loop {
            if let Some(close) = self.take(|token| token.is(']')) {
                let span = open.span.start..close.span.end;
                return Ok(Value::List { pairs, span });
            }
            if self.peek().is_none() {
                return Err(Fault::new(Problem::Unclosed, &open.span));
            }
            let name = self.word("an entry of the list or ']'")?;
            let colon = self.symbol(':', "':' and a value after the name of the entry")?;
            let value = self.word_after(&colon)?;
            pairs.push(Pair { name, value });
            if self.peek().is_some_and(|token| !token.is(']')) {
                self.symbol(',', "',' or ']'")?;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, ConfigError};

    fn error(text: &str) -> ConfigError {
        text.parse::<Config>().unwrap_err()
    }

    /// What the reference lets pass without a word.
    #[test]
    fn mistakes_of_grammar_are_diagnosed_where_they_are() {
        for (text, at, expected, found) in [
            ("caching", 0, "':' and a value after the key", "the end"),
            ("caching,True", 7, "':' and a value after the key", "','"),
            ("caching:True:False", 12, "',' or the end", "':'"),
            ("caching:True]", 12, "',' or the end", "']'"),
            ("caching:]", 8, "',' or the end", "']'"),
            ("caching::True", 8, "a value", "':'"),
            (",caching:True", 0, "a key", "','"),
            ("caching:True,,", 13, "a key", "','"),
            ("[caching:True]", 0, "a key", "'['"),
            (":", 0, "a key", "':'"),
            ("roundup_power2_divisions:[64:8>:2]", 31, "',' or ']'", "':'"),
            ("roundup_power2_divisions:[64]", 28, "':' and a value after the name of the entry", "']'"),
            ("roundup_power2_divisions:[,64:8]", 26, "an entry of the list or ']'", "','"),
            ("roundup_power2_divisions:[64:[8]]", 29, "a value", "'['"),
            ("roundup_power2_divisions:[64:8]]", 31, "',' or the end", "']'"),
        ] {
            let error = error(text);
            let found = found.to_owned();
            assert_eq!(*error.problem(), Problem::Unexpected { expected, found }, "{text}");
            assert_eq!(error.span().unwrap().start, at, "{text}");
        }
    }

    #[test]
    fn a_list_without_end_is_marked_at_its_beginning() {
        for text in ["roundup_power2_divisions:[", "roundup_power2_divisions:[64:8,"] {
            let error = error(text);
            assert_eq!(*error.problem(), Problem::Unclosed);
            assert_eq!(error.span(), Some(25..26));
        }
    }

    #[test]
    fn a_key_given_twice_is_refused_in_whichever_spelling() {
        let error = error("release_lock_on_cudamalloc:True, release_lock_on_hipmalloc:True");
        let (key, first) = (Key::ReleaseLock, 0);
        assert_eq!(*error.problem(), Problem::RepeatedKey { key, first });
        assert_eq!(error.span(), Some(33..58));
    }

    #[test]
    fn an_entry_given_twice_is_refused() {
        for (key, list, entry, at) in [
            (Key::Roundup, "[64:8,64:4]", "64", 6),
            (Key::Roundup, "[32768:8,65536:4]", "65536", 9),
            (Key::Roundup, "[>:8,>:4]", ">", 5),
        ] {
            let error = error(&format!("{key}:{list}"));
            let entry = entry.to_owned();
            assert_eq!(*error.problem(), Problem::RepeatedEntry { key, entry });
            assert_eq!(error.span().unwrap().start, key.name().len() + 1 + at);
        }
    }

    #[test]
    fn white_space_and_a_last_comma_are_nothing() {
        let plain: Config = "caching:False,roundup_power2_divisions:[64:8,>:2]".parse().unwrap();
        let spaced = " caching : False ,\n\troundup_power2_divisions : [ 64 : 8 , > : 2 , ] , ";
        assert_eq!(spaced.parse(), Ok(plain));
        assert_eq!("".parse(), Ok(Config::default()));
        assert_eq!(" \n".parse(), Ok(Config::default()));
    }
}
