//! The parameters that trade the cost of moving chunks against the memory saved.

use crate::config::ElasticSetting;

const MIB: u64 = 1 << 20;

/// How elastic segments are filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tuning {
    /// The largest new chunk in bytes, except for very large requests. Zero always selects one page.
    pub(crate) largest: u64,
    /// How many requests should share the cost of one created or moved chunk.
    pub(crate) chunk_cost: u64,
    /// The same for a program of small requests.
    pub(crate) small_chunk_cost: u64,
    /// How far the held bytes may exceed the peak of bytes in use before idle chunks must be moved, in thousandths.
    pub(crate) slack: u64,
    /// The same margin over the bytes held so far, in steady state while chunks still move.
    pub(crate) steady_state: u64,
    /// Whether idle chunks are moved at all.
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
    /// The parameters of each setting. docs/elastic.md lists their costs and savings.
    pub(crate) const fn of_setting(setting: ElasticSetting) -> Self {
        let (largest, chunk_cost, small_chunk_cost, slack, steady_state) = match setting {
            ElasticSetting::Default => (64 * MIB, 70, 30, 5, 5),
            ElasticSetting::Compact => (0, 0, 0, 0, 0),
        };
        Self { largest, chunk_cost, small_chunk_cost, slack, steady_state, recycles: true, whole: false }
    }

    /// The same, for a device on which all chunks must have one size: that of a page, which holds the least memory.
    pub(crate) const fn with_one_size(self) -> Self {
        Self { largest: 0, whole: false, ..self }
    }
}
