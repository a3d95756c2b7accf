//! What the value of each key may be.

use std::fmt;

use super::number::{MAX_MEBIBYTES, MEBIBYTE};
use super::reserve::AddressReserve;
use super::roundup::is_divisions;
use super::{Config, Key};

/// Large segments are larger than the smallest allocation that gets a segment of its own, 10 MiB.
const LEAST_LARGE_SEGMENT: u64 = 11;

/// Most threads that may prepare pinned memory.
const MOST_THREADS: u32 = 128;

/// The values a key admits; its text completes the sentence "use …".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rule {
    /// One of the two words for a switch.
    Switch,
    /// The one backend there is.
    Backend,
    /// A whole number of MiB.
    Mebibytes {
        /// The smallest one.
        least: u64,
    },
    /// A number strictly between 0 and 1.
    OpenFraction,
    /// A number from 0 to 1.
    ClosedFraction,
    /// Divisions for all sizes, or a list.
    Divisions,
    /// Divisions for the sizes of one interval.
    IntervalDivisions,
    /// The name of an interval of sizes.
    Interval,
    /// A number of threads.
    Threads,
    /// A number of bytes.
    Size,
    /// How much address space to reserve.
    AddressReserve,
    /// The name of a way to weigh memory against calls.
    ElasticSetting,
    /// A fraction with at most three decimals, below 1.
    Thousandths,
}

impl Rule {
    /// The rule for the value of `key`, given the large segments of `config`.
    pub(super) const fn of(key: Key, config: &Config) -> Self {
        match key {
            Key::Backend => Self::Backend,
            Key::LargeSegment => Self::Mebibytes { least: LEAST_LARGE_SEGMENT },
            Key::MaxSplit | Key::MaxNonSplitRounding => {
                Self::Mebibytes { least: config.large_segment_bytes / MEBIBYTE }
            }
            Key::PinnedReserve => Self::Mebibytes { least: 1 },
            Key::ElasticLargestChunk => Self::Mebibytes { least: 2 },
            Key::ElasticSetting => Self::ElasticSetting,
            Key::ElasticSlack => Self::Thousandths,
            Key::GcThreshold => Self::OpenFraction,
            Key::MemoryFraction => Self::ClosedFraction,
            Key::Roundup => Self::Divisions,
            Key::PinnedThreads => Self::Threads,
            Key::MemoryLimit => Self::Size,
            Key::AddressReserve => Self::AddressReserve,
            Key::ExpandableSegments
            | Key::ReleaseLock
            | Key::ThrowOnDriverOom
            | Key::CaptureReuse
            | Key::PinnedHostRegister
            | Key::PinnedBackground
            | Key::PinnedCatchAll
            | Key::ElasticRecycling
            | Key::NeverBlock
            | Key::LendAcrossStreams
            | Key::Caching => Self::Switch,
        }
    }
}

/// Whether what `config` holds for `key` obeys the rule of the key.
pub(super) fn holds(config: &Config, key: Key) -> bool {
    let whole = |bytes: u64| match Rule::of(key, config) {
        Rule::Mebibytes { least } => bytes.is_multiple_of(MEBIBYTE) && bytes / MEBIBYTE >= least,
        _ => false,
    };
    match key {
        Key::LargeSegment => whole(config.large_segment_bytes),
        Key::MaxSplit => config.max_split_bytes.is_none_or(whole),
        Key::MaxNonSplitRounding => config.max_non_split_rounding_bytes.is_none_or(whole),
        Key::PinnedReserve => config.pinned_reserve_segment_bytes.is_none_or(whole),
        Key::ElasticLargestChunk => config.elastic_largest_chunk_bytes.is_none_or(whole),
        Key::ElasticSlack => config.elastic_slack_thousandths.is_none_or(|t| t < 1000),
        Key::GcThreshold => config.gc_threshold.is_none_or(|t| t > 0.0 && t < 1.0),
        Key::MemoryFraction => config.memory_fraction.is_none_or(|f| (0.0..=1.0).contains(&f)),
        Key::Roundup => config.roundup.by_interval().iter().all(|d| is_divisions(*d)),
        Key::PinnedThreads => {
            let threads = config.pinned_register_threads;
            threads.is_power_of_two() && threads <= MOST_THREADS
        }
        Key::MemoryLimit => config.memory_limit != Some(0),
        Key::AddressReserve => config.reserve.is_none_or(AddressReserve::is_sound),
        Key::Backend
        | Key::ExpandableSegments
        | Key::ReleaseLock
        | Key::ThrowOnDriverOom
        | Key::CaptureReuse
        | Key::PinnedHostRegister
        | Key::PinnedBackground
        | Key::PinnedCatchAll
        | Key::ElasticSetting
        | Key::ElasticRecycling
        | Key::NeverBlock
        | Key::LendAcrossStreams
        | Key::Caching => true,
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = match self {
            Self::Mebibytes { least } => {
                return write!(f, "a whole number of MiB from {least} to {MAX_MEBIBYTES}");
            }
            Self::Switch => "True or False",
            Self::Backend => "native, or leave the key out: Cachette has its own cache",
            Self::OpenFraction => "a number above 0 and below 1, such as 0.8",
            Self::ClosedFraction => "a number from 0 to 1, such as 0.5",
            Self::Divisions => "a power of two up to 2147483648, or a list such as [64:8,128:4,>:2]",
            Self::IntervalDivisions => "0 or a power of two up to 2147483648",
            Self::Interval => "a power of two in MiB, or > for all that follow",
            Self::Threads => "a power of two from 1 to 128",
            Self::Size => "a size above 0, in bytes or with K, M or G, such as 40G",
            Self::AddressReserve => {
                "a fraction of the device's memory above 0 and up to 1.125, such as 0.5, \
                 or a size with K, M or G, such as 40G"
            }
            Self::ElasticSetting => "default, compact or quick",
            Self::Thousandths => "a number from 0 to 0.999 with at most three decimals, such as 0.02",
        };
        f.write_str(words)
    }
}
