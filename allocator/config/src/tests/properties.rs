//! What holds for every configuration and for every text.

use proptest::option;
use proptest::prelude::*;

use super::{FULL, MIB};
use crate::{AddressReserve, Config, ConfigBuilder, KEYS};

/// Parses `text`, and holds any error to its promises about places.
fn survives(text: &str) {
    match text.parse::<Config>() {
        Ok(config) => assert_eq!(config.to_string().parse(), Ok(config), "{text}"),
        Err(error) => {
            let span = error.span().expect("an error in a text has a place");
            assert!(text.get(span.clone()).is_some_and(|marked| !marked.is_empty()));
            let shown = error.to_string();
            assert_eq!(shown.lines().count(), 3, "{shown}");
        }
    }
}

#[test]
fn every_small_damage_is_read_or_diagnosed_inside_the_text() {
    for (at, c) in FULL.char_indices() {
        let (before, after) = (&FULL[..at], &FULL[at + 1..]);
        survives(before);
        survives(&format!("{before}{after}"));
        survives(&format!("{before}{c}{c}{after}"));
        for other in ",:[]>xX0-.é".chars() {
            survives(&format!("{before}{other}{after}"));
        }
    }
}

fn divisions() -> impl Strategy<Value = [u32; 16]> {
    prop::array::uniform16(prop_oneof![Just(0), (0..32u32).prop_map(|log| 1 << log), Just(2)])
}

fn reserve() -> impl Strategy<Value = AddressReserve> {
    prop_oneof![
        (f64::MIN_POSITIVE..=1.125).prop_map(AddressReserve::Fraction),
        (1..=u64::MAX).prop_map(AddressReserve::Bytes),
        (1..1000u64).prop_map(|gibibytes| AddressReserve::Bytes(gibibytes << 30)),
    ]
}

prop_compose! {
    /// The sizes, which depend on one another.
    fn sizes()(large in 11..1000u64)(
        large in Just(large),
        split in option::of(large..1 << 30),
        rounding in option::of(large..1 << 30),
        pinned in option::of(1..1u64 << 30),
        cached in option::of(0..1u64 << 30),
        limit in option::of(1..=u64::MAX),
    ) -> ConfigBuilder {
        Config::builder()
            .large_segment_bytes(large * MIB)
            .max_split_bytes(split.map(|n| n * MIB))
            .max_non_split_rounding_bytes(rounding.map(|n| n * MIB))
            .pinned_reserve_segment_bytes(pinned.map(|n| n * MIB))
            .pinned_max_cached_bytes(cached.map(|n| n * MIB))
            .pinned_max_round_threshold_bytes(pinned.map(|n| n * MIB))
            .memory_limit(limit)
    }
}

prop_compose! {
    fn configs()(
        sizes in sizes(),
        threshold in option::of(f64::MIN_POSITIVE..1.0),
        fraction in option::of(0.0..=1.0),
        divisions in divisions(),
        reserve in option::of(reserve()),
        threads in 0..8u32,
        on in any::<[bool; 11]>(),
    ) -> Config {
        sizes
            .gc_threshold(threshold)
            .memory_fraction(fraction)
            .roundup_divisions(divisions)
            .expandable_segments_reserve(reserve)
            .pinned_register_threads(1 << threads)
            .expandable_segments(on[0])
            .release_lock_on_malloc(on[1])
            .throw_on_driver_oom(on[2])
            .graph_capture_record_stream_reuse(on[3])
            .pinned_use_host_register(on[4])
            .pinned_use_background_threads(on[5])
            .pinned_free_catch_all(on[6])
            .gpu_direct_rdma(on[10])
            .never_block(on[7])
            .caching(on[9])
            .build()
            .unwrap()
    }
}

proptest! {
    #[test]
    fn what_is_written_reads_back_the_same(config in configs()) {
        prop_assert_eq!(config.to_string().parse(), Ok(config));
    }

    #[test]
    fn any_text_is_read_or_diagnosed_inside_itself(text in "[a-z_,:\\[\\]> 0-9.éλ]{0,40}") {
        survives(&text);
    }

    #[test]
    fn any_value_is_read_or_diagnosed_inside_itself(
        key in 0..KEYS.len(),
        value in "\\PC{0,12}",
    ) {
        survives(&format!("{}:{value}", KEYS[key].name()));
    }
}
