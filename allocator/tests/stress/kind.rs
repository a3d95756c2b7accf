//! What a round is made of: settings of the allocator, habits of the device, and whether calls fail.

use std::fmt;

use cachette_hal_host::HostConfig;

use crate::random::Random;

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

pub(crate) const SETTINGS: [Setting; 12] = [
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
    fixed("driver's pool", "backend:cudaMallocAsync,memory_limit:36M"),
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
    /// As HIP 7.0 to 7.13: mappings of one size, which wait for the default stream, and withheld memory.
    OneSize,
}

/// What half of the rounds have, each drawn alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extra {
    /// A tracker, which panics now and then.
    Tracker,
    /// A function that frees memory under pressure.
    Reliever,
    /// Memory is shared inside the process. A thread serves it, so no two runs are the same.
    Sharing,
    /// A second device reads memory.
    Peer,
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

/// The first part of a seed's numbers that no step of a round draws from.
const PART: u64 = 1 << 32;

/// How many kinds of rounds a summary tells apart. So many rounds in a row have one of each.
pub(crate) const KINDS: usize = SETTINGS.len() * 2;

impl Kind {
    pub(crate) fn of(seed: u64) -> Self {
        let habits = [Habit::Plain, Habit::NoAliases, Habit::RefusesAliases, Habit::Withholds, Habit::OneSize];
        let number = usize::try_from(seed % KINDS as u64).expect("it is small");
        let mut random = Random::new(seed, PART);
        Self {
            seed,
            setting: &SETTINGS[number % SETTINGS.len()],
            fails: number >= SETTINGS.len(),
            habit: *random.of(&habits),
        }
    }

    /// Whether the round has it.
    pub(crate) fn has(&self, extra: Extra) -> bool {
        Random::new(self.seed, PART + 1 + extra as u64).once_in(2)
    }

    /// Its place in a summary.
    pub(crate) fn number(&self) -> usize {
        let place = SETTINGS.iter().position(|s| s.name == self.setting.name);
        place.unwrap_or(0) * 2 + usize::from(self.fails)
    }

    /// The device of the round.
    pub(crate) fn host(&self) -> HostConfig {
        let host = HostConfig::default().capacity(40 << 20).devices(2).free_without_waiting();
        match self.habit {
            Habit::Plain => host,
            Habit::NoAliases => host.without_aliases(),
            Habit::RefusesAliases => host.refusing_aliases(1),
            Habit::Withholds => host.withholding(),
            Habit::OneSize => host.withholding().mapping_one_size().mapping_with_wait(),
        }
    }

    /// Whether the device gives no memory back before the addresses are released.
    pub(crate) fn withholds(&self) -> bool {
        matches!(self.habit, Habit::Withholds | Habit::OneSize)
    }

    /// Whether some memory comes past the cache; a saved state does not know of it.
    pub(crate) fn skips_cache(&self) -> bool {
        self.setting.has("caching:False")
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fails = if self.fails { ", failing calls" } else { "" };
        let extras = [Extra::Tracker, Extra::Reliever, Extra::Sharing, Extra::Peer];
        let extras: Vec<Extra> = extras.into_iter().filter(|extra| self.has(*extra)).collect();
        let Self { seed, setting, habit, .. } = self;
        let Setting { name, config, .. } = setting;
        write!(f, "seed {seed}: {name}{fails} with {extras:?} on a device {habit:?}, configured \"{config}\"")
    }
}
