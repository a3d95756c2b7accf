//! What each key accepts, refuses and sets.

use super::FULL;
use crate::config::roundup::Roundup;
use crate::config::{AddressReserve, Config, ElasticSetting, Key, Problem, Rule};

const MIB: u64 = 1 << 20;

fn refused(text: &str) -> (Key, String, Rule) {
    let error = text.parse::<Config>().unwrap_err();
    match error.problem().clone() {
        Problem::Invalid { key, value, rule } => (key, value, rule),
        other => panic!("{text}: {other}"),
    }
}

/// `AllocatorConfig_test`: every key reaches its value.
#[test]
fn every_key_reaches_its_value() {
    let config: Config = FULL.parse().unwrap();
    assert_eq!(config.large_segment_bytes(), 25 * MIB);
    assert_eq!(config.max_split_bytes(), Some(40 * MIB));
    assert_eq!(config.max_non_split_rounding_bytes(), 30 * MIB);
    assert_eq!(config.gc_threshold(), Some(0.5));
    assert_eq!(config.divisions(128 * MIB), 2);
    assert!(config.expandable_segments());
    assert_eq!(config.expandable_segments_reserve(), Some(AddressReserve::Fraction(0.9)));
    assert!(config.release_lock_on_malloc());
    assert_eq!(config.memory_fraction(), Some(0.75));
    assert!(config.throw_on_driver_oom());
    assert!(config.graph_capture_record_stream_reuse());
    assert!(config.pinned_use_host_register());
    assert_eq!(config.pinned_register_threads(), 8);
    assert_eq!(config.pinned_reserve_segment_bytes(), Some(64 * MIB));
    assert!(config.pinned_use_background_threads());
    assert!(config.pinned_free_catch_all());
    assert_eq!(config.memory_limit(), Some(40 << 30));
    assert_eq!(config.elastic_setting(), ElasticSetting::Quick);
    assert_eq!(config.elastic_largest_chunk_bytes(), Some(32 * MIB));
    assert_eq!(config.elastic_slack_thousandths(), Some(15));
    assert!(!config.elastic_recycling());
    assert!(config.never_block());
    assert!(config.lend_across_streams());
    assert!(!config.caching());
}

#[test]
fn the_written_form_uses_the_first_spelling_and_leaves_the_backend_out() {
    let written = FULL.parse::<Config>().unwrap().to_string();
    let expected = FULL
        .replace("backend:native,", "")
        .replace("_on_hipmalloc", "_on_cudamalloc")
        .replace("use_hip_host", "use_cuda_host");
    assert_eq!(written, expected);
    assert_eq!(Config::default().to_string(), "");
}

#[test]
fn both_vendors_spellings_are_one_key() {
    for key in Key::ALL.iter().filter(|key| key.spellings().len() > 1) {
        let by_spelling = key.spellings().iter().map(|name| format!("{name}:True").parse::<Config>().unwrap());
        for config in by_spelling {
            assert_eq!(config.to_string(), format!("{key}:True"));
        }
    }
}

/// S19: the large segment is more than 10 MiB, and the floor of the two sizes that limit splitting.
#[test]
fn s19_the_large_segment_bounds_what_limits_splitting() {
    let least = |least| Rule::Mebibytes { least };
    for (text, key, value, rule) in [
        ("large_segment_size_mb:10", Key::LargeSegment, "10", least(11)),
        ("max_split_size_mb:19", Key::MaxSplit, "19", least(20)),
        ("max_non_split_rounding_mb:19", Key::MaxNonSplitRounding, "19", least(20)),
        ("max_split_size_mb:20,large_segment_size_mb:25", Key::MaxSplit, "20", least(25)),
        ("max_non_split_rounding_mb:24,large_segment_size_mb:25", Key::MaxNonSplitRounding, "24", least(25)),
    ] {
        assert_eq!(refused(text), (key, value.to_owned(), rule), "{text}");
    }
    let config: Config = "max_split_size_mb:11,large_segment_size_mb:11".parse().unwrap();
    assert_eq!(config.max_split_bytes(), Some(11 * MIB));
    assert_eq!(config.max_non_split_rounding_bytes(), 11 * MIB);
}

/// M15: the fraction is of the device's memory, and 1 is no limit.
#[test]
fn m15_the_lower_limit_counts() {
    let limit = |text: &str| text.parse::<Config>().unwrap().limit_bytes(80 << 30);
    assert_eq!(limit(""), None);
    assert_eq!(limit("per_process_memory_fraction:1.0"), None);
    assert_eq!(limit("per_process_memory_fraction:0"), Some(0));
    assert_eq!(limit("per_process_memory_fraction:0.5"), Some(40 << 30));
    assert_eq!(limit("memory_limit:30G"), Some(30 << 30));
    assert_eq!(limit("memory_limit:1000"), Some(1000));
    let both = "memory_limit:30G,per_process_memory_fraction:0.25";
    assert_eq!(limit(both), Some(20 << 30));
}

/// M16: the threshold is strictly between 0 and 1.
#[test]
fn m16_the_threshold_excludes_both_ends() {
    for value in ["0", "1", "1.2", "-0.5", "nan", "0.8x"] {
        let text = format!("garbage_collection_threshold:{value}");
        let expected = (Key::GcThreshold, value.to_owned(), Rule::OpenFraction);
        assert_eq!(refused(&text), expected);
    }
}

/// M21 and all other switches: exactly `True` or `False`.
#[test]
fn m21_switches_are_spelt_exactly() {
    let config = Config::default();
    let switches = Key::ALL.iter().filter(|key| Rule::of(**key, &config) == Rule::Switch);
    for key in switches {
        for value in ["true", "FALSE", "1", "0", "yes", "none", "", "[]", "[a:True]"] {
            let text = format!("{key}:{value}");
            assert_eq!(refused(&text), (*key, value.to_owned(), Rule::Switch));
        }
    }
}

/// X2: what the reference ignores with a warning is refused.
#[test]
fn x2_a_bad_reserve_is_refused() {
    for value in ["abc", "G", "-1", "0", "40", "1e20G", "12X", ""] {
        let value = value.to_owned();
        let expected = (Key::AddressReserve, value.clone(), Rule::AddressReserve);
        assert_eq!(refused(&format!("{}:{value}", Key::AddressReserve)), expected);
    }
}

/// `test_allocator_settings` and its neighbours: what is refused, and why.
#[test]
fn values_out_of_range_are_refused() {
    for (text, key, rule) in [
        ("max_split_size_mb:2", Key::MaxSplit, Rule::Mebibytes { least: 20 }),
        ("max_split_size_mb:17592186044416", Key::MaxSplit, Rule::Mebibytes { least: 20 }),
        ("garbage_collection_threshold:1.2", Key::GcThreshold, Rule::OpenFraction),
        ("release_lock_on_cudamalloc:none", Key::ReleaseLock, Rule::Switch),
        ("pinned_use_cuda_host_register:none", Key::PinnedHostRegister, Rule::Switch),
        ("pinned_num_register_threads:none", Key::PinnedThreads, Rule::Threads),
        ("pinned_num_register_threads:3", Key::PinnedThreads, Rule::Threads),
        ("pinned_num_register_threads:1024", Key::PinnedThreads, Rule::Threads),
        ("pinned_num_register_threads:4294967297", Key::PinnedThreads, Rule::Threads),
        ("pinned_reserve_segment_size_mb:0", Key::PinnedReserve, Rule::Mebibytes { least: 1 }),
        ("memory_limit:0", Key::MemoryLimit, Rule::Size),
        ("memory_limit:4T", Key::MemoryLimit, Rule::Size),
        ("memory_limit:99999999999999999999", Key::MemoryLimit, Rule::Size),
        ("roundup_power2_divisions:3", Key::Roundup, Rule::Divisions),
        ("roundup_power2_divisions:0", Key::Roundup, Rule::Divisions),
        ("roundup_power2_divisions:4294967296", Key::Roundup, Rule::Divisions),
        ("roundup_power2_divisions:[64:3]", Key::Roundup, Rule::IntervalDivisions),
        ("roundup_power2_divisions:[64:]", Key::Roundup, Rule::IntervalDivisions),
        ("roundup_power2_divisions:[3:4]", Key::Roundup, Rule::Interval),
        ("roundup_power2_divisions:[0:4]", Key::Roundup, Rule::Interval),
        ("backend:cudaMallocAsync", Key::Backend, Rule::Backend),
        ("backend:hipMallocAsync", Key::Backend, Rule::Backend),
        ("backend:other", Key::Backend, Rule::Backend),
    ] {
        let (refused_key, _, refused_rule) = refused(text);
        assert_eq!((refused_key, refused_rule), (key, rule), "{text}");
    }
    assert!("foo:1,bar:2".parse::<Config>().is_err());
}

#[test]
fn another_backend_is_told_what_there_is_instead() {
    let error = "backend:cudaMallocAsync".parse::<Config>().unwrap_err();
    assert!(error.to_string().starts_with(
        "at byte 8: backend: 'cudaMallocAsync' is not allowed; \
         use native, or leave the key out: Cachette has its own cache\n"
    ));
}

/// `test_allocator_settings`: four settings return to their defaults, the others stay.
#[test]
fn an_update_resets_four_settings_and_keeps_the_rest() {
    let mut config: Config = FULL.parse().unwrap();
    config.update("").unwrap();
    assert_eq!(config.max_split_bytes(), None);
    assert_eq!(config.max_non_split_rounding_bytes(), 25 * MIB);
    assert_eq!(config.gc_threshold(), None);
    assert_eq!(config.roundup_divisions(), &[0; 16]);

    let mut kept: Config = FULL.parse().unwrap();
    kept.max_split_bytes = None;
    kept.max_non_split_rounding_bytes = None;
    kept.gc_threshold = None;
    kept.roundup = Roundup::default();
    assert_eq!(config, kept);

    config.update("expandable_segments:False,max_split_size_mb:25").unwrap();
    assert!(!config.expandable_segments());
    assert_eq!(config.max_split_bytes(), Some(25 * MIB));
}

#[test]
fn an_update_that_fails_changes_nothing() {
    let before: Config = FULL.parse().unwrap();
    let mut config = before.clone();
    assert!(config.update("caching:True,max_split_size_mb:24").is_err());
    assert_eq!(config, before);
}
