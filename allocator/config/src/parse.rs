//! The grammar of the text form.
//!
//! ```text
//! config = [ entry { ',' entry } [ ',' ] ]
//! entry  = key ':' ( word | list )
//! list   = '[' [ pair { ',' pair } [ ',' ] ] ']'
//! pair   = word ':' word
//! ```

use std::ops::Range;

use super::error::shortened;
use super::values::RESERVE;
use super::{ConfigError, ConfigKey};

pub(super) struct ConfigEntry {
    pub(super) key: &'static ConfigKey,
    span: Range<usize>,
    /// A missing value is empty and has the position of the colon.
    pub(super) value: Token,
    /// The names and values, if the value is a list.
    pub(super) pairs: Option<Vec<(Token, Token)>>,
}

/// The keys that are not known and may be skipped.
pub(super) struct Skipped {
    may_skip: fn(&str) -> bool,
    /// The error of each skipped key.
    pub(super) errors: Vec<ConfigError>,
}

impl Skipped {
    pub(super) const fn none() -> Self {
        Self { may_skip: |_| false, errors: Vec::new() }
    }

    pub(super) const fn removed() -> Self {
        Self { may_skip: ConfigKey::is_removed, errors: Vec::new() }
    }

    pub(super) const fn all() -> Self {
        Self { may_skip: |_| true, errors: Vec::new() }
    }
}

/// Reads every entry in order; no key comes twice. The error of an unknown key goes to `skipped` if it may be skipped.
pub(super) fn parse(text: &str, skipped: &mut Skipped) -> Result<Vec<ConfigEntry>, ConfigError> {
    let mut parser = Parser { tokens: lex(text), next: 0, skipped };
    let mut entries: Vec<ConfigEntry> = Vec::new();
    while parser.peek().is_some() {
        if let Some(entry) = parser.entry()? {
            let name = entry.key.name();
            if let Some(first) = entries.iter().find(|first| first.key.name() == name) {
                let first = first.span.start;
                let message = format!("{name} is given twice, first at byte {first}; keep one of them");
                return Err(ConfigError::new(message).at(&entry.span));
            }
            entries.push(entry);
        }
        if parser.peek().is_some() {
            parser.symbol(',', "',' or the end")?;
        }
    }
    Ok(entries)
}

/// A word or a symbol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Token {
    /// The characters without white space.
    pub(super) text: String,
    /// Their position in bytes; never empty.
    pub(super) span: Range<usize>,
}

impl Token {
    pub(super) fn is(&self, symbol: char) -> bool {
        self.text.chars().eq([symbol])
    }

    pub(super) fn is_word(&self) -> bool {
        !self.text.contains(is_symbol)
    }
}

/// Splits `text` into tokens. White space is dropped even inside a word, so that long text can be wrapped.
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

/// PyTorch's key for the address space of streams by their classes. It is checked, and has no effect: a request larger
/// than the reserve gets a range of its own, and later ranges are smaller anyway.
const RESERVE_BY_CLASS: &str = "expandable_segments_reserve_by_class";

/// Checks a list such as `[prefill:0.5,decode:40G]`.
fn check_classes(value: &Token, pairs: Option<&[(Token, Token)]>) -> Result<(), ConfigError> {
    let refuse =
        |token: &Token, rule: &str| ConfigError::not_allowed(RESERVE_BY_CLASS, &token.text, rule).at(&token.span);
    let pairs = pairs.ok_or_else(|| refuse(value, "a list such as [prefill:0.5,decode:40G]"))?;
    let is_reserve = |token: &Token| (RESERVE.read)(&token.text).is_some_and(|reserve| (RESERVE.allows)(reserve, 0));
    let wrong = pairs.iter().find(|(_, reserve)| !is_reserve(reserve));
    wrong.map_or(Ok(()), |(_, reserve)| Err(refuse(reserve, &(RESERVE.rule)(0))))
}

struct Parser<'a> {
    tokens: Vec<Token>,
    next: usize,
    skipped: &'a mut Skipped,
}

impl Parser<'_> {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.next)
    }

    /// Reads the next token if it is `wanted`.
    fn next_if(&mut self, wanted: impl FnOnce(&Token) -> bool) -> Option<Token> {
        let token = self.peek().filter(|token| wanted(token)).cloned()?;
        self.next += 1;
        Some(token)
    }

    fn symbol(&mut self, symbol: char, expected: &str) -> Result<Token, ConfigError> {
        self.next_if(|token| token.is(symbol)).ok_or_else(|| self.unexpected(expected))
    }

    fn word(&mut self, expected: &str) -> Result<Token, ConfigError> {
        self.next_if(Token::is_word).ok_or_else(|| self.unexpected(expected))
    }

    /// Reads the word after `colon`; an empty one if the entry ends there.
    fn word_after(&mut self, colon: Token) -> Result<Token, ConfigError> {
        match self.peek() {
            Some(token) if !token.is(',') && !token.is(']') => self.word("a value"),
            _ => Ok(Token { text: String::new(), ..colon }),
        }
    }

    /// The error for the next token; at the end of the text it marks the last token.
    fn unexpected(&self, expected: &str) -> ConfigError {
        let (found, token) = match self.peek() {
            Some(token) => (format!("'{}'", shortened(&token.text)), Some(token)),
            None => ("the end".to_owned(), self.tokens.last()),
        };
        let span = token.map_or(0..0, |token| token.span.clone());
        ConfigError::new(format!("expected {expected}, found {found}")).at(&span)
    }

    /// Reads a key and its value; `None` if it was skipped.
    fn entry(&mut self) -> Result<Option<ConfigEntry>, ConfigError> {
        let Token { text, span } = self.word("a key")?;
        let (key, is_by_class) = (ConfigKey::find(&text), text == RESERVE_BY_CLASS);
        if key.is_none() && !is_by_class {
            let error = ConfigKey::unknown(&text).at(&span);
            if !(self.skipped.may_skip)(&text) {
                return Err(error);
            }
            self.skipped.errors.push(error);
        }
        let colon = self.symbol(':', "':' and a value after the key")?;
        let (value, pairs) = match self.next_if(|token| token.is('[')) {
            Some(open) => self.list(open).map(|(list, pairs)| (list, Some(pairs)))?,
            None => (self.word_after(colon)?, None),
        };
        if is_by_class {
            check_classes(&value, pairs.as_deref())?;
        }
        Ok(key.map(|key| ConfigEntry { key, span, value, pairs }))
    }

    /// Reads a list up to its end, after its bracket `open`: as one token, and as names with values.
    fn list(&mut self, open: Token) -> Result<(Token, Vec<(Token, Token)>), ConfigError> {
        let start = self.next;
        let mut pairs = Vec::new();
        loop {
            if let Some(close) = self.next_if(|token| token.is(']')) {
                let text = self.tokens[start..self.next].iter().map(|token| token.text.as_str());
                let list = Token { text: open.text + &text.collect::<String>(), span: open.span.start..close.span.end };
                return Ok((list, pairs));
            }
            if self.peek().is_none() {
                let message = "this '[' is never closed; add ']' after the last entry";
                return Err(ConfigError::new(message.into()).at(&open.span));
            }
            let name = self.word("an entry of the list or ']'")?;
            let colon = self.symbol(':', "':' and a value after the name of the entry")?;
            pairs.push((name, self.word_after(colon)?));
            if self.peek().is_some_and(|token| !token.is(']')) {
                self.symbol(',', "',' or ']'")?;
            }
        }
    }
}
