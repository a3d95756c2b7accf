//! The parameters and results of `sleep` and `wake`.

#![forbid(unsafe_code)]

/// What becomes of the bytes in memory while it is away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contents {
    /// They are kept in page-locked host memory, and are there again when the pool wakes.
    Keep,
    /// They are lost; what is there when the pool wakes is not defined.
    Discard,
}

/// What falling asleep did. All zero if the pool slept already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SleepStats {
    /// Bytes that went back to the device.
    pub released: u64,
    /// Bytes that are kept in host memory.
    pub saved: u64,
}

/// How far falling asleep or waking has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// Bytes of memory that are done.
    pub done: u64,
    /// Bytes in all.
    pub total: u64,
}
