//! The values of a configuration, to text and back.

use super::elastic::ElasticSetting;
use super::error::{ConfigError, Fault, Problem};
use super::number::{
    decimal, mebibytes, mebibytes_text, size_text, size_with_unit, thousandths, thousandths_text, whole,
};
use super::parse::{ConfigEntry, Value, parse};
use super::reserve::AddressReserve;
use super::roundup::Roundup;
use super::rule::holds;
use super::{Config, Key, Rule};

/// Sets on `config` what `text` says; after an error it is half set. `unknown` is told of every key that there is not.
pub(super) fn apply(
    config: &mut Config,
    text: &str,
    unknown: impl FnMut(Fault) -> Result<(), Fault>,
) -> Result<(), ConfigError> {
    let located = |fault| ConfigError::in_text(fault, text);
    let entries = parse(text, unknown).map_err(located)?;
    // The size of large segments bounds other values, wherever in the text it stands.
    let (first, rest): (Vec<_>, Vec<_>) = entries.iter().partition(|entry| entry.key == Key::LargeSegment);
    for entry in first.into_iter().chain(rest) {
        apply_entry(config, entry, text).map_err(located)?;
    }
    Ok(())
}

/// Sets what one entry says.
fn apply_entry(config: &mut Config, entry: &ConfigEntry, text: &str) -> Result<(), Fault> {
    let key = entry.key;
    match (&entry.value, key) {
        (Value::Word(word), _) => {
            if set(config, key, &word.text).is_some() && holds(config, key) {
                return Ok(());
            }
            Err(Fault::invalid(key, word, Rule::of(key, config)))
        }
        (Value::List { pairs, .. }, Key::Roundup) => {
            config.roundup = Roundup::from_list(pairs)?;
            Ok(())
        }
        (Value::List { span, .. }, _) => {
            let value = text[span.clone()].split_whitespace().collect();
            let rule = Rule::of(key, config);
            Err(Fault::new(Problem::Invalid { key, value, rule }, span))
        }
    }
}

/// Sets the value of `key` to what `word` says; `None` if it says nothing of the key's type.
fn set(config: &mut Config, key: Key, word: &str) -> Option<()> {
    match key {
        Key::Backend => (word == "native").then_some(())?,
        Key::LargeSegment => config.large_segment_bytes = mebibytes(word)?,
        Key::MaxSplit => config.max_split_bytes = Some(mebibytes(word)?),
        Key::MaxNonSplitRounding => config.max_non_split_rounding_bytes = Some(mebibytes(word)?),
        Key::GcThreshold => config.gc_threshold = Some(decimal(word)?),
        Key::Roundup => config.roundup = Roundup::read(word)?,
        Key::ExpandableSegments => config.expandable_segments = switch(word)?,
        Key::AddressReserve => config.reserve = Some(AddressReserve::read(word)?),
        Key::ReleaseLock => config.release_lock_on_malloc = switch(word)?,
        Key::MemoryFraction => config.memory_fraction = Some(decimal(word)?),
        Key::ThrowOnDriverOom => config.throw_on_driver_oom = switch(word)?,
        Key::CaptureReuse => config.graph_capture_record_stream_reuse = switch(word)?,
        Key::PinnedHostRegister => config.pinned_use_host_register = switch(word)?,
        Key::PinnedThreads => config.pinned_register_threads = whole(word)?.try_into().ok()?,
        Key::PinnedReserve => config.pinned_reserve_segment_bytes = Some(mebibytes(word)?),
        Key::PinnedBackground => config.pinned_use_background_threads = switch(word)?,
        Key::PinnedCatchAll => config.pinned_free_catch_all = switch(word)?,
        Key::MemoryLimit => {
            config.memory_limit = Some(whole(word).or_else(|| size_with_unit(word))?);
        }
        Key::ElasticSetting => config.elastic_setting = ElasticSetting::read(word)?,
        Key::ElasticLargestChunk => config.elastic_largest_chunk_bytes = Some(mebibytes(word)?),
        Key::ElasticSlack => config.elastic_slack_thousandths = Some(thousandths(word)?),
        Key::ElasticRecycling => config.elastic_recycling = switch(word)?,
        Key::NeverBlock => config.never_block = switch(word)?,
        Key::LendAcrossStreams => config.lend_across_streams = switch(word)?,
        Key::Caching => config.caching = switch(word)?,
    }
    Some(())
}

/// The value of `key` in words that [`set`] reads, or `None` where it is the default.
pub(super) fn value(config: &Config, key: Key) -> Option<String> {
    let default = Config::default();
    let changed = |value: bool, usual: bool| (value != usual).then(|| switch_text(value));
    let on = |value: bool| changed(value, false);
    match key {
        Key::Backend => None,
        Key::LargeSegment => (config.large_segment_bytes != default.large_segment_bytes)
            .then(|| mebibytes_text(config.large_segment_bytes)),
        Key::MaxSplit => config.max_split_bytes.map(mebibytes_text),
        Key::MaxNonSplitRounding => config.max_non_split_rounding_bytes.map(mebibytes_text),
        Key::GcThreshold => config.gc_threshold.map(|value| value.to_string()),
        Key::Roundup => (config.roundup != default.roundup).then(|| config.roundup.to_string()),
        Key::ExpandableSegments => on(config.expandable_segments),
        Key::AddressReserve => config.reserve.map(|value| value.to_string()),
        Key::ReleaseLock => on(config.release_lock_on_malloc),
        Key::MemoryFraction => config.memory_fraction.map(|value| value.to_string()),
        Key::ThrowOnDriverOom => on(config.throw_on_driver_oom),
        Key::CaptureReuse => on(config.graph_capture_record_stream_reuse),
        Key::PinnedHostRegister => on(config.pinned_use_host_register),
        Key::PinnedThreads => (config.pinned_register_threads != default.pinned_register_threads)
            .then(|| config.pinned_register_threads.to_string()),
        Key::PinnedReserve => config.pinned_reserve_segment_bytes.map(mebibytes_text),
        Key::PinnedBackground => on(config.pinned_use_background_threads),
        Key::PinnedCatchAll => on(config.pinned_free_catch_all),
        Key::MemoryLimit => config.memory_limit.map(size_text),
        Key::ElasticSetting => {
            (config.elastic_setting != default.elastic_setting).then(|| config.elastic_setting.to_string())
        }
        Key::ElasticLargestChunk => config.elastic_largest_chunk_bytes.map(mebibytes_text),
        Key::ElasticSlack => config.elastic_slack_thousandths.map(thousandths_text),
        Key::ElasticRecycling => changed(config.elastic_recycling, default.elastic_recycling),
        Key::NeverBlock => on(config.never_block),
        Key::LendAcrossStreams => on(config.lend_across_streams),
        Key::Caching => changed(config.caching, default.caching),
    }
}

/// Reads a switch, by the letter: `true` is a mistake here as it is in PyTorch.
fn switch(word: &str) -> Option<bool> {
    match word {
        "True" => Some(true),
        "False" => Some(false),
        _ => None,
    }
}

/// Writes a switch.
fn switch_text(value: bool) -> String {
    let word = if value { "True" } else { "False" };
    word.to_owned()
}
