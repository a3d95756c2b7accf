//! How an allocator was told to behave.

use crate::Excess;

/// More settings than any allocator has, those inside of others included.
const MOST: usize = 4096;
/// Tables inside of each other; the reference has one.
const DEEPEST: usize = 16;

/// The value of one key.
#[derive(Clone, Debug, PartialEq)]
pub enum Setting {
    /// Nothing.
    None,
    /// Yes or no.
    Switch(bool),
    /// A whole number.
    Integer(i64),
    /// A fraction.
    Number(f64),
    /// Words.
    Text(String),
    /// Values by key.
    Table(Vec<(String, Setting)>),
}

impl Setting {
    /// A whole number; beyond those that can be kept, the nearest fraction.
    #[expect(clippy::cast_precision_loss, reason = "such numbers say 'no limit', and no digit of them matters")]
    pub(crate) fn whole(number: u64) -> Self {
        i64::try_from(number).map_or(Self::Number(number as f64), Self::Integer)
    }
}

/// Whether a file may have so many settings, and one so deep.
pub(crate) const fn check_count(count: usize, depth: usize) -> Result<(), Excess> {
    if count <= MOST && depth <= DEEPEST {
        return Ok(());
    }
    Err(Excess::TooMany { what: "are more settings, or deeper ones,", limit: MOST as u64 })
}
