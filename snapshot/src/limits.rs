//! Limits for reading untrusted files.

/// The resources that reading a snapshot may use.
///
/// A file beyond any limit is an error: no file can make its reader run out of memory or time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the file, decompressed.
    pub bytes: u64,
    /// Bytes of memory for the contents. A pickle may take 64 per byte, plus 64 MiB; JSON is taken to need 40 per byte.
    pub memory: u64,
    /// The sum of events, blocks, segments and annotations.
    pub items: u64,
    /// Nesting of containers in a pickle. JSON nests only settings, which have at most 16 levels in either format.
    pub depth: u32,
}

impl Limits {
    /// More than any history of practical size.
    pub const DEFAULT: Self = Self { bytes: (4 << 30) - 1, memory: 8 << 30, items: 1 << 26, depth: 128 };
}

impl Default for Limits {
    fn default() -> Self {
        Self::DEFAULT
    }
}
