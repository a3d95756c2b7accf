//! What each key accepts, refuses and sets.

use super::{FULL, MIB, config, error, mebibytes};
use crate::{AddressReserve, Config, ElasticSetting, KEYS, Roundup};

/// Asserts that the first key of `text` refuses `value`, with the values allowed.
#[track_caller]
fn refuses(text: &str, value: &str, rule: &str) {
    let (key, _) = text.split_once(':').unwrap();
    let message = match value {
        "" => format!("{key}: the value is missing; use {rule}"),
        _ => format!("{key}: '{value}' is not allowed; use {rule}"),
    };
    assert_eq!(error(text).message(), message, "{text}");
}

/// Asserts that `key` refuses each of `values`.
#[track_caller]
fn refuses_all(key: &str, values: &[&str], rule: &str) {
    for value in values {
        refuses(&format!("{key}:{value}"), value, rule);
    }
}

/// `AllocatorConfig_test`: every key reaches its value.
#[test]
fn every_key_reaches_its_value() {
    let config = config(FULL);
    assert_eq!(config.large_segment_bytes(), 25 * MIB);
    assert_eq!(config.max_split_bytes(), Some(40 * MIB));
    assert_eq!(config.max_non_split_rounding_bytes(), 30 * MIB);
    assert_eq!(config.gc_threshold(), Some(0.5));
    assert_eq!(config.roundup().divisions(128 * MIB), 2);
    assert!(!config.expandable_segments());
    assert_eq!(config.expandable_segments_reserve(), Some(AddressReserve::Fraction(0.9)));
    assert!(config.release_lock_on_malloc());
    assert_eq!(config.memory_fraction(), Some(0.75));
    assert!(config.throw_on_driver_oom());
    assert!(config.graph_capture_record_stream_reuse());
    assert!(config.pinned_use_host_register());
    assert_eq!(config.pinned_register_threads(), 8);
    assert_eq!(config.pinned_reserve_segment_bytes(), Some(64 * MIB));
    assert_eq!(config.pinned_max_cached_bytes(), Some(128 * MIB));
    assert_eq!(config.pinned_max_round_threshold_bytes(), Some(MIB));
    assert!(config.pinned_use_background_threads());
    assert!(config.pinned_free_catch_all());
    assert_eq!(config.memory_limit(), Some(40 << 30));
    assert_eq!((config.reclaim(), config.reclaim_share()), (Some(true), Some(20 << 30)));
    assert_eq!((config.reclaim_wait(), config.idle_release()), (Some(2.5), Some(30.0)));
    assert_eq!(config.host_reserve(), Some(4 << 30));
    assert_eq!(config.elastic_setting(), ElasticSetting::Compact);
    assert!(config.gpu_direct_rdma());
    assert!(config.never_block());
    assert!(!config.caching());
}

/// S19: the large segment is more than 10 MiB, and the floor of the two sizes that limit splitting.
#[test]
fn s19_the_large_segment_bounds_what_limits_splitting() {
    refuses("large_segment_size_mb:10", "10", &mebibytes(11));
    refuses("max_split_size_mb:19", "19", &mebibytes(20));
    refuses("max_non_split_rounding_mb:19", "19", &mebibytes(20));
    refuses("max_split_size_mb:20,large_segment_size_mb:25", "20", &mebibytes(25));
    refuses("max_non_split_rounding_mb:24,large_segment_size_mb:25", "24", &mebibytes(25));
    let config = config("max_split_size_mb:11,large_segment_size_mb:11");
    assert_eq!(config.max_split_bytes(), Some(11 * MIB));
    assert_eq!(config.max_non_split_rounding_bytes(), 11 * MIB);
}

/// M15: the fraction is of the device's memory, and 1 is no limit.
#[test]
fn m15_the_lower_limit_counts() {
    let limit = |text| config(text).limit_bytes(80 << 30);
    assert_eq!(limit(""), None);
    assert_eq!(limit("per_process_memory_fraction:1.0"), None);
    assert_eq!(limit("per_process_memory_fraction:0"), Some(0));
    assert_eq!(limit("per_process_memory_fraction:0.5"), Some(40 << 30));
    assert_eq!(limit("memory_limit:30G"), Some(30 << 30));
    assert_eq!(limit("memory_limit:1000B"), Some(1000));
    assert_eq!(limit("memory_limit:2097152"), Some(2 * MIB));
    let both = "memory_limit:30G,per_process_memory_fraction:0.25";
    assert_eq!(limit(both), Some(20 << 30));
}

/// M16: the threshold is strictly between 0 and 1.
#[test]
fn m16_the_threshold_excludes_both_ends() {
    let values = ["0", "1", "1.2", "-0.5", "nan", "0.8x"];
    refuses_all("garbage_collection_threshold", &values, "a number above 0 and below 1, such as 0.8");
}

/// M21 and all other switches: exactly `True` or `False`.
#[test]
fn m21_switches_are_spelt_exactly() {
    let switches = KEYS.iter().filter(|key| (key.rule)(&Config::default()) == "True or False");
    assert!(switches.clone().any(|key| key.name() == "caching"));
    for key in switches {
        let values = ["true", "FALSE", "1", "0", "yes", "none", "", "[]", "[a:True]"];
        refuses_all(key.name(), &values, "True or False");
    }
}

/// X2: PyTorch ignores these values with a warning.
#[test]
fn x2_reserves_by_class_are_accepted_and_change_nothing() {
    let given = config("expandable_segments_reserve_by_class:[prefill:0.5,decode:40G],caching:False");
    assert_eq!(given, config("caching:False"));
    assert_eq!(config("expandable_segments_reserve_by_class:[]"), Config::default());
}

#[test]
fn x2_a_bad_reserve_is_refused() {
    let rule = "a fraction of the device's memory above 0 and up to 1.125, such as 0.5, \
                or a size with a unit, such as 40G or 80GiB";
    let values = ["abc", "G", "-1", "0", "0G", "40", "1e20G", "12X", "inf", ""];
    refuses_all("expandable_segments_reserve", &values, rule);
}

/// `test_allocator_settings` and its neighbours: what is refused, and why.
#[test]
fn values_out_of_range_are_refused() {
    let divisions = "a power of two up to 2147483648, or a list such as [64:8,128:4,>:2]";
    refuses_all("max_split_size_mb", &["2", "17592186044416"], &mebibytes(20));
    refuses_all("pinned_reserve_segment_size_mb", &["0"], &mebibytes(1));
    refuses_all("pinned_max_cached_size_mb", &["-1", "none"], &mebibytes(0));
    let threads = ["none", "3", "1024", "4294967297"];
    refuses_all("pinned_num_register_threads", &threads, "a power of two from 1 to 128");
    let sizes = ["0", "4X", "99999999999999999999"];
    refuses_all("memory_limit", &sizes, "a size above 0, in bytes or with a unit, such as 40G or 80GiB");
    for key in ["reclaim_wait", "idle_release"] {
        let rule = "a number of seconds above 0 and up to 86400, such as 2.5";
        refuses_all(key, &["0", "-1", "86401", "1s", "inf"], rule);
    }
    for (size, meant) in [("80", "80GB"), ("40960", "40960MB"), ("2097151", "2097151MB")] {
        let rule = format!("a size above 0, in bytes or with a unit, such as 40G or 80GiB (did you mean {meant}?)");
        refuses_all("memory_limit", &[size], &rule);
    }
    refuses_all("roundup_power2_divisions", &["3", "0", "4294967296"], divisions);
    let interval = "a power of two in MiB, or > for all larger sizes";
    refuses("roundup_power2_divisions:[3:4]", "3", interval);
    refuses("roundup_power2_divisions:[0:4]", "0", interval);
    let steps = "0 or a power of two up to 2147483648";
    refuses("roundup_power2_divisions:[64:3]", "3", steps);
    refuses("roundup_power2_divisions:[64:]", "", steps);
    refuses_all("elastic_setting", &["fast", "quick"], "default or compact");
    let backend = "native, or cudaMallocAsync for the driver's own pool, on AMD's devices too";
    refuses_all("backend", &["hipMallocAsync", "other"], backend);
}

#[test]
fn the_builder_obeys_the_same_rules() {
    let builder = Config::builder;
    for (builder, refused) in [
        (builder().large_segment_bytes(10 << 20), "large_segment_size_mb: '10'"),
        (builder().large_segment_bytes((20 << 20) + 1), "large_segment_size_mb: '20971521 bytes'"),
        (builder().max_split_bytes(19 << 20), "max_split_size_mb: '19'"),
        (builder().max_non_split_rounding_bytes(0), "max_non_split_rounding_mb: '0'"),
        (builder().gc_threshold(0.0), "garbage_collection_threshold: '0'"),
        (builder().gc_threshold(f64::NAN), "garbage_collection_threshold: 'NaN'"),
        (builder().roundup_divisions([3; 16]), "roundup_power2_divisions: '3'"),
        (builder().memory_fraction(1.1), "per_process_memory_fraction: '1.1'"),
        (builder().memory_fraction(f64::NAN), "per_process_memory_fraction: 'NaN'"),
        (builder().memory_limit(0), "memory_limit: '0B'"),
        (builder().pinned_register_threads(0), "pinned_num_register_threads: '0'"),
        (builder().pinned_register_threads(256), "pinned_num_register_threads: '256'"),
        (builder().pinned_reserve_segment_bytes(0), "pinned_reserve_segment_size_mb: '0'"),
        (builder().expandable_segments_reserve(AddressReserve::Fraction(2.0)), "expandable_segments_reserve: '2'"),
        (builder().expandable_segments_reserve(AddressReserve::Bytes(0)), "expandable_segments_reserve: '0B'"),
    ] {
        let error = builder.build().unwrap_err();
        assert_eq!(error.span(), None);
        assert!(error.to_string().starts_with(&format!("{refused} is not allowed; use ")), "{error}");
    }
    let large = builder().large_segment_bytes(25 << 20);
    let error = large.max_split_bytes((20 << 20) + 1).build().unwrap_err();
    assert_eq!(error.to_string(), format!("max_split_size_mb: '20971521 bytes' is not allowed; use {}", mebibytes(25)));
}

#[test]
fn the_builder_starts_from_any_configuration() {
    let same = Config::builder().max_non_split_rounding_bytes(20 << 20).memory_fraction(1.0).build();
    assert_eq!(same, Ok(Config::default()));
    let changed = config("memory_limit:4G,never_block:True").to_builder().memory_limit(None).build().unwrap();
    assert_eq!(changed.to_string(), "never_block:True");
}

/// `test_allocator_settings`: four settings return to their defaults, the others stay.
#[test]
fn an_update_resets_four_settings_and_keeps_the_rest() {
    let mut updated = config(FULL);
    updated.update("").unwrap();
    assert_eq!(updated.max_split_bytes(), None);
    assert_eq!(updated.max_non_split_rounding_bytes(), 25 * MIB);
    assert_eq!(updated.gc_threshold(), None);
    assert_eq!(updated.roundup_divisions(), &[0; 16]);

    let reset = Config {
        max_split_bytes: None,
        max_non_split_rounding: None,
        gc_threshold: None,
        roundup: Roundup::default(),
        ..config(FULL)
    };
    assert_eq!(updated, reset);

    updated.update("expandable_segments:True,max_split_size_mb:25").unwrap();
    assert!(updated.expandable_segments());
    assert_eq!(updated.max_split_bytes(), Some(25 * MIB));
}

#[test]
fn an_update_that_fails_changes_nothing() {
    let mut updated = config(FULL);
    assert!(updated.update("caching:True,max_split_size_mb:24").is_err());
    assert_eq!(updated, config(FULL));
}
