//! The version of AMD's library to behave as.

use std::env;
use std::ffi::c_int;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use cachette_hal_hip::status::{INVALID_VALUE, OUT_OF_MEMORY};
use cachette_hal_hip::types::Status;

/// A version of AMD's library.
///
/// Each method is a row of what was observed of the real ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Personality {
    /// 6.4.3.
    V6_4,
    /// 7.2.4.
    V7_2,
    /// 7.14.
    V7_14,
    /// ROCm 10.0, whose HIP is 7.15. What is not known of it is as in 7.14.
    V10,
}

impl Personality {
    /// Every personality.
    pub const ALL: [Self; 4] = [Self::V6_4, Self::V7_2, Self::V7_14, Self::V10];

    /// The version as users write it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::V6_4 => "6.4",
            Self::V7_2 => "7.2",
            Self::V7_14 => "7.14",
            Self::V10 => "10",
        }
    }

    /// The name under which a loader looks for this version.
    #[must_use]
    pub const fn soname(self) -> &'static str {
        match self {
            Self::V6_4 => "libamdhip64.so.6",
            Self::V7_2 | Self::V7_14 | Self::V10 => "libamdhip64.so.7",
        }
    }

    /// The personality that this process asks for.
    pub(crate) fn chosen() -> Self {
        let asked = env::var("CACHETTE_EMULATED_HIP").ok();
        let folder = || own_path()?.parent()?.file_name()?.to_str().map(str::to_owned);
        let parse = |text: String| text.parse().ok();
        asked.and_then(parse).or_else(|| folder().and_then(parse)).unwrap_or(Self::V7_2)
    }

    /// What `hipRuntimeGetVersion` answers.
    pub(crate) const fn number(self) -> c_int {
        match self {
            Self::V6_4 => 60_443_484,
            Self::V7_2 => 70_253_211,
            Self::V7_14 => 71_460_850,
            Self::V10 => 71_500_000,
        }
    }

    /// The granularity that is recommended; the smallest is 4 KiB in all.
    pub(crate) const fn recommended_granularity(self) -> u64 {
        match self {
            Self::V6_4 | Self::V7_2 => 4 << 10,
            Self::V7_14 | Self::V10 => 2 << 20,
        }
    }

    /// The status of physical memory of half a page.
    pub(crate) const fn half_page(self) -> Status {
        match self {
            Self::V6_4 | Self::V7_2 => OUT_OF_MEMORY,
            Self::V7_14 | Self::V10 => INVALID_VALUE,
        }
    }

    /// The status of a reservation of odd size or alignment.
    pub(crate) const fn odd_reservation(self) -> Status {
        match self {
            Self::V6_4 => OUT_OF_MEMORY,
            Self::V7_2 | Self::V7_14 | Self::V10 => INVALID_VALUE,
        }
    }
}

/// Declares what some versions do: a method for each row.
macro_rules! habits {
    ($($(#[$doc:meta])* $name:ident: $($version:ident)|+;)*) => {
        impl Personality {
            $(
                $(#[$doc])*
                pub(crate) const fn $name(self) -> bool {
                    matches!(self, $(Self::$version)|+)
                }
            )*
        }
    };
}

habits! {
    /// Whether a map or an unmap that fails reports success.
    swallows_map_errors: V6_4 | V7_2;
    /// Whether a second release of addresses crashes after the first has failed.
    crashes_releasing_nothing: V6_4 | V7_2;
    /// Whether rights are granted only if the mappings of the reservation, added up from the first in the library's list,
    /// reach the given size; a failed map stays in that list.
    sums_mappings: V7_2;
    /// Whether physical memory that was made for descriptors keeps one open after it is gone.
    leaks_descriptors: V7_14;
    /// Whether rights may be set to a part of a mapping, and a part of one unmapped, at least by its word.
    accepts_parts: V6_4;
    /// Whether unmapping what is not mapped crashes.
    crashes_unmapping_nothing: V6_4;
    /// Whether one unmap of several mappings spoils their reservation.
    is_spoiled_by_wide_unmap: V6_4;
    /// Whether asking for the handle of memory that was not mapped crashes.
    crashes_retaining_plain_memory: V6_4 | V7_2;
    /// Whether physical memory is made on the current device, whatever device is named.
    ignores_location: V7_2 | V7_14 | V10;
    /// Whether a descriptor is imported by value, not by a pointer to it.
    imports_by_value: V7_2 | V7_14 | V10;
    /// Whether unmapping waits for every stream; otherwise, for the default stream alone, and mapping too.
    unmap_waits_for_streams: V7_14 | V10;
    /// Whether the last error is the status of the last call, be it success or "not ready".
    last_error_is_last_status: V6_4;
    /// Whether freeing null in stream order, or asking what null is, fails.
    refuses_null: V6_4;
    /// Whether the pool maps its memory itself, and does not tell when it cannot.
    has_mapped_pool: V7_2 | V7_14 | V10;
    /// Whether a token of mapped memory brings the kernel down; otherwise it is refused.
    crashes_exporting_mapped_memory: V6_4 | V7_2;
    /// Whether an event counts as captured if the stream of its last record is captured now. A query breaks the capture.
    takes_events_for_captured: V6_4 | V7_2;
    /// Whether most calls do not notice that a stream was destroyed: some crash, the others report success.
    misses_destroyed_streams: V7_2 | V7_14 | V10;
}

impl fmt::Display for Personality {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Personality {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|known| known.name() == text);
        found.ok_or_else(|| format!("no emulated HIP is called '{text}'"))
    }
}

/// The file that this code was loaded from.
fn own_path() -> Option<PathBuf> {
    let own = own_path as *const () as usize;
    let maps = fs::read_to_string("/proc/self/maps").ok()?;
    let line = maps.lines().find(|line| holds(line, own).unwrap_or(false))?;
    let path = line.split_ascii_whitespace().nth(5)?;
    Some(Path::new(path).to_owned())
}

/// Whether a line of the map of this process is about the range that an address lies in.
fn holds(line: &str, address: usize) -> Option<bool> {
    let (start, rest) = line.split_once('-')?;
    let (end, _) = rest.split_once(' ')?;
    let start = usize::from_str_radix(start, 16).ok()?;
    let end = usize::from_str_radix(end, 16).ok()?;
    Some((start..end).contains(&address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_personality_is_found_by_its_own_name() {
        for personality in Personality::ALL {
            assert_eq!(personality.name().parse(), Ok(personality));
        }
        assert!("5.2".parse::<Personality>().is_err());
    }

    #[test]
    fn code_knows_the_file_it_came_from() {
        assert_eq!(own_path(), Some(env::current_exe().unwrap()));
    }
}
