//! The workloads whose instructions are counted.

use std::sync::Arc;

use cachette::history::HistoryOptions;
use cachette::{Allocator, Config, Error};
use cachette_hal::Ordinal;
use cachette_hal_host::{Hold, HostBackend, HostConfig, HostDevice};

use crate::random::LogUniform;
use crate::subject::{Owned, Pinned, Raw, Subject};
use crate::workload::{Churn, repeat};

/// Room for a million live blocks of up to 64 MiB.
const CAPACITY: u64 = 16 << 40;
const BYTES: u64 = 1 << 10;
/// Pairs before those that count.
const WARM_UP: usize = 64;
/// Steps before those that count: enough that the heap has stopped growing, in proportion to its slots.
const WARM_STEPS: usize = 50_000;

/// Declares [`Case`] from a table.
macro_rules! cases {
    ($($variant:ident = $name:literal, $bound:expr;)*) => {
        /// One workload, on a host device with phantom memory.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[expect(missing_docs, reason = "the names say it")]
        pub enum Case {
            $($variant,)*
        }

        impl Case {
            /// Every case.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// The name that tables and options use.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// The most instructions a pair may take.
            #[must_use]
            pub const fn bound(self) -> u32 {
                match self {
                    $(Self::$variant => $bound,)*
                }
            }
        }
    };
}

cases! {
    Pair = "pair 1KiB", 150;
    PairRaw = "pair 1KiB by address", 170;
    PairInside = "pair 1KiB inside a pool", 186;
    PairPinned = "pair 1KiB of pinned memory", 92;
    PairTwoStreams = "pair 1KiB, two streams in turn", 1950;
    PairManyStreams = "pair 1KiB, 16 streams in turn", 1950;
    PairPending = "pair 1KiB while a block is pending", 191;
    PairHistory = "pair 1KiB with history", 1005;
    Churn1k = "churn 512B-64MiB, 1k live", 605;
    Churn10k = "churn 512B-64MiB, 10k live", 600;
    SmallChurn1k = "churn 512B-1MiB, 1k live", 600;
    SmallChurn10k = "churn 512B-1MiB, 10k live", 600;
    ElasticPair = "pair 1KiB, elastic", 150;
    ElasticChurn1k = "churn 512B-64MiB, 1k live, elastic", 770;
    ElasticRawChurn1k = "churn 512B-64MiB, 1k live, elastic, by address", 925;
    ElasticSmallChurn1k = "churn 512B-1MiB, 1k live, elastic", 770;
    ElasticSmallChurn10k = "churn 512B-1MiB, 10k live, elastic", 915;
}

/// The error of a case.
type Stopped = Box<dyn std::error::Error>;

impl Case {
    /// The case called `name`.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|case| case.name() == name)
    }

    /// Pairs by which the two runs differ.
    #[must_use]
    pub const fn pairs(self) -> usize {
        20_000
    }

    /// Makes the pairs, or twice as many, and calls `end` while everything is still as they left it.
    ///
    /// A process that exits there does not count its destructors.
    pub fn run(self, twice: bool, end: impl FnOnce()) -> Result<(), Stopped> {
        let pairs = if twice { 2 * self.pairs() } else { self.pairs() };
        match self {
            Self::Pair => run_pairs(&Owned::new(allocator()?, 1)?, pairs)?,
            Self::PairRaw => run_pairs(&Raw::new(allocator()?, 1)?, pairs)?,
            Self::PairInside => {
                let allocator = allocator()?;
                let pool = allocator.create_pool();
                let _inside = pool.enter_all();
                run_pairs(&Owned::new(allocator.clone(), 1)?, pairs)?;
            }
            Self::PairPinned => run_pairs(&Pinned::new(allocator()?), pairs)?,
            Self::PairHistory => {
                let options = HistoryOptions::new().stacks(false);
                run_pairs(&recorded(options)?, pairs)?;
            }
            Self::PairPending => {
                let (subject, _hold) = pending()?;
                run_pairs(&subject, pairs)?;
            }
            Self::PairTwoStreams => take_turns(2, pairs)?,
            Self::PairManyStreams => take_turns(16, pairs)?,
            Self::Churn1k | Self::ElasticChurn1k => return self.churn(1000, LogUniform::TO_64_MIB, pairs, end),
            Self::ElasticRawChurn1k => {
                let subject = Raw::new(elastic()?, 1)?;
                return self.churn_of(&subject, Churn { slots: 1000, sizes: LogUniform::TO_64_MIB }, pairs, end);
            }
            Self::Churn10k => return self.churn(10_000, LogUniform::TO_64_MIB, pairs, end),
            Self::SmallChurn1k | Self::ElasticSmallChurn1k => {
                return self.churn(1000, LogUniform::TO_1_MIB, pairs, end);
            }
            Self::SmallChurn10k | Self::ElasticSmallChurn10k => {
                return self.churn(10_000, LogUniform::TO_1_MIB, pairs, end);
            }
            Self::ElasticPair => run_pairs(&Owned::new(elastic()?, 1)?, pairs)?,
        }
        end();
        Ok(())
    }

    /// Whether the segments are elastic, as they are by default.
    const fn is_elastic(self) -> bool {
        matches!(self, Self::ElasticChurn1k | Self::ElasticSmallChurn1k | Self::ElasticSmallChurn10k)
    }

    fn churn(self, slots: usize, sizes: LogUniform, steps: usize, end: impl FnOnce()) -> Result<(), Stopped> {
        let subject = Owned::new(if self.is_elastic() { elastic()? } else { allocator()? }, 1)?;
        self.churn_of(&subject, Churn { slots, sizes }, steps, end)
    }

    /// All steps are drawn before any is taken, and in both runs alike, so that drawing does not count.
    fn churn_of(self, subject: &impl Subject, churn: Churn, steps: usize, end: impl FnOnce()) -> Result<(), Stopped> {
        let slots = churn.slots;
        let mut churning = churn.begin(subject)?;
        churning.run(WARM_STEPS.max(2 * slots))?;
        let plan = churning.plan(2 * self.pairs());
        churning.follow(&plan[..steps])?;
        end();
        Ok(churning.end()?)
    }
}

fn allocator() -> Result<Allocator, Stopped> {
    allocator_on(device()?)
}

fn allocator_on(device: HostDevice) -> Result<Allocator, Stopped> {
    Ok(Allocator::with_config(Arc::new(device), &Config::builder().expandable_segments(false).build()?))
}

fn elastic() -> Result<Allocator, Stopped> {
    Ok(Allocator::new(Arc::new(device()?)))
}

fn device() -> Result<HostDevice, Stopped> {
    let config = HostConfig::default().phantom(true).capacity(CAPACITY);
    Ok(HostBackend::new(config)?.device(Ordinal(0))?)
}

/// An allocator with a history.
fn recorded(options: HistoryOptions) -> Result<Owned, Stopped> {
    let allocator = allocator()?;
    allocator.record_history(options);
    Ok(Owned::new(allocator, 1)?)
}

/// An allocator with a pending block in the heap of stream 0, which waits for stream 1 until the hold is dropped.
fn pending() -> Result<(Owned, Hold), Stopped> {
    let device = device()?;
    let subject = Owned::new(allocator_on(device.clone())?, 2)?;
    let [stream, side] = [0, 1].map(|number| subject.stream(number).handle());
    let allocator = subject.allocator();
    let hold = device.hold(side)?;
    // By address: another caller of the measured function would change its code.
    // SAFETY: both streams live as long as the allocator.
    let address = unsafe { allocator.allocate_raw(BYTES, stream) }?;
    // SAFETY: as above.
    unsafe { allocator.record_stream_raw(address, side) }?;
    allocator.free_raw(address)?;
    Ok((subject, hold))
}

fn run_pairs(subject: &impl Subject, pairs: usize) -> Result<(), Error> {
    repeat(subject, BYTES, 0, WARM_UP)?;
    repeat(subject, BYTES, 0, pairs)
}

fn take_turns(streams: usize, pairs: usize) -> Result<(), Stopped> {
    let subject = Owned::new(allocator()?, streams)?;
    Ok((0..WARM_UP + pairs).try_for_each(|pair| subject.pair(BYTES, pair % streams))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_is_found_by_its_own_name() {
        for case in Case::ALL {
            assert_eq!(Case::named(case.name()), Some(*case));
        }
        assert_eq!(Case::named("pair"), None);
    }

    #[test]
    fn the_cases_end_once() {
        for case in
            [Case::Pair, Case::PairRaw, Case::PairPinned, Case::PairHistory, Case::PairTwoStreams, Case::Churn1k]
        {
            for twice in [false, true] {
                let mut ends = 0;
                case.run(twice, || ends += 1).unwrap();
                assert_eq!(ends, 1, "{case:?}");
            }
        }
    }
}
