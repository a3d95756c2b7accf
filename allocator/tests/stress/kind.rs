//! What a round is made of: settings of the allocator, habits of the device, and whether calls fail.

use std::fmt;

use cachette_hal_host::HostConfig;

/// Settings of an allocator.
#[derive(Debug)]
pub(crate) struct Setting {
    pub(crate) name: &'static str,
    pub(crate) config: &'static str,
    /// Other configurations that the round changes to.
    pub(crate) changes: &'static [&'static str],
}

impl Setting {
    /// Whether one of its configurations has this text.
    fn has(&self, text: &str) -> bool {
        let mut all = self.changes.iter().chain([&self.config]);
        all.any(|config| config.contains(text))
    }
}

const fn fixed(name: &'static str, config: &'static str) -> Setting {
    Setting { name, config, changes: &[] }
}

/// An odd number of settings, so that they meet every habit of the device.
pub(crate) const SETTINGS: [Setting; 11] = [
    fixed("direct", "expandable_segments:False"),
    fixed("elastic", "expandable_segments:True"),
    fixed("direct, collected", "expandable_segments:False,garbage_collection_threshold:0.3,memory_limit:32M"),
    fixed("elastic, collected", "expandable_segments:True,garbage_collection_threshold:0.3,memory_limit:32M"),
    fixed(
        "direct, split",
        "expandable_segments:False,max_split_size_mb:20,roundup_power2_divisions:4,pinned_use_cuda_host_register:True",
    ),
    fixed("elastic, compact", "expandable_segments:True,elastic_setting:compact"),
    fixed("elastic, limited", "expandable_segments:True,memory_limit:24M"),
    fixed("elastic, unblocked", "expandable_segments:True,never_block:True"),
    fixed("graphs reused", "expandable_segments:False,graph_capture_record_stream_reuse:True,memory_limit:36M"),
    Setting {
        name: "changing",
        config: "expandable_segments:False",
        changes: &[
            "expandable_segments:False",
            "elastic_setting:compact",
            "expandable_segments:True",
            "caching:False",
            "expandable_segments:False,garbage_collection_threshold:0.5,memory_limit:36M",
        ],
    },
    Setting {
        name: "elastic, changing",
        config: "expandable_segments:True",
        changes: &[
            "expandable_segments:True",
            "expandable_segments:True,elastic_setting:compact",
            "expandable_segments:True,memory_limit:20M",
        ],
    },
];

/// How a device treats second mappings and unmapped memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Habit {
    Plain,
    NoAliases,
    RefusesAliases,
    Withholds,
}

/// What one round is made of. Its seed determines it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kind {
    pub(crate) seed: u64,
    pub(crate) setting: &'static Setting,
    /// Whether calls of the driver fail at random.
    pub(crate) fails: bool,
    pub(crate) habit: Habit,
}

/// How many kinds of rounds a summary tells apart. So many rounds in a row have one of each.
pub(crate) const KINDS: usize = SETTINGS.len() * 2;

impl Kind {
    pub(crate) fn of(seed: u64) -> Self {
        let habits = [Habit::Plain, Habit::NoAliases, Habit::RefusesAliases, Habit::Withholds];
        let pick = |among: usize| usize::try_from(seed % among as u64).expect("it is small");
        let number = pick(KINDS);
        Self {
            seed,
            setting: &SETTINGS[number % SETTINGS.len()],
            fails: number >= SETTINGS.len(),
            habit: habits[pick(5).min(3)],
        }
    }

    /// Its place in a summary.
    pub(crate) fn number(&self) -> usize {
        let place = SETTINGS.iter().position(|s| s.name == self.setting.name);
        place.unwrap_or(0) * 2 + usize::from(self.fails)
    }

    /// The device of the round.
    pub(crate) fn host(&self) -> HostConfig {
        let host = HostConfig::default().capacity(40 << 20);
        match self.habit {
            Habit::Plain => host,
            Habit::NoAliases => host.without_aliases(),
            Habit::RefusesAliases => host.refusing_aliases(1),
            Habit::Withholds => host.withholding(),
        }
    }

    /// Whether the device gives no memory back before the addresses are released.
    pub(crate) fn withholds(&self) -> bool {
        self.habit == Habit::Withholds
    }

    /// Whether some memory comes past the cache; a saved state does not know of it.
    pub(crate) fn skips_cache(&self) -> bool {
        self.setting.has("caching:False")
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fails = if self.fails { ", failing calls" } else { "" };
        write!(
            f,
            "seed {}: {}{fails} on a device {:?}, configured \"{}\"",
            self.seed, self.setting.name, self.habit, self.setting.config
        )
    }
}
