//! The divisions by interval of size.

use super::{MIB, config};
use crate::{Config, Roundup};

fn divided(value: &str) -> Config {
    config(&format!("roundup_power2_divisions:{value}"))
}

/// S6: sixteen intervals from 1 MiB, clamped at both ends.
#[test]
fn s6_the_interval_of_a_size_is_its_power_of_two() {
    let roundup = Roundup(std::array::from_fn(|i| 1 << i));
    for size in [0, 1, 512, MIB - 1, MIB, 2 * MIB - 1] {
        assert_eq!(roundup.divisions(size), 1, "{size}");
    }
    for i in 0..16 {
        assert_eq!(roundup.divisions(MIB << i), 1 << i);
        assert_eq!(roundup.divisions((MIB << i) + 1), 1 << i);
    }
    assert_eq!(roundup.divisions((32 << 30) - 1), 1 << 14);
    for size in [32 << 30, 64 << 30, u64::MAX] {
        assert_eq!(roundup.divisions(size), 1 << 15, "{size}");
    }
}

/// `AllocatorConfig_test`: the first entry back-fills and `>` fills what follows.
#[test]
fn s6_a_list_back_fills_below_and_fills_above() {
    let config = divided("[64:8,128:2,256:4,512:2,1024:4,>:1]");
    for (mebibytes, divisions) in
        [(1, 8), (32, 8), (64, 8), (128, 2), (256, 4), (512, 2), (1024, 4), (2048, 1), (4096, 1), (8192, 1)]
    {
        assert_eq!(config.roundup().divisions(mebibytes * MIB), divisions, "{mebibytes}");
    }
}

/// `AllocatorConfig_test`: an interval between two named ones stays 0.
#[test]
fn s6_a_gap_in_a_list_stays_zero() {
    let config = divided("[128:8,256:16,512:1,2048:8,>:2]");
    assert_eq!(config.roundup().divisions(64 * MIB), 8);
    assert_eq!(config.roundup().divisions(256 * MIB), 16);
    assert_eq!(config.roundup().divisions(1024 * MIB), 0);
    assert_eq!(config.roundup().divisions(2048 * MIB), 8);
    assert_eq!(config.roundup().divisions(4096 * MIB), 2);
}

#[test]
fn s6_one_entry_can_set_every_interval() {
    for value in ["4", "[>:4]", "[65536:4]"] {
        assert_eq!(divided(value).roundup_divisions(), &[4; 16], "{value}");
    }
}

#[test]
fn s6_lists_are_written_short() {
    for text in [
        "4",
        "[64:8,128:2,256:4,512:2,1024:4,>:1]",
        "[128:8,256:16,512:1,2048:8,>:2]",
        "[1:8]",
        "[16384:8]",
        "[16384:0,32768:2]",
        "[1:4,64:2]",
        "[1:4,8192:2,>:1]",
        "[1:4,4096:2,16384:1,>:1]",
    ] {
        let written = divided(text).to_string();
        assert_eq!(written, format!("roundup_power2_divisions:{text}"));
    }
}
