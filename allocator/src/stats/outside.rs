//! The figures of memory outside the cache, which [`Allocator::take_outside`](crate::Allocator::take_outside) counts.

use crate::stats::Stat;
use crate::sync::Mutex;

/// Where memory outside the cache lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OutsideKind {
    /// On the device until it is given back. It counts for the limit.
    Device,
    /// Where the driver moves it, on the device or on the host.
    Managed,
    /// On the host, page-locked.
    Host,
}

/// The bytes outside the cache, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct OutsideStats {
    /// Memory of the device.
    pub device: Stat,
    /// Memory that the driver moves.
    pub managed: Stat,
    /// Page-locked memory of the host.
    pub host: Stat,
}

impl OutsideStats {
    /// Every kind, with the name of its figures.
    #[must_use]
    pub const fn by_kind(&self) -> [(&'static str, &Stat); 3] {
        [("device", &self.device), ("managed", &self.managed), ("host", &self.host)]
    }

    /// Whether there was never any.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_kind().iter().all(|(_, stat)| stat.peak == 0)
    }

    const fn of(&mut self, kind: OutsideKind) -> &mut Stat {
        match kind {
            OutsideKind::Device => &mut self.device,
            OutsideKind::Managed => &mut self.managed,
            OutsideKind::Host => &mut self.host,
        }
    }

    fn each(&mut self, change: impl Fn(&mut Stat)) {
        let Self { device, managed, host } = self;
        [device, managed, host].into_iter().for_each(change);
    }
}

/// The figures of an allocator. Those of the device are a part of `Totals::reserved`, too.
#[derive(Debug, Default)]
pub(crate) struct OutsideState(Mutex<OutsideStats>);

impl OutsideState {
    pub(crate) fn stats(&self) -> OutsideStats {
        *self.0.lock()
    }

    pub(crate) fn raise(&self, kind: OutsideKind, bytes: u64) {
        self.0.lock().of(kind).raise(bytes);
    }

    /// Returns the bytes that were counted, at most `bytes`.
    pub(crate) fn lower(&self, kind: OutsideKind, bytes: u64) -> u64 {
        let mut stats = self.0.lock();
        let stat = stats.of(kind);
        let counted = bytes.min(stat.current);
        stat.lower(counted);
        counted
    }

    pub(crate) fn reset_peaks(&self) {
        self.0.lock().each(Stat::reset_peak);
    }

    pub(crate) fn reset_totals(&self) {
        self.0.lock().each(Stat::reset_totals);
    }
}
