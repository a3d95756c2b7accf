//! Values of keys that are neither numbers nor switches.

use std::fmt;

use super::format::{Format, decimal, scale};
use super::size::{size_text, size_with_unit};

/// Where the memory of the default pool comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ConfigBackend {
    /// Cachette's cache.
    #[default]
    Native,
    /// The driver's stream-ordered pool, of either vendor. Pools and captures keep Cachette's cache.
    CudaMallocAsync,
}

/// PyTorch's word for a backend.
pub(super) const BACKEND: Format<ConfigBackend> = Format {
    read: |word| match word {
        "native" => Some(ConfigBackend::Native),
        "cudaMallocAsync" => Some(ConfigBackend::CudaMallocAsync),
        _ => None,
    },
    write: |backend| match backend {
        ConfigBackend::Native => "native".into(),
        ConfigBackend::CudaMallocAsync => "cudaMallocAsync".into(),
    },
    allows: |_, _| true,
    rule: |_| "native, or cudaMallocAsync for the driver's own pool, on AMD's devices too".into(),
};

/// Whose pinned memory PyTorch gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ConfigPinned {
    /// Cachette's.
    #[default]
    Cachette,
    /// PyTorch's own.
    Native,
}

/// The name of the owner.
pub(super) const PINNED: Format<ConfigPinned> = Format {
    read: |word| match word {
        "cachette" => Some(ConfigPinned::Cachette),
        "native" => Some(ConfigPinned::Native),
        _ => None,
    },
    write: |pinned| match pinned {
        ConfigPinned::Cachette => "cachette".into(),
        ConfigPinned::Native => "native".into(),
    },
    allows: |_, _| true,
    rule: |_| "cachette, or native for PyTorch's own".into(),
};

/// How elastic segments weigh memory against calls to the driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ElasticSetting {
    /// Wastes little memory; a program that repeats itself soon needs no calls.
    #[default]
    Default,
    /// Uses as little memory as possible, at any cost in calls.
    Compact,
}

/// The name of a setting.
pub(super) const ELASTIC_SETTING: Format<ElasticSetting> = Format {
    read: |word| {
        let all = [ElasticSetting::Default, ElasticSetting::Compact];
        all.into_iter().find(|setting| setting.name() == word)
    },
    write: |setting| setting.to_string(),
    allows: |_, _| true,
    rule: |_| "default or compact".into(),
};

impl ElasticSetting {
    /// The word that is read and written.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Compact => "compact",
        }
    }
}

impl fmt::Display for ElasticSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// How much address space an expandable segment reserves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum AddressReserve {
    /// A fraction of the device's memory, above 0 and up to 1.125.
    Fraction(f64),
    /// A number of bytes, above 0.
    Bytes(u64),
}

/// `0.5` is a fraction, `40G` is a number of bytes.
pub(super) const RESERVE: Format<AddressReserve> = Format {
    read: |word| {
        decimal(word).map(AddressReserve::Fraction).or_else(|| size_with_unit(word).map(AddressReserve::Bytes))
    },
    write: |reserve| reserve.to_string(),
    allows: |reserve, _| match reserve {
        AddressReserve::Fraction(fraction) => fraction > 0.0 && fraction <= 1.125,
        AddressReserve::Bytes(bytes) => bytes > 0,
    },
    rule: |_| {
        "a fraction of the device's memory above 0 and up to 1.125, such as 0.5, \
         or a size with a unit, such as 40G or 80GiB"
            .into()
    },
};

impl AddressReserve {
    /// The full reserve of a device with `total` bytes: nine eighths of them. No segment needs more.
    #[must_use]
    pub const fn full(total: u64) -> u64 {
        total.saturating_add(total / 8)
    }

    /// The bytes to reserve on a device with `total` bytes, at most [`full`](Self::full).
    #[must_use]
    pub fn bytes(self, total: u64) -> u64 {
        let bytes = match self {
            Self::Fraction(fraction) => scale(total, fraction).unwrap_or(u64::MAX),
            Self::Bytes(bytes) => bytes,
        };
        bytes.min(Self::full(total))
    }
}

impl fmt::Display for AddressReserve {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fraction(fraction) => write!(f, "{fraction}"),
            Self::Bytes(bytes) => f.write_str(&size_text(*bytes)),
        }
    }
}
