//! How the allocator behaves, as values and as text.
//!
//! [`Config::builder`] builds a [`Config`] from values, [`str::parse`] reads it from text, and [`Config::from_env`]
//! reads it from the environment. The text is `key:value,key:value`. White space is ignored, and a comma may end the
//! text. Keys and syntax are those of PyTorch, so existing settings can be pasted.
//!
//! A mistake is an error that shows its position and the allowed values. No key is ignored, except by
//! [`Config::update_known`] and [`Config::from_env_known`].
//!
//! The table below, `settings!`, lists the keys: a new key is one more row. CONTRIBUTING.md says which tests and pages
//! follow.

#![forbid(unsafe_code)]

mod error;
mod format;
mod parse;
mod roundup;
mod size;
mod table;
#[cfg(test)]
mod tests;
mod text;
mod values;

use format::{
    CLOSED_FRACTION, MEBIBYTE, MEBIBYTES_FROM_LARGE_SEGMENT, OPEN_FRACTION, SECONDS, SIZE, SWITCH, THREADS,
    mebibytes_from,
};
use roundup::DIVISIONS;
use table::settings;
use values::{BACKEND, ELASTIC_SETTING, PINNED, RESERVE};

pub use error::ConfigError;
pub use format::scale;
pub use roundup::Roundup;
pub use size::{parse_size, size_meant};
pub use values::{AddressReserve, ConfigBackend, ConfigPinned, ElasticSetting};

// A row is: field: type = default, "key" | "other spelling": format, "values" and "default" for the documentation.
settings! {
    /// Where memory comes from. It is chosen when an allocator is created.
    pub backend: ConfigBackend = ConfigBackend::Native,
        "backend": BACKEND, "`native` or `cudaMallocAsync`", "`native`";

    /// The size of a segment for allocations above 1 MiB and below 10 MiB. It is also the page of expandable segments
    /// for such sizes.
    pub large_segment_bytes: u64 = 20 * MEBIBYTE,
        "large_segment_size_mb": mebibytes_from::<11>(), "MiB, more than 10", "20";

    /// The size from which blocks are neither split nor used for smaller requests.
    ///
    /// `None` means that there is no such size.
    pub max_split_bytes: Option<u64> = None,
        "max_split_size_mb": MEBIBYTES_FROM_LARGE_SEGMENT, "MiB, at least the large segment", "no limit";

    /// How much larger than the request a block that may not be split can be.
    ///
    /// `None` means the size of a large segment.
    max_non_split_rounding: Option<u64> = None,
        "max_non_split_rounding_mb": MEBIBYTES_FROM_LARGE_SEGMENT, "MiB, at least the large segment",
        "the large segment";

    /// The fraction of the limit above which old blocks are freed before the device is asked for more.
    pub gc_threshold: Option<f64> = None,
        "garbage_collection_threshold": OPEN_FRACTION, "above 0, below 1", "off";

    /// Rounds a request up to the next of so many equal divisions of its power of two. A list has the divisions of each
    /// interval of sizes, by its start in MiB.
    pub roundup: Roundup = Roundup::OFF,
        "roundup_power2_divisions": DIVISIONS, "power of two, or list such as `[64:8,128:4,>:2]`", "off";

    /// Whether segments are elastic: they grow in place, and their idle memory moves to where it is needed. Devices
    /// without virtual memory that is known to work have direct segments regardless.
    pub expandable_segments: bool = true, "expandable_segments": SWITCH, "switch", "`True`";

    /// How much address space an expandable segment reserves.
    ///
    /// `None` means [`AddressReserve::full`].
    pub expandable_segments_reserve: Option<AddressReserve> = None,
        "expandable_segments_reserve": RESERVE, "fraction up to 1.125, or size such as `40G`", "the full reserve";

    /// Accepted for compatibility with PyTorch; the allocator never holds a lock while the device allocates.
    pub release_lock_on_malloc: bool = false,
        "release_lock_on_cudamalloc" | "release_lock_on_hipmalloc": SWITCH, "switch", "`False`";

    /// The fraction of the device's memory that may be reserved.
    ///
    /// It is below 1; `None` means all of the memory. The builder reads 1 as `None`.
    pub memory_fraction: Option<f64> = None,
        "per_process_memory_fraction": CLOSED_FRACTION, "0 to 1", "1";

    /// Whether a request beyond the limit fails at once, without any attempt to free memory.
    pub throw_on_driver_oom: bool = false,
        "throw_on_cudamalloc_oom" | "throw_on_hipmalloc_oom": SWITCH, "switch", "`False`";

    /// Whether memory used by several streams of a capture is reused inside the capture, once the streams have joined.
    /// Do not switch it on for captures with conditional nodes. See `docs/pools.md`.
    ///
    /// If not, that memory waits for the end of the capture. A program that switches this on promises that one thread
    /// at a time uses the streams of a capture and frees their memory: drivers show the nodes of a graph in place.
    /// A body of a conditional node runs never or many times, so it has no order with the nodes around it.
    pub graph_capture_record_stream_reuse: bool = false,
        "graph_capture_record_stream_reuse": SWITCH, "switch", "`False`";

    /// Whether pinned memory is ordinary host memory that is registered with the device.
    pub pinned_use_host_register: bool = false,
        "pinned_use_cuda_host_register" | "pinned_use_hip_host_register": SWITCH, "switch", "`False`";

    /// How many threads touch the pages of pinned memory before it is registered.
    pub pinned_register_threads: u32 = 1, "pinned_num_register_threads": THREADS, "power of two up to 128", "1";

    /// The size of the pinned segment that is allocated at the start.
    ///
    /// `None` means that there is no such segment.
    pub pinned_reserve_segment_bytes: Option<u64> = None,
        "pinned_reserve_segment_size_mb": mebibytes_from::<1>(), "MiB, more than 0", "none";

    /// The largest pinned block that is kept when freed. A larger one returns to the driver, which waits for the device.
    ///
    /// `None` means that there is no such size.
    pub pinned_max_cached_bytes: Option<u64> = None,
        "pinned_max_cached_size_mb": mebibytes_from::<0>(), "MiB", "no limit";

    /// Accepted for compatibility with PyTorch, which rounds pinned memory up to powers of two below this size. Cachette
    /// rounds to at most a page.
    ///
    /// `None` means that there is no such size.
    pub pinned_max_round_threshold_bytes: Option<u64> = None,
        "pinned_max_round_threshold_mb": mebibytes_from::<0>(), "MiB", "no limit";

    /// Whether a background thread polls the events of pinned blocks.
    pub pinned_use_background_threads: bool = false,
        "pinned_use_background_threads": SWITCH, "switch", "`False`";

    /// Whether a failure to free pinned memory is ignored.
    pub pinned_free_catch_all: bool = false, "pinned_free_catch_all": SWITCH, "switch", "`False`";

    /// The bytes that may be reserved on each device. A number below 2 MiB needs a unit, such as `512K` or `80B`.
    ///
    /// `None` means that there is no limit.
    pub memory_limit: Option<u64> = None, "memory_limit": SIZE, "size such as `40G`, or bytes", "no limit";

    /// Whose pinned memory PyTorch gets, if its allocator is replaced by the compiled class.
    pub pinned: ConfigPinned = ConfigPinned::Cachette, "pinned": PINNED, "`cachette` or `native`", "`cachette`";

    /// How elastic segments weigh memory against calls to the driver.
    pub elastic_setting: ElasticSetting = ElasticSetting::Default,
        "elastic_setting": ELASTIC_SETTING, "`default` or `compact`", "`default`";

    /// Whether other devices, such as network cards, can access the memory of elastic segments directly. They can
    /// without this key where the backend finds such a card.
    pub gpu_direct_rdma: bool = false, "gpu_direct_rdma": SWITCH, "switch", "`False`";

    /// Whether the allocator skips every step that would wait for the device when memory runs short.
    pub never_block: bool = false, "never_block": SWITCH, "switch", "`False`";

    /// Whether freed memory is kept for reuse; if not, every call goes to the device.
    pub caching: bool = true, "caching": SWITCH, "switch", "`True`";

    /// Whether processes of one user share the device: each gives idle memory to another one that runs short, and asks
    /// for it before a request fails. See `docs/sharing-a-card.md`.
    ///
    /// `None` means on in the Python package and under `cachette run`, and off otherwise.
    pub reclaim: Option<bool> = None,
        "reclaim": SWITCH, "switch", "`True` in Python and `cachette run`, else `False`";

    /// The bytes that this process may keep when others run short: below them it gives idle memory only, and evicts no
    /// pool for others. Who is furthest above its share gives first.
    ///
    /// `None` means no share: what is idle or evictable is given.
    pub reclaim_share: Option<u64> = None, "reclaim_share": SIZE, "size such as `40G`, or bytes", "none";

    /// For how many seconds a request that would fail waits for other processes to free memory.
    ///
    /// `None` means that it fails once they have been asked.
    pub reclaim_wait: Option<f64> = None, "reclaim_wait": SECONDS, "seconds, above 0", "off";

    /// After how many seconds idle memory returns to the device, although nobody asks for it. For neighbours without
    /// Cachette.
    ///
    /// `None` means that it stays until it is needed.
    pub idle_release: Option<f64> = None, "idle_release": SECONDS, "seconds, above 0", "off";

    /// The bytes that stay available to the host where it shares its memory with the device. The allocator takes none of
    /// them, and releases idle memory when other programs do.
    ///
    /// `None` means a twentieth of the device's memory.
    pub host_reserve: Option<u64> = None,
        "host_reserve": SIZE, "size such as `4G`, or bytes", "a twentieth of the memory";
}

/// A key of the text form, and how it reads and writes a configuration.
#[derive(Debug)]
pub struct ConfigKey {
    /// Every spelling that is read; the first one is written.
    spellings: &'static [&'static str],
    /// The lines of the documentation; an empty one ends a paragraph.
    doc: &'static [&'static str],
    values: &'static str,
    default: &'static str,
    /// Sets the value to that of a word; `None` if the word has another form.
    set: fn(&mut Config, &str) -> Option<()>,
    /// The value as a word that `set` reads; `None` if it is the default.
    text: fn(&Config) -> Option<String>,
    is_allowed: fn(&Config) -> bool,
    /// The allowed values; completes the sentence "use …".
    rule: fn(&Config) -> String,
}

/// Keys that Cachette had, and what replaces each.
static REMOVED: &[(&str, &str)] = &[
    ("elastic_largest_chunk_mb", "elastic_setting chooses the sizes of chunks"),
    ("elastic_slack", "elastic_setting:compact holds the least memory"),
    ("elastic_recycling", "idle memory always moves; expandable_segments:False has direct segments"),
    ("lend_across_streams", "elastic segments, the default, move idle memory between streams"),
];

/// The text of a key in a table.
fn text_of(table: &'static [(&str, &str)], word: &str) -> Option<&'static str> {
    table.iter().find(|(key, _)| *key == word).map(|(_, text)| *text)
}

impl ConfigKey {
    /// Every key, in the order in which a configuration is written.
    #[must_use]
    pub fn all() -> &'static [Self] {
        KEYS
    }

    /// The key of a name. The error of an unknown one suggests the most similar.
    pub fn of(name: &str) -> Result<&'static Self, ConfigError> {
        Self::find(name).ok_or_else(|| Self::unknown(name))
    }

    /// The spelling that is written.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.spellings[0]
    }

    /// Every spelling that is read; the first is [`name`](Self::name).
    #[must_use]
    pub const fn spellings(&self) -> &'static [&'static str] {
        self.spellings
    }

    /// The allowed values in a few words, in Markdown.
    #[must_use]
    pub const fn values(&self) -> &'static str {
        self.values
    }

    /// The value of the default configuration in a few words, in Markdown.
    #[must_use]
    pub const fn default_value(&self) -> &'static str {
        self.default
    }

    /// What the key does, in a few sentences.
    #[must_use]
    pub fn description(&self) -> String {
        // The first paragraph; the others describe the values of the Rust type.
        let lines = self.doc.iter().map(|line| line.trim()).take_while(|line| !line.is_empty());
        lines.collect::<Vec<_>>().join(" ")
    }

    fn find(word: &str) -> Option<&'static Self> {
        KEYS.iter().find(|key| key.spellings.contains(&word))
    }

    fn is_removed(word: &str) -> bool {
        text_of(REMOVED, word).is_some()
    }

    fn unknown(word: &str) -> ConfigError {
        if let Some(instead) = text_of(REMOVED, word) {
            return ConfigError::new(format!("{word} was removed and has no effect: {instead}; delete the key"));
        }
        let suggestion = Self::closest(word).map_or(String::new(), |name| format!(" (did you mean '{name}'?)"));
        let word = error::shortened(word);
        ConfigError::new(format!("there is no key '{word}'{suggestion}; the keys are {}", Self::names()))
    }

    /// Every key, separated by commas.
    ///
    /// It is not inlined: LLVM 22 would optimize its caller and the lengths of all keys together for minutes.
    #[inline(never)]
    fn names() -> String {
        let all: Vec<_> = KEYS.iter().map(Self::name).collect();
        all.join(", ")
    }

    /// The spelling most similar to `word`, if at most a third of its letters differ, or the only one that contains it.
    fn closest(word: &str) -> Option<&'static str> {
        let word = &*word.to_ascii_lowercase();
        let letters = word.chars().count();
        let spellings = || KEYS.iter().flat_map(|key| key.spellings);
        let mut containing = spellings().filter(|name| letters > 3 && name.contains(word));
        spellings()
            // The distance is at least the difference of the lengths, so long words are never compared.
            .filter(|name| letters.abs_diff(name.len()) <= name.len() / 3)
            .map(|name| (strsim::levenshtein(word, name), *name))
            .filter(|(distance, name)| *distance <= name.len() / 3)
            .min_by_key(|(distance, _)| *distance)
            .map(|(_, name)| name)
            .or_else(|| containing.next().copied().filter(|_| containing.next().is_none()))
    }

    fn refuse(&self, value: &str, config: &Config) -> ConfigError {
        let rule = (self.rule)(config);
        let is_size = ["memory_limit", "reclaim_share"].contains(&self.name());
        let meant = size_meant(value).filter(|_| is_size);
        let meant = meant.map_or(String::new(), |meant| format!(" (did you mean {meant}?)"));
        ConfigError::not_allowed(self.name(), value, &(rule + &meant))
    }
}

impl Config {
    /// The same configuration with another backend.
    #[must_use]
    pub const fn with_backend(mut self, backend: ConfigBackend) -> Self {
        self.backend = backend;
        self
    }

    /// A builder that starts from the default.
    pub fn builder() -> ConfigBuilder {
        Self::DEFAULT.to_builder()
    }

    /// A builder that starts from this configuration.
    pub fn to_builder(&self) -> ConfigBuilder {
        ConfigBuilder { config: self.clone() }
    }

    /// How much larger than the request a block that may not be split can be.
    #[must_use]
    pub fn max_non_split_rounding_bytes(&self) -> u64 {
        self.max_non_split_rounding().unwrap_or(self.large_segment_bytes)
    }

    /// The divisions of each interval of sizes; interval `i` begins at `2^i` MiB.
    #[must_use]
    pub const fn roundup_divisions(&self) -> &[u32; 16] {
        &self.roundup.0
    }

    /// The lower of the two limits on a device with `total` bytes; `None` for no limit.
    #[must_use]
    pub fn limit_bytes(&self, total: u64) -> Option<u64> {
        let fraction = self.memory_fraction.and_then(|fraction| scale(total, fraction));
        [fraction, self.memory_limit].into_iter().flatten().min()
    }

    /// Stores equal values in one form, so that equal configurations compare equal.
    fn normalise(mut self) -> Self {
        self.max_non_split_rounding = self.max_non_split_rounding.filter(|bytes| *bytes != self.large_segment_bytes);
        self.memory_fraction = self.memory_fraction.filter(|fraction| *fraction < 1.0);
        self
    }
}

/// Builds a [`Config`] from values; [`build`](Self::build) checks them all.
///
/// Each setter has the name of the getter on [`Config`]. Sizes whose keys end in `_mb` are whole MiB, so that every
/// configuration can be written as text.
///
/// ```
/// # use cachette_config::Config;
/// let config = Config::builder().max_split_bytes(64 << 20).never_block(true).build()?;
/// assert_eq!(config.to_string(), "max_split_size_mb:64,never_block:True");
/// # Ok::<(), cachette_config::ConfigError>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "call `build` to get the configuration"]
pub struct ConfigBuilder {
    config: Config,
}

impl ConfigBuilder {
    /// Checks every value, and reports the first that its key does not allow.
    pub fn build(self) -> Result<Config, ConfigError> {
        let config = self.config;
        match KEYS.iter().find(|key| !(key.is_allowed)(&config)) {
            Some(key) => Err(key.refuse(&(key.text)(&config).unwrap_or_default(), &config)),
            None => Ok(config.normalise()),
        }
    }

    /// How much larger than the request a block that may not be split can be; `None` for the size of a large segment.
    pub fn max_non_split_rounding_bytes(self, bytes: impl Into<Option<u64>>) -> Self {
        self.max_non_split_rounding(bytes)
    }

    /// The divisions of each interval of sizes: `[4; 16]` divides every power of two by four.
    pub fn roundup_divisions(self, by_interval: [u32; 16]) -> Self {
        self.roundup(Roundup(by_interval))
    }
}
