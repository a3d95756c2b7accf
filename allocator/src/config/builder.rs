//! Builds a configuration from values.

use super::error::{ConfigError, Problem};
use super::reserve::AddressReserve;
use super::roundup::{INTERVALS, Roundup};
use super::rule::{Rule, holds};
use super::{Config, ElasticSetting, Key, text};

/// Builds a [`Config`] from values; [`build`](Self::build) checks them all.
///
/// Each method sets what the getter of the same name on [`Config`] answers. Sizes whose keys end in `_mb`
/// are whole MiB, so that every configuration can be written as text.
///
/// ```
/// # use cachette::config::Config;
/// let config = Config::builder()
///     .max_split_bytes(64 << 20)
///     .never_block(true)
///     .build()?;
/// assert_eq!(config.to_string(), "max_split_size_mb:64,never_block:True");
/// # Ok::<(), cachette::config::ConfigError>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "nothing is configured until it is built"]
pub struct ConfigBuilder {
    config: Config,
}

impl ConfigBuilder {
    /// Begins with `config`.
    pub(super) const fn new(config: Config) -> Self {
        Self { config }
    }

    /// Checks every value; the first that breaks its key's rule is the error.
    pub fn build(self) -> Result<Config, ConfigError> {
        let mut config = self.config;
        for key in Key::ALL.iter().copied() {
            if !holds(&config, key) {
                let value = text::value(&config, key).unwrap_or_default();
                let rule = Rule::of(key, &config);
                let problem = Problem::Invalid { key, value, rule };
                return Err(ConfigError::without_text(problem));
            }
        }
        config.settle();
        Ok(config)
    }

    /// The size of a segment for allocations above 1 MiB and below 10 MiB.
    pub fn large_segment_bytes(mut self, bytes: u64) -> Self {
        self.config.large_segment_bytes = bytes;
        self
    }

    /// The size from which blocks are not split, or `None`.
    pub fn max_split_bytes(mut self, bytes: impl Into<Option<u64>>) -> Self {
        self.config.max_split_bytes = bytes.into();
        self
    }

    /// The waste admitted in blocks that are not split, or `None` for the size of a large segment.
    pub fn max_non_split_rounding_bytes(mut self, bytes: impl Into<Option<u64>>) -> Self {
        self.config.max_non_split_rounding_bytes = bytes.into();
        self
    }

    /// The fraction of the limit above which old blocks are given back, or `None`.
    pub fn gc_threshold(mut self, fraction: impl Into<Option<f64>>) -> Self {
        self.config.gc_threshold = fraction.into();
        self
    }

    /// The divisions of each interval of sizes: `[4; 16]` divides every power of two by four.
    pub fn roundup_divisions(mut self, by_interval: [u32; INTERVALS]) -> Self {
        self.config.roundup = Roundup::new(by_interval);
        self
    }

    /// Whether segments can grow where they stand.
    pub fn expandable_segments(mut self, on: bool) -> Self {
        self.config.expandable_segments = on;
        self
    }

    /// The address space an expandable segment reserves, or `None` for the full reserve.
    pub fn expandable_segments_reserve(mut self, reserve: impl Into<Option<AddressReserve>>) -> Self {
        self.config.reserve = reserve.into();
        self
    }

    /// Accepted so that settings can be carried over; it changes nothing.
    pub fn release_lock_on_malloc(mut self, on: bool) -> Self {
        self.config.release_lock_on_malloc = on;
        self
    }

    /// The fraction of the device's memory that may be reserved; 1 and `None` are no limit.
    pub fn memory_fraction(mut self, fraction: impl Into<Option<f64>>) -> Self {
        self.config.memory_fraction = fraction.into();
        self
    }

    /// The bytes that may be reserved on each device, or `None`.
    pub fn memory_limit(mut self, bytes: impl Into<Option<u64>>) -> Self {
        self.config.memory_limit = bytes.into();
        self
    }

    /// Whether a request that would pass the limit fails at once.
    pub fn throw_on_driver_oom(mut self, on: bool) -> Self {
        self.config.throw_on_driver_oom = on;
        self
    }

    /// Whether blocks used on several streams of a capture are reused once those have joined.
    pub fn graph_capture_record_stream_reuse(mut self, on: bool) -> Self {
        self.config.graph_capture_record_stream_reuse = on;
        self
    }

    /// Whether pinned memory is ordinary host memory that is registered.
    pub fn pinned_use_host_register(mut self, on: bool) -> Self {
        self.config.pinned_use_host_register = on;
        self
    }

    /// How many threads touch the pages of pinned memory: a power of two up to 128.
    pub fn pinned_register_threads(mut self, threads: u32) -> Self {
        self.config.pinned_register_threads = threads;
        self
    }

    /// The size of the pinned segment obtained at the start, or `None` for no such segment.
    pub fn pinned_reserve_segment_bytes(mut self, bytes: impl Into<Option<u64>>) -> Self {
        self.config.pinned_reserve_segment_bytes = bytes.into();
        self
    }

    /// Whether a thread of its own polls the events of pinned blocks.
    pub fn pinned_use_background_threads(mut self, on: bool) -> Self {
        self.config.pinned_use_background_threads = on;
        self
    }

    /// Whether a failure to free pinned memory is swallowed.
    pub fn pinned_free_catch_all(mut self, on: bool) -> Self {
        self.config.pinned_free_catch_all = on;
        self
    }

    /// How elastic segments weigh memory against calls to the driver.
    pub fn elastic_setting(mut self, setting: ElasticSetting) -> Self {
        self.config.elastic_setting = setting;
        self
    }

    /// The largest chunk that elastic segments are made of, in whole MiB; `None` for what the setting says.
    pub fn elastic_largest_chunk_bytes(mut self, bytes: impl Into<Option<u64>>) -> Self {
        self.config.elastic_largest_chunk_bytes = bytes.into();
        self
    }

    /// How much more memory may be held than was ever in use at once; `None` for what the setting says.
    pub fn elastic_slack_thousandths(mut self, slack: impl Into<Option<u64>>) -> Self {
        self.config.elastic_slack_thousandths = slack.into();
        self
    }

    /// Whether idle memory of elastic segments serves where it is needed.
    pub fn elastic_recycling(mut self, on: bool) -> Self {
        self.config.elastic_recycling = on;
        self
    }

    /// Whether every step that would wait for the device is left out when memory runs short.
    pub fn never_block(mut self, on: bool) -> Self {
        self.config.never_block = on;
        self
    }

    /// Whether a request may take a block that is idle on another stream.
    pub fn lend_across_streams(mut self, on: bool) -> Self {
        self.config.lend_across_streams = on;
        self
    }

    /// Whether freed memory is kept for reuse.
    pub fn caching(mut self, on: bool) -> Self {
        self.config.caching = on;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(builder: ConfigBuilder) -> Key {
        let error = builder.build().unwrap_err();
        assert_eq!(error.span(), None);
        match error.problem() {
            Problem::Invalid { key, .. } => *key,
            other => panic!("{other}"),
        }
    }

    #[test]
    fn values_obey_the_rules_of_the_text_form() {
        let builder = Config::builder;
        for (builder, key) in [
            (builder().large_segment_bytes(10 << 20), Key::LargeSegment),
            (builder().large_segment_bytes((20 << 20) + 1), Key::LargeSegment),
            (builder().max_split_bytes(19 << 20), Key::MaxSplit),
            (builder().max_non_split_rounding_bytes(0), Key::MaxNonSplitRounding),
            (builder().elastic_largest_chunk_bytes(1 << 20), Key::ElasticLargestChunk),
            (builder().elastic_slack_thousandths(1000), Key::ElasticSlack),
            (builder().gc_threshold(0.0), Key::GcThreshold),
            (builder().gc_threshold(f64::NAN), Key::GcThreshold),
            (builder().roundup_divisions([3; 16]), Key::Roundup),
            (builder().memory_fraction(1.1), Key::MemoryFraction),
            (builder().memory_fraction(f64::NAN), Key::MemoryFraction),
            (builder().memory_limit(0), Key::MemoryLimit),
            (builder().pinned_register_threads(0), Key::PinnedThreads),
            (builder().pinned_register_threads(256), Key::PinnedThreads),
            (builder().pinned_reserve_segment_bytes(0), Key::PinnedReserve),
            (builder().expandable_segments_reserve(AddressReserve::Fraction(2.0)), Key::AddressReserve),
            (builder().expandable_segments_reserve(AddressReserve::Bytes(0)), Key::AddressReserve),
        ] {
            assert_eq!(refused(builder), key);
        }
    }

    #[test]
    fn a_refusal_shows_the_value_and_what_is_allowed() {
        let error =
            Config::builder().large_segment_bytes(25 << 20).max_split_bytes((20 << 20) + 1).build().unwrap_err();
        assert_eq!(
            error.to_string(),
            "max_split_size_mb: '20971521 bytes' is not allowed; \
             use a whole number of MiB from 25 to 17592186044415"
        );
    }

    #[test]
    fn values_that_mean_the_default_are_the_default() {
        let config = Config::builder().max_non_split_rounding_bytes(20 << 20).memory_fraction(1.0).build();
        assert_eq!(config, Ok(Config::default()));
    }

    #[test]
    fn an_existing_configuration_can_be_changed() {
        let config: Config = "memory_limit:4G,never_block:True".parse().unwrap();
        let changed = config.to_builder().memory_limit(None).build().unwrap();
        assert_eq!(changed.to_string(), "never_block:True");
    }
}
