//! The settings of an allocator.

/// The value of one key.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "files", derive(serde::Serialize), serde(untagged))]
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
    #[cfg_attr(feature = "files", serde(serialize_with = "write_table"))]
    Table(Vec<(String, Setting)>),
}

/// Writes settings by key, in their order.
#[cfg(feature = "files")]
pub(crate) fn write_table<S: serde::Serializer>(table: &[(String, Setting)], out: S) -> Result<S::Ok, S::Error> {
    out.collect_map(table.iter().map(|(key, value)| (key, value)))
}

#[cfg(feature = "files")]
impl Setting {
    /// Converts a whole number. One that does not fit becomes the nearest fraction.
    #[expect(clippy::cast_precision_loss, reason = "such numbers say 'no limit', and no digit of them matters")]
    pub(crate) fn whole(number: u64) -> Self {
        i64::try_from(number).map_or(Self::Number(number as f64), Self::Integer)
    }
}
