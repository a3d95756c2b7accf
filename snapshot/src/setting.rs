//! The settings of an allocator.

/// The value of one key.
#[derive(Clone, Debug, PartialEq)]
pub enum Setting {
    /// No value.
    None,
    /// A boolean.
    Switch(bool),
    /// A whole number.
    Integer(i64),
    /// A fraction.
    Number(f64),
    /// A text.
    Text(String),
    /// Values by key.
    Table(Vec<(String, Setting)>),
}

#[cfg(feature = "files")]
impl Setting {
    /// Converts a whole number. One that does not fit becomes the nearest fraction.
    #[expect(clippy::cast_precision_loss, reason = "such numbers say 'no limit', and no digit of them matters")]
    pub(crate) fn whole(number: u64) -> Self {
        i64::try_from(number).map_or(Self::Number(number as f64), Self::Integer)
    }
}
