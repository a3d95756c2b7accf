//! How the allocator behaves, as values and as text.
//!
//! A [`Config`] is built by [`Config::builder`], read from text, or read from the environment by
//! [`Config::from_env`]. The text is `key:value,key:value`; white space is dropped and a last comma is
//! accepted. Keys and syntax are those of PyTorch, so that an existing setting can be pasted. A mistake
//! is answered with its place in the text and the values allowed; nothing is ignored or guessed, unless
//! [`Config::update_known`] is asked for.
//!
//! | key | value | default |
//! |---|---|---|
//! | `backend` | `native` alone | `native` |
//! | `large_segment_size_mb` | MiB, more than 10 | 20 |
//! | `max_split_size_mb` | MiB, at least the large segment | no limit |
//! | `max_non_split_rounding_mb` | MiB, at least the large segment | the large segment |
//! | `garbage_collection_threshold` | above 0, below 1 | off |
//! | `roundup_power2_divisions` | power of two, or list such as `[64:8,128:4,>:2]` | off |
//! | `expandable_segments` | switch | `False` |
//! | `expandable_segments_reserve` | fraction up to 1.125, or size such as `40G` | the full reserve |
//! | `release_lock_on_cudamalloc`, `release_lock_on_hipmalloc` | switch | `False` |
//! | `per_process_memory_fraction` | 0 to 1 | 1 |
//! | `throw_on_cudamalloc_oom`, `throw_on_hipmalloc_oom` | switch | `False` |
//! | `graph_capture_record_stream_reuse` | switch | `False` |
//! | `pinned_use_cuda_host_register`, `pinned_use_hip_host_register` | switch | `False` |
//! | `pinned_num_register_threads` | power of two up to 128 | 1 |
//! | `pinned_reserve_segment_size_mb` | MiB, more than 0 | none |
//! | `pinned_use_background_threads` | switch | `False` |
//! | `pinned_free_catch_all` | switch | `False` |
//! | `memory_limit` | size such as `40G`, or bytes | no limit |
//! | `elastic_setting` | `default`, `compact` or `quick` | `default` |
//! | `elastic_largest_chunk_mb` | MiB, from 2 | what the setting says |
//! | `elastic_slack` | number from 0, below 1 | what the setting says |
//! | `elastic_recycling` | switch | `True` |
//! | `never_block` | switch | `False` |
//! | `lend_across_streams` | switch | `False` |
//! | `caching` | switch | `True` |
//!
//! A switch is `True` or `False`, spelt so. Two spellings in one row are the same key. The last nine keys
//! are Cachette's own. PyTorch's `expandable_segments_reserve_by_class` is refused: streams have no class here.
//! What each key does is said at the getter of [`Config`] that answers it.

#![forbid(unsafe_code)]

mod builder;
mod elastic;
mod env;
mod error;
mod keys;
mod lex;
mod number;
mod parse;
mod reserve;
mod roundup;
mod rule;
#[cfg(test)]
mod tests;
mod text;
mod update;

use std::fmt;
use std::str::FromStr;

use number::scale;
pub(crate) use roundup::Roundup;

pub use builder::ConfigBuilder;
pub use elastic::ElasticSetting;
pub use error::{ConfigError, Problem};
pub use keys::Key;
pub use reserve::AddressReserve;
pub use rule::Rule;

/// How the allocator behaves.
///
/// Every value in one obeys the rule of its key. Its text form names only what differs from the default,
/// and reads back as the same configuration.
///
/// ```
/// # use cachette::config::Config;
/// let config: Config = "expandable_segments:True, max_split_size_mb:64".parse()?;
/// assert!(config.expandable_segments());
/// assert_eq!(config.max_split_bytes(), Some(64 << 20));
/// assert_eq!(config.to_string(), "max_split_size_mb:64,expandable_segments:True");
/// # Ok::<(), cachette::config::ConfigError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch that users name, independent of the others")]
pub struct Config {
    large_segment_bytes: u64,
    max_split_bytes: Option<u64>,
    /// `None` stands for the size of a large segment.
    max_non_split_rounding_bytes: Option<u64>,
    gc_threshold: Option<f64>,
    roundup: Roundup,
    expandable_segments: bool,
    reserve: Option<AddressReserve>,
    release_lock_on_malloc: bool,
    /// Never 1, which is no limit and therefore `None`.
    memory_fraction: Option<f64>,
    memory_limit: Option<u64>,
    throw_on_driver_oom: bool,
    graph_capture_record_stream_reuse: bool,
    pinned_use_host_register: bool,
    pinned_register_threads: u32,
    pinned_reserve_segment_bytes: Option<u64>,
    pinned_use_background_threads: bool,
    pinned_free_catch_all: bool,
    elastic_setting: ElasticSetting,
    elastic_largest_chunk_bytes: Option<u64>,
    elastic_slack_thousandths: Option<u64>,
    elastic_recycling: bool,
    never_block: bool,
    lend_across_streams: bool,
    caching: bool,
}

impl Config {
    /// Begins with the default.
    pub fn builder() -> ConfigBuilder {
        Self::default().to_builder()
    }

    /// Begins with this configuration.
    pub fn to_builder(&self) -> ConfigBuilder {
        ConfigBuilder::new(self.clone())
    }

    /// The size of a segment for allocations above 1 MiB and below 10 MiB.
    ///
    /// It is also the page of expandable segments for such sizes.
    #[must_use]
    pub const fn large_segment_bytes(&self) -> u64 {
        self.large_segment_bytes
    }

    /// The size from which blocks are neither split nor lent to smaller requests; `None` for no such size.
    #[must_use]
    pub const fn max_split_bytes(&self) -> Option<u64> {
        self.max_split_bytes
    }

    /// How much larger than the request a block that may not be split can be and still serve it.
    #[must_use]
    pub fn max_non_split_rounding_bytes(&self) -> u64 {
        self.max_non_split_rounding_bytes.unwrap_or(self.large_segment_bytes)
    }

    /// The fraction of the limit above which old blocks are given back before the device is asked for more.
    #[must_use]
    pub const fn gc_threshold(&self) -> Option<f64> {
        self.gc_threshold
    }

    /// Into how many steps the power of two below `size` is divided for rounding up; 0 and 1 for no steps.
    #[must_use]
    pub fn divisions(&self, size: u64) -> u32 {
        self.roundup.divisions(size)
    }

    /// The divisions of all intervals, as placement keeps them.
    pub(crate) const fn roundup(&self) -> &Roundup {
        &self.roundup
    }

    /// The divisions of each interval of sizes; interval `i` begins at `2^i` MiB.
    #[must_use]
    pub const fn roundup_divisions(&self) -> &[u32; 16] {
        self.roundup.by_interval()
    }

    /// Whether segments can grow where they stand.
    #[must_use]
    pub const fn expandable_segments(&self) -> bool {
        self.expandable_segments
    }

    /// How much address space an expandable segment reserves; `None` means [`AddressReserve::full`].
    #[must_use]
    pub const fn expandable_segments_reserve(&self) -> Option<AddressReserve> {
        self.reserve
    }

    /// Accepted so that settings can be pasted; no lock is ever held while the device allocates.
    #[must_use]
    pub const fn release_lock_on_malloc(&self) -> bool {
        self.release_lock_on_malloc
    }

    /// The fraction of the device's memory that may be reserved, below 1; `None` for all of it.
    #[must_use]
    pub const fn memory_fraction(&self) -> Option<f64> {
        self.memory_fraction
    }

    /// The bytes that may be reserved on each device.
    #[must_use]
    pub const fn memory_limit(&self) -> Option<u64> {
        self.memory_limit
    }

    /// The lower of the two limits on a device with `total` bytes; `None` for no limit.
    #[must_use]
    pub fn limit_bytes(&self, total: u64) -> Option<u64> {
        let fraction = self.memory_fraction.and_then(|fraction| scale(total, fraction));
        [fraction, self.memory_limit].into_iter().flatten().min()
    }

    /// Whether a request that would pass the limit fails at once, without any attempt to make room.
    #[must_use]
    pub const fn throw_on_driver_oom(&self) -> bool {
        self.throw_on_driver_oom
    }

    /// Whether memory that several streams of one capture used is reused inside it, once those streams have joined.
    ///
    /// Otherwise it waits for the end of the capture. Who switches this on promises that one thread at a time uses the
    /// streams of a capture and frees what they used, for drivers show the nodes of a graph in place. It must be off for
    /// captures with conditional nodes: a body that runs never or many times has no order with what is around it.
    /// `docs/pools.md` says more.
    #[must_use]
    pub const fn graph_capture_record_stream_reuse(&self) -> bool {
        self.graph_capture_record_stream_reuse
    }

    /// Whether pinned memory is ordinary host memory that is registered with the device.
    #[must_use]
    pub const fn pinned_use_host_register(&self) -> bool {
        self.pinned_use_host_register
    }

    /// How many threads touch the pages of pinned memory before it is registered.
    #[must_use]
    pub const fn pinned_register_threads(&self) -> u32 {
        self.pinned_register_threads
    }

    /// The size of the pinned segment obtained at the start, if there is to be one.
    #[must_use]
    pub const fn pinned_reserve_segment_bytes(&self) -> Option<u64> {
        self.pinned_reserve_segment_bytes
    }

    /// Whether a thread of its own polls the events of pinned blocks.
    #[must_use]
    pub const fn pinned_use_background_threads(&self) -> bool {
        self.pinned_use_background_threads
    }

    /// Whether a failure to free pinned memory is swallowed.
    #[must_use]
    pub const fn pinned_free_catch_all(&self) -> bool {
        self.pinned_free_catch_all
    }

    /// How elastic segments weigh memory against calls to the driver.
    #[must_use]
    pub const fn elastic_setting(&self) -> ElasticSetting {
        self.elastic_setting
    }

    /// The largest chunk that elastic segments are made of, if not what the setting says.
    #[must_use]
    pub const fn elastic_largest_chunk_bytes(&self) -> Option<u64> {
        self.elastic_largest_chunk_bytes
    }

    /// How much more memory elastic segments may hold than was ever in use at once before memory that lies idle
    /// must serve, in thousandths, if not what the setting says.
    #[must_use]
    pub const fn elastic_slack_thousandths(&self) -> Option<u64> {
        self.elastic_slack_thousandths
    }

    /// Whether idle memory of elastic segments serves where it is needed.
    #[must_use]
    pub const fn elastic_recycling(&self) -> bool {
        self.elastic_recycling
    }

    /// Whether every step that would wait for the device is left out when memory runs short.
    #[must_use]
    pub const fn never_block(&self) -> bool {
        self.never_block
    }

    /// Whether a request may take a block that is idle on another stream.
    #[must_use]
    pub const fn lend_across_streams(&self) -> bool {
        self.lend_across_streams
    }

    /// Whether freed memory is kept for reuse; if not, every call goes to the device.
    #[must_use]
    pub const fn caching(&self) -> bool {
        self.caching
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            large_segment_bytes: 20 * number::MEBIBYTE,
            max_split_bytes: None,
            max_non_split_rounding_bytes: None,
            gc_threshold: None,
            roundup: Roundup::default(),
            expandable_segments: false,
            reserve: None,
            release_lock_on_malloc: false,
            memory_fraction: None,
            memory_limit: None,
            throw_on_driver_oom: false,
            graph_capture_record_stream_reuse: false,
            pinned_use_host_register: false,
            pinned_register_threads: 1,
            pinned_reserve_segment_bytes: None,
            pinned_use_background_threads: false,
            pinned_free_catch_all: false,
            elastic_setting: ElasticSetting::Default,
            elastic_largest_chunk_bytes: None,
            elastic_slack_thousandths: None,
            elastic_recycling: true,
            never_block: false,
            lend_across_streams: false,
            caching: true,
        }
    }
}

impl FromStr for Config {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut config = Self::default();
        config.update(text)?;
        Ok(config)
    }
}

impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut comma = "";
        for key in Key::ALL {
            if let Some(value) = text::value(self, *key) {
                write!(f, "{comma}{key}:{value}")?;
                comma = ",";
            }
        }
        Ok(())
    }
}
