//! The keys of the text form, as values.

use std::fmt;

/// Declares [`Key`] from the list of spellings; the first of each is the one written back.
macro_rules! keys {
    ($($variant:ident = $name:literal $(| $alias:literal)*,)*) => {
        /// One key of the text form of a [`Config`](super::Config).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum Key {
            $(
                #[doc = concat!("`", $name, "`" $(, ", also `", $alias, "`")*, ".")]
                $variant,
            )*
        }

        impl Key {
            /// Every key, in the order in which a configuration is written.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// The spelling that is written.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// Every spelling that is read.
            #[must_use]
            pub const fn spellings(self) -> &'static [&'static str] {
                match self {
                    $(Self::$variant => &[$name $(, $alias)*],)*
                }
            }
        }
    };
}

keys! {
    Backend = "backend",
    LargeSegment = "large_segment_size_mb",
    MaxSplit = "max_split_size_mb",
    MaxNonSplitRounding = "max_non_split_rounding_mb",
    GcThreshold = "garbage_collection_threshold",
    Roundup = "roundup_power2_divisions",
    ExpandableSegments = "expandable_segments",
    AddressReserve = "expandable_segments_reserve",
    ReleaseLock = "release_lock_on_cudamalloc" | "release_lock_on_hipmalloc",
    MemoryFraction = "per_process_memory_fraction",
    ThrowOnDriverOom = "throw_on_cudamalloc_oom" | "throw_on_hipmalloc_oom",
    CaptureReuse = "graph_capture_record_stream_reuse",
    PinnedHostRegister = "pinned_use_cuda_host_register" | "pinned_use_hip_host_register",
    PinnedThreads = "pinned_num_register_threads",
    PinnedReserve = "pinned_reserve_segment_size_mb",
    PinnedBackground = "pinned_use_background_threads",
    PinnedCatchAll = "pinned_free_catch_all",
    MemoryLimit = "memory_limit",
    ElasticSetting = "elastic_setting",
    ElasticLargestChunk = "elastic_largest_chunk_mb",
    ElasticSlack = "elastic_slack",
    ElasticRecycling = "elastic_recycling",
    NeverBlock = "never_block",
    LendAcrossStreams = "lend_across_streams",
    Caching = "caching",
}

/// Keys of PyTorch that are refused, each with the reason and the remedy.
const REFUSED: [(&str, &str); 1] = [(
    "expandable_segments_reserve_by_class",
    "streams have no class here; use expandable_segments_reserve, which holds for all of them",
)];

/// Why a key of PyTorch is refused, and what to use in its place; `None` if it is none of those.
pub(super) fn why_refused(text: &str) -> Option<&'static str> {
    let found = REFUSED.iter().find(|(name, _)| *name == text);
    found.map(|(_, why)| *why)
}

impl Key {
    /// The key spelt `text`, if there is one.
    pub(super) fn find(text: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|key| key.spellings().contains(&text))
    }

    /// The spelling most like `text`, if one is alike enough to be what was meant.
    pub(super) fn closest(text: &str) -> Option<&'static str> {
        let letters = text.chars().count();
        Self::ALL
            .iter()
            .flat_map(|key| key.spellings())
            // The distance is at least the difference of the lengths, so long texts cost nothing.
            .filter(|name| letters.abs_diff(name.len()) <= name.len() / 3)
            .map(|name| (distance(text, name), *name))
            .filter(|(distance, name)| *distance <= name.len() / 3)
            .min_by_key(|(distance, _)| *distance)
            .map(|(_, name)| name)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The number of letters to insert, delete or replace to turn `from` into `to`.
fn distance(from: &str, to: &str) -> usize {
    // `row[j]` is the distance between the letters of `from` read so far and the first `j` of `to`.
    let mut row: Vec<usize> = (0..=to.chars().count()).collect();
    for (i, a) in from.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in to.chars().enumerate() {
            let replaced = diagonal + usize::from(a != b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[row.len() - 1]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_found_by_each_of_its_spellings_and_no_two_share_one() {
        let mut seen = Vec::new();
        for key in Key::ALL {
            assert_eq!(key.spellings()[0], key.name());
            for name in key.spellings() {
                assert_eq!(Key::find(name), Some(*key));
                assert!(!seen.contains(name), "{name} twice");
                seen.push(name);
            }
        }
    }

    #[test]
    fn the_distance_counts_insertions_deletions_and_replacements() {
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("abc", ""), 3);
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("same", "same"), 0);
    }

    #[test]
    fn a_misspelt_key_is_recognised_and_nonsense_is_not() {
        assert_eq!(Key::closest("max_split_size"), Some("max_split_size_mb"));
        assert_eq!(Key::closest("Expandable_Segment"), Some("expandable_segments"));
        assert_eq!(Key::closest("release_lock_on_hipmaloc"), Some("release_lock_on_hipmalloc"));
        assert_eq!(Key::closest("foo"), None);
        assert_eq!(Key::closest(""), None);
        assert_eq!(Key::closest(&"x".repeat(1 << 20)), None);
    }
}
