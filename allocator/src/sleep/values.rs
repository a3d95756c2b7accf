//! The parameters and results of `sleep` and `wake`.

#![forbid(unsafe_code)]

/// What happens to the contents of memory during sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contents {
    /// They are kept in page-locked host memory, and restored when the pool wakes.
    Keep,
    /// They are lost. The contents are undefined when the pool wakes.
    Discard,
}

/// The result of a sleep. All zero if the pool already slept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SleepStats {
    /// Bytes released to the device.
    pub released: u64,
    /// Bytes that are kept in host memory.
    pub saved: u64,
}

/// The progress of a sleep or a wake.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Progress {
    /// Completed bytes.
    pub done: u64,
    /// Total bytes.
    pub total: u64,
}
