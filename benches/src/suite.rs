//! The rows of the microbenchmarks.

use cachette::{Allocator, Error};
use cachette_hal::AnyDevice;
use serde::Serialize;

use crate::random::LogUniform;
use crate::subject::{Owned, Pinned};
use crate::workload::{Churn, PREFETCHED, pair_ns, prefetch_ns, threads_ns};

/// Bytes of the pairs that threads make.
const THREAD_BYTES: u64 = 1 << 10;
/// Bytes of the pairs of pinned memory.
const PINNED_BYTES: u64 = 64 << 10;

/// One row of the microbenchmarks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Workload {
    /// Pairs of one size on one stream.
    Pair {
        /// The size.
        bytes: u64,
    },
    /// Pairs of pinned host memory of one size.
    PinnedPair {
        /// The size.
        bytes: u64,
    },
    /// Slots freed and allocated again in random order.
    Churn(Churn),
    /// Buffers that one stream fills and another uses.
    Prefetch,
    /// Pairs on several threads at once.
    Threads {
        /// How many threads.
        threads: usize,
        /// Whether each has its own stream.
        own_stream: bool,
    },
}

/// How long the loops are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort {
    /// Pairs a repetition.
    pub pairs: usize,
    /// Steps of a churn.
    pub steps: usize,
    /// Pairs a thread.
    pub thread_pairs: usize,
}

impl Effort {
    /// Enough for figures.
    pub const FULL: Self = Self { pairs: 20_000, steps: 50_000, thread_pairs: 100_000 };
    /// Enough to see that everything runs.
    pub const QUICK: Self = Self { pairs: 200, steps: 500, thread_pairs: 200 };
}

/// A measurement.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Measurement {
    /// The workload's name.
    pub workload: &'static str,
    /// Its size, sizes, or number of threads.
    pub parameter: String,
    /// Nanoseconds of an allocation and a free.
    pub ns_per_pair: f64,
}

impl Workload {
    /// Every row in order: pairs, pinned ones, prefetched buffers, churns, threads for each of `threads`. With `scale`, churns of far more slots too.
    #[must_use]
    pub fn rows(threads: &[usize], scale: bool) -> Vec<Self> {
        let pairs = [1 << 10, 1 << 20, 16 << 20].map(|bytes| Self::Pair { bytes });
        let churn = |slots, sizes| Self::Churn(Churn { slots, sizes });
        let mut rows = pairs.to_vec();
        rows.push(Self::PinnedPair { bytes: PINNED_BYTES });
        rows.push(Self::Prefetch);
        rows.push(churn(1000, LogUniform::TO_64_MIB));
        rows.push(churn(1000, LogUniform::TO_1_MIB));
        rows.push(churn(10_000, LogUniform::TO_1_MIB));
        if scale {
            rows.push(churn(100_000, LogUniform::TO_1_MIB));
            rows.push(churn(1_000_000, LogUniform::TO_1_MIB));
        }
        for own_stream in [true, false] {
            rows.extend(threads.iter().map(|&threads| Self::Threads { threads, own_stream }));
        }
        rows
    }

    /// The row's name, the same as in the programs that measure other allocators.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pair { .. } => "pair",
            Self::PinnedPair { .. } => "pinned_pair",
            Self::Prefetch => "prefetch",
            Self::Churn(Churn { slots, .. }) => match slots {
                ..10_000 => "churn",
                10_000..100_000 => "churn10k",
                100_000..1_000_000 => "churn100k",
                1_000_000.. => "churn1M",
            },
            Self::Threads { own_stream, .. } => {
                if own_stream {
                    "threads_own_stream"
                } else {
                    "threads_one_stream"
                }
            }
        }
    }

    /// The parameter that distinguishes rows of one name.
    #[must_use]
    pub fn parameter(self) -> String {
        match self {
            Self::Pair { bytes } | Self::PinnedPair { bytes } => size_text(bytes),
            Self::Prefetch => size_text(PREFETCHED),
            Self::Churn(Churn { sizes, .. }) => sizes_text(sizes),
            Self::Threads { threads, .. } => threads.to_string(),
        }
    }

    /// Measures the row in a new allocator of `device`.
    pub fn measure(self, device: &AnyDevice, effort: Effort) -> Result<Measurement, Error> {
        let streams = match self {
            Self::Threads { threads, .. } => threads,
            Self::Prefetch => 2,
            Self::Pair { .. } | Self::PinnedPair { .. } | Self::Churn(_) => 1,
        };
        let allocator = Allocator::new(device.clone());
        let subject = Owned::new(allocator.clone(), streams)?;
        let ns_per_pair = match self {
            Self::Pair { bytes } => pair_ns(&subject, bytes, effort.pairs)?,
            Self::PinnedPair { bytes } => pair_ns(&Pinned::new(allocator), bytes, effort.pairs)?,
            Self::Prefetch => prefetch_ns(&subject, effort.pairs)?,
            Self::Churn(churn) => churn.ns(&subject, effort.steps)?,
            Self::Threads { threads, own_stream } => {
                let pairs = effort.thread_pairs;
                threads_ns(&subject, THREAD_BYTES, threads, own_stream, pairs)?
            }
        };
        Ok(Measurement { workload: self.name(), parameter: self.parameter(), ns_per_pair })
    }
}

/// The range of sizes, as in `512B-64MiB`.
pub(crate) fn sizes_text(sizes: LogUniform) -> String {
    let text = |exponent: f64| {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "the exponents are small whole numbers"
        )]
        let bytes = 1 << exponent as u32;
        size_text(bytes)
    };
    format!("{}-{}", text(sizes.low), text(sizes.high))
}

fn size_text(bytes: u64) -> String {
    match bytes {
        ..0x400 => format!("{bytes}B"),
        0x400..0x10_0000 => format!("{}KiB", bytes >> 10),
        0x10_0000.. => format!("{}MiB", bytes >> 20),
    }
}

#[cfg(test)]
mod tests {
    use cachette_hal::Ordinal;

    use super::*;
    use cachette_replay::Target;

    #[test]
    fn the_rows_have_the_names_of_the_other_programs() {
        let rows = Workload::rows(&[2], true);
        let names: Vec<_> = rows.iter().map(|row| format!("{},{}", row.name(), row.parameter())).collect();
        assert_eq!(
            names,
            [
                "pair,1KiB",
                "pair,1MiB",
                "pair,16MiB",
                "pinned_pair,64KiB",
                "prefetch,8MiB",
                "churn,512B-64MiB",
                "churn,512B-1MiB",
                "churn10k,512B-1MiB",
                "churn100k,512B-1MiB",
                "churn1M,512B-1MiB",
                "threads_own_stream,2",
                "threads_one_stream,2",
            ]
        );
    }

    #[test]
    fn every_row_can_be_measured() {
        let target = Target::host(Ordinal(0), 1 << 40).unwrap();
        for row in Workload::rows(&[1, 3], false) {
            let measured = row.measure(&target.device, Effort::QUICK).unwrap();
            assert!(measured.ns_per_pair > 0.0, "{measured:?}");
        }
        let left = target.device.memory_info().unwrap();
        assert_eq!(left.free, left.total, "a row kept memory");
    }

    #[test]
    fn a_device_that_is_too_small_is_an_error() {
        let target = Target::host(Ordinal(0), 1 << 30).unwrap();
        let churn = Workload::Churn(Churn { slots: 1000, sizes: LogUniform::TO_64_MIB });
        let error = churn.measure(&target.device, Effort::QUICK).unwrap_err();
        assert!(matches!(error, Error::OutOfMemory(_)), "{error}");
    }
}
