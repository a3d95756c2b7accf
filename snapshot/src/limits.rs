//! How much of a file is believed.

/// The most that reading a snapshot may take.
///
/// What is beyond any of them is an error that says so: no file can make its reader run out of memory or of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the file, unpacked.
    pub bytes: u64,
    /// Bytes of memory for what a file holds; besides, no more than 64 for each byte of it, and 64 MiB.
    pub memory: u64,
    /// Events, blocks, segments and annotations, all together.
    pub items: u64,
    /// Containers inside of each other, in a pickle. JSON nests settings alone, and those to 16 levels in either format.
    pub depth: u32,
}

impl Limits {
    /// More than any history that can still be looked at.
    pub const DEFAULT: Self = Self { bytes: (4 << 30) - 1, memory: 8 << 30, items: 1 << 26, depth: 128 };
}

impl Default for Limits {
    fn default() -> Self {
        Self::DEFAULT
    }
}
