//! What may be spent on saving memory, and how much must be saved.

use crate::config::{Config, ElasticSetting};

const MIB: u64 = 1 << 20;
/// A request from here on comes in few pieces.
const VERY_LARGE: u64 = 256 * MIB;
/// In how many at most: another process opens them one by one.
const FEW: u64 = 16;

/// How elastic segments are filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tuning {
    /// The largest new chunk, in bytes, but for very large requests; zero for one page always.
    pub(crate) largest: u64,
    /// The largest part of all that is held that a new chunk may be, as its divisor; zero for any part.
    pub(crate) part: u64,
    /// How many requests a chunk that is created or moved should be shared by.
    pub(crate) price: u64,
    /// How much more memory may be held than was ever in use at once before spare chunks must serve, in
    /// thousandths.
    pub(crate) slack: u64,
    /// How much more it may hold than it did already, once the program repeats itself and chunks still move.
    pub(crate) calm: u64,
    /// Whether small blocks gather at low addresses as large ones do: a request gets the first free block that is
    /// large enough, and not the one that fits best.
    pub(crate) packs: bool,
    /// Whether spare chunks serve elsewhere at all.
    pub(crate) recycles: bool,
    /// Whether a large request gets new memory in whole segments, as many as it needs.
    pub(crate) whole: bool,
}

impl Default for Tuning {
    fn default() -> Self {
        Self::of_setting(ElasticSetting::Default)
    }
}

impl Tuning {
    /// What each setting stands for; docs/elastic.md shows what they cost and save.
    pub(crate) const fn of_setting(setting: ElasticSetting) -> Self {
        let (largest, part, price, slack, calm) = match setting {
            ElasticSetting::Default => (64 * MIB, 512, 100, 5, 15),
            ElasticSetting::Compact => (0, 0, 0, 0, 0),
            ElasticSetting::Quick => (64 * MIB, 0, 100, 5, 15),
        };
        Self {
            largest,
            part,
            price,
            slack,
            calm,
            packs: matches!(setting, ElasticSetting::Compact),
            recycles: true,
            whole: false,
        }
    }

    /// What a configuration asks for: a setting, and what it changes of that.
    pub(crate) fn of(config: &Config) -> Self {
        let mut tuning = Self::of_setting(config.elastic_setting());
        if let Some(bytes) = config.elastic_largest_chunk_bytes() {
            tuning.largest = bytes;
        }
        if let Some(slack) = config.elastic_slack_thousandths() {
            tuning.slack = slack;
            tuning.calm = 0;
        }
        tuning.recycles = config.elastic_recycling();
        tuning
    }

    /// The largest new chunk for a request, while so many bytes are held: what fills much may come in larger pieces.
    pub(crate) fn largest_for(&self, request: u64, held: u64) -> u64 {
        if self.largest == 0 {
            return 0;
        }
        let part = (held + request).checked_div(self.part);
        self.largest.min(part.unwrap_or(u64::MAX)).max(request / 32)
    }

    /// The smallest new chunk for a request, but for the last.
    pub(crate) const fn least_for(&self, request: u64) -> u64 {
        if self.largest == 0 || request < VERY_LARGE {
            return 0;
        }
        request.div_ceil(FEW)
    }

    /// The same, but every chunk stays where it is.
    pub(crate) const fn without_recycling(mut self) -> Self {
        self.recycles = false;
        self
    }
}
