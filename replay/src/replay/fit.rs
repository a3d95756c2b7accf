//! The smallest limit under which a trace still fits.

use cachette::Config;
use cachette_hal::AnyDevice;
use serde::Serialize;

use super::failure::{self, Failure, Pass};
use super::player::Player;
use super::{allocator, expandable, ratio};
use crate::trace::Trace;

/// The bytes by which limits are told apart: what is held from a device is a multiple of it.
pub const FIT_STEP: u64 = 2 << 20;

/// How little memory is enough for one pass through a trace.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Fit {
    /// The most bytes live at once, before rounding.
    pub peak_requested: u64,
    /// The most bytes held from the device when there is no limit.
    pub peak_reserved: u64,
    /// The smallest limit found, a multiple of [`FIT_STEP`]; `None` if there is none.
    pub fit_bytes: Option<u64>,
    /// `fit_bytes / peak_requested`; `None` without `fit_bytes`, or if nothing is requested.
    pub fit_ratio: Option<f64>,
    /// Whether two more runs showed that the trace fits and that it does not with [`FIT_STEP`] less.
    pub confirmed: bool,
    /// Why no limit was found; absent if one was.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "failure::as_text")]
    pub error: Option<Failure>,
}

/// Finds the smallest limit under which one pass through `trace` fits.
///
/// It bisects between the requested bytes and the bytes reserved without a limit, or above if that is too little. This
/// assumes that a trace which fits also fits under a larger limit. That is not always so: the allocator frees memory
/// when it reaches the limit, so fragmentation depends on the limit. A smaller limit may therefore fit too. Each pass
/// uses a new allocator.
pub fn fit(trace: &Trace, device: &AnyDevice, config: &Config) -> Fit {
    Fit::find(trace, &Replayed { trace, device, config })
}

/// Finds the smallest limit under which one pass through `trace` fits in PyTorch with expandable segments.
///
/// PyTorch does not take part: the figures are those of a model, within 1 % of PyTorch's on the traces here.
#[must_use]
pub fn fit_pytorch_expandable(trace: &Trace) -> Fit {
    match expandable::play(trace, None) {
        Some(peak_reserved) => Fit::find(trace, &Modelled { trace, peak_reserved }),
        // It needs more addresses than there are.
        None => Fit { peak_requested: trace.peak_requested, ..Fit::default() },
    }
}

impl Fit {
    fn find(trace: &Trace, probe: &dyn Probe) -> Self {
        let mut found = Self { peak_requested: trace.peak_requested, ..Self::default() };
        let ended = found.search(probe);
        found.error = ended.err();
        found
    }

    fn search(&mut self, probe: &dyn Probe) -> Result<(), Failure> {
        self.peak_reserved = probe.peak_reserved()?;
        let bounds =
            Bounds { requested: self.peak_requested, reserved: self.peak_reserved, total: probe.total_memory() };
        let smallest = bounds.smallest(|limit| probe.fits(limit))?;
        let less = smallest.checked_sub(FIT_STEP);
        let less_fits = less.map_or(Ok(false), |limit| probe.fits(limit))?;
        self.confirmed = !less_fits && probe.fits(smallest)?;
        self.fit_bytes = Some(smallest);
        // A trace that requests nothing has no ratio.
        self.fit_ratio = (self.peak_requested > 0).then(|| ratio(smallest, self.peak_requested));
        Ok(())
    }
}

/// Where the smallest limit is looked for, in bytes.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    /// Less is too little, whatever the allocator does.
    requested: u64,
    /// Enough without a limit, and most often with one: an allocator that sees a limit may place otherwise.
    reserved: u64,
    /// There is no more.
    total: u64,
}

impl Bounds {
    /// The smallest multiple of [`FIT_STEP`] that is enough; if none is, the last.
    fn smallest<E>(self, mut fits: impl FnMut(u64) -> Result<bool, E>) -> Result<u64, E> {
        // In steps: `below` is too little, `enough` is enough once the first loop has ended.
        let mut below = self.requested.saturating_sub(1) / FIT_STEP;
        let mut enough = self.reserved.max(self.requested).div_ceil(FIT_STEP);
        let most = self.total / FIT_STEP;
        while enough < most && !fits(enough * FIT_STEP)? {
            let wider = enough + 2 * (enough - below);
            (below, enough) = (enough, wider.min(most));
        }
        while enough > below + 1 {
            let middle = u64::midpoint(below, enough);
            if fits(middle * FIT_STEP)? {
                enough = middle;
            } else {
                below = middle;
            }
        }
        Ok(enough * FIT_STEP)
    }
}

/// First passes through empty allocators.
trait Probe {
    /// The most that a limit can be.
    fn total_memory(&self) -> u64;

    /// The most bytes held from the device when there is no limit.
    fn peak_reserved(&self) -> Result<u64, Failure>;

    fn fits(&self, limit: u64) -> Result<bool, Failure>;
}

/// Passes through new allocators of a device.
struct Replayed<'a> {
    trace: &'a Trace,
    device: &'a AnyDevice,
    config: &'a Config,
}

impl Replayed<'_> {
    fn pass(&self, limit: Option<u64>) -> Result<u64, Failure> {
        let (allocator, _) = allocator(self.device, self.config, limit);
        Player::new(&allocator, self.trace)?.play(Pass::First, &mut |_| ())?;
        Ok(allocator.stats().reserved_bytes.all.peak)
    }
}

impl Probe for Replayed<'_> {
    fn total_memory(&self) -> u64 {
        self.device.info().total_memory
    }

    fn peak_reserved(&self) -> Result<u64, Failure> {
        self.pass(None)
    }

    fn fits(&self, limit: u64) -> Result<bool, Failure> {
        match self.pass(Some(limit)) {
            Ok(_) => Ok(true),
            Err(failure) if failure.is_out_of_memory() => Ok(false),
            Err(failure) => Err(failure),
        }
    }
}

/// Passes through the model of PyTorch's expandable segments.
struct Modelled<'a> {
    trace: &'a Trace,
    peak_reserved: u64,
}

impl Probe for Modelled<'_> {
    fn total_memory(&self) -> u64 {
        u64::MAX
    }

    fn peak_reserved(&self) -> Result<u64, Failure> {
        Ok(self.peak_reserved)
    }

    fn fits(&self, limit: u64) -> Result<bool, Failure> {
        Ok(expandable::play(self.trace, Some(limit)).is_some())
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use cachette_hal::Ordinal;

    use super::*;
    use crate::Target;
    use crate::trace::Operation;

    const MIB: u64 = 1 << 20;

    /// 100 bytes that stay, and `sizes` one after the other.
    fn trace(sizes: &[u64]) -> Trace {
        let allocate = |slot, bytes| Operation::Allocate { slot, stream: 0, bytes };
        let mut operations = vec![allocate(0, 100)];
        for bytes in sizes {
            operations.extend([allocate(1, *bytes), Operation::Free { slot: 1 }]);
        }
        let peak_requested = 100 + sizes.iter().max().unwrap();
        Trace { operations, slots: 2, streams: 1, peak_requested, ..Trace::default() }
    }

    fn found(trace: &Trace, capacity: u64, config: &str) -> Fit {
        let target = Target::host(Ordinal(0), capacity).unwrap();
        let fit = fit(trace, &target.device, &config.parse().unwrap());
        let memory = target.device.memory_info().unwrap();
        assert_eq!(memory.free, memory.total, "the search kept memory");
        fit
    }

    #[test]
    fn what_can_be_given_back_is_not_needed() {
        // 2 MiB for the 100 bytes, and a segment a size; a limit gives back the ones before.
        let fit = found(&trace(&[10 * MIB, 12 * MIB, 40 * MIB]), 1 << 30, "expandable_segments:False");
        assert_eq!(fit.peak_reserved, 64 * MIB);
        assert_eq!(fit.fit_bytes, Some(42 * MIB));
        assert!(fit.fit_ratio.is_some_and(|ratio| (ratio - 1.05).abs() < 1e-3));
        assert!(fit.confirmed);
        assert_eq!(fit.error, None);
    }

    #[test]
    fn the_configuration_is_obeyed() {
        // A segment of 30 MiB for what is above 1 MiB and below 10 MiB.
        let fit = found(&trace(&[4 * MIB]), 1 << 30, "expandable_segments:False,large_segment_size_mb:30");
        assert_eq!(fit.fit_bytes, Some(32 * MIB));
        let elastic = found(&trace(&[4 * MIB]), 1 << 30, "expandable_segments:True");
        assert!(elastic.fit_bytes < fit.fit_bytes, "{elastic:?}");
        assert!(elastic.confirmed);
    }

    #[test]
    fn a_trace_too_large_for_the_device_fits_nowhere() {
        let fit = found(&trace(&[10 * MIB]), 11 * MIB, "expandable_segments:False");
        let failure = fit.error.unwrap();
        assert_eq!((failure.pass, failure.operation), (Pass::First, 2));
        assert!(failure.is_out_of_memory());
        assert_eq!((fit.fit_bytes, fit.confirmed), (None, false));
    }

    #[test]
    fn the_model_of_pytorch_fits_in_whole_granules() {
        let fit = fit_pytorch_expandable(&trace(&[10 * MIB, 41 * MIB]));
        assert_eq!((fit.peak_reserved, fit.fit_bytes), (62 * MIB, Some(62 * MIB)));
        assert!(fit.confirmed);
    }

    #[test]
    fn a_trace_too_large_for_the_addresses_fits_nowhere_in_the_model() {
        for bytes in [u64::MAX - 100, u64::MAX / 2] {
            let fit = fit_pytorch_expandable(&trace(&[bytes]));
            assert_eq!((fit.fit_bytes, fit.fit_ratio, fit.confirmed), (None, None, false), "{bytes}");
        }
    }

    #[test]
    fn a_trace_of_nothing_has_no_ratio() {
        let nothing = Trace { operations: Vec::new(), peak_requested: 0, ..trace(&[1]) };
        let fit = found(&nothing, 1 << 30, "");
        assert_eq!((fit.fit_bytes, fit.fit_ratio), (Some(0), None));
    }

    #[test]
    fn halving_ends_at_the_smallest_that_is_enough() {
        let bounds = Bounds { requested: 9 * MIB, reserved: 40 * MIB, total: 1001 * MIB };
        let smallest = |steps: u64| {
            let mut probes = 0;
            let ended = bounds.smallest(|limit| {
                probes += 1;
                Ok::<_, Infallible>(limit >= steps * FIT_STEP)
            });
            let Ok(bytes) = ended;
            (bytes / FIT_STEP, probes)
        };
        for steps in 5..=20 {
            let (found, probes) = smallest(steps);
            assert_eq!(found, steps);
            assert!(probes <= 5, "{probes}");
        }
        // More than is reserved without a limit, up to all there is.
        for steps in 21..=500 {
            assert_eq!(smallest(steps).0, steps);
        }
        assert_eq!(smallest(501).0, 500);
    }

    #[test]
    fn nothing_fits_in_nothing() {
        let bounds = Bounds { requested: 0, reserved: 0, total: 0 };
        assert_eq!(bounds.smallest(|_| Err(())), Ok(0));
    }
}
