//! How an allocator was told to behave.

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

#[cfg(feature = "files")]
impl Setting {
    /// A whole number; beyond those that can be kept, the nearest fraction.
    #[expect(clippy::cast_precision_loss, reason = "such numbers say 'no limit', and no digit of them matters")]
    pub(crate) fn whole(number: u64) -> Self {
        i64::try_from(number).map_or(Self::Number(number as f64), Self::Integer)
    }
}
