//! What this process answers to others, and what it releases for them.

use std::fs;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{OnceLock, Weak};
use std::time::Duration;

use cachette_hal::{Device, DeviceInfo};
use cachette_ipc::reclaim::{Figures, Give, Neighbour, Place, register};

use crate::allocator::allocator_state::AllocatorState;
use crate::evict::Priority;
use crate::observe::callbacks::Notice;
use crate::pool::PoolId;
use crate::reclaim::state::SAMPLES;
use crate::stats::Counted;

/// What identifies host devices that no other process shares. Each process has one, with the same identity.
const UNSHARED: &[u8] = b"cachettehost";

/// The identity of a device that other processes share; `None` if there is none.
pub(super) fn identity(info: &DeviceInfo) -> Option<[u8; 16]> {
    (info.uuid != [0; 16] && !info.uuid.starts_with(UNSHARED)).then_some(info.uuid)
}

impl<D: Device> AllocatorState<D> {
    /// Registers the allocator once, if the configuration asks for it. The caller is about to take memory of the device.
    pub(crate) fn join_neighbours(&self) {
        let state = &self.reclaim;
        let Some(mut registration) = state.begin_join() else { return };
        let config = self.shared.settings.config();
        let device = identity(self.shared.device.info()).filter(|_| state.is_on(&config));
        let interval = config.idle_release().map(|seconds| Duration::from_secs_f64(seconds) / SAMPLES);
        if device.is_none() && interval.is_none() {
            return;
        }
        let place = Place::of_environment();
        let answers = device.as_ref().map(|device| (&place, device));
        let joined = register(answers, interval, Weak::clone(&state.own)).or_else(|error| {
            self.tell_alone(error.kind());
            interval.map(|_| register(None, interval, Weak::clone(&state.own))).ok_or(error)?
        });
        *registration = joined.ok();
    }

    /// Says once that the allocator works as if it were alone.
    pub(super) fn tell_alone(&self, kind: std::io::ErrorKind) {
        if self.reclaim.is_first_failure() {
            self.shared.callbacks.notice(Notice::Alone { kind });
        }
    }
}

impl<D: Device> Neighbour for AllocatorState<D> {
    fn figures(&self) -> Figures {
        let _relaxed = self.shared.relax_capture();
        let (peaks, totals, settings) = (&self.shared.peaks, &self.shared.totals, &self.shared.settings);
        let givers = self.givers();
        for heap in &givers {
            let _ = heap.process_events();
        }
        let reserved = peaks.stat(Counted::ReservedBytes).all;
        let uncached = self.shared.uncached.bytes();
        let mut figures = Figures::default();
        figures.pid = std::process::id();
        program().clone_into(&mut figures.program);
        figures.reserved = reserved.current + uncached;
        figures.allocated = peaks.now(Counted::AllocatedBytes) + uncached;
        figures.idle = givers.iter().flat_map(|heap| heap.idle_memory()).map(|(_, bytes)| bytes).sum();
        figures.evictable = self.evictable_bytes();
        figures.peak = reserved.peak;
        figures.limit = settings.limit();
        figures.share = settings.config().reclaim_share();
        figures.requests = peaks.stat(Counted::Allocations).all.allocated;
        figures.retries = totals.retries.load(Relaxed);
        figures.ooms = totals.ooms.load(Relaxed);
        figures.evictions = totals.evictions.load(Relaxed);
        figures.asks = totals.reclaims.load(Relaxed);
        figures.received = totals.reclaimed.load(Relaxed);
        figures.given = totals.given.load(Relaxed);
        figures.received_ago = self.reclaim.received_ago();
        figures
    }

    fn give(&self, give: Give) -> u64 {
        // A capture of another thread may be active.
        let _relaxed = self.shared.relax_capture();
        let mut given = self.release_for_others(give.bytes);
        if give.evict && given < give.bytes {
            let share = self.shared.settings.config().reclaim_share().unwrap_or(0);
            let above = self.shared.totals.reserved.load(Relaxed).saturating_sub(share);
            let bytes = above.min(give.bytes - given);
            if bytes > 0 {
                given += self.evict(PoolId::DEFAULT, give.below.map(Priority), || bytes);
            }
        }
        self.shared.totals.given.fetch_add(given, Relaxed);
        given
    }

    fn tick(&self) {
        let _relaxed = self.shared.relax_capture();
        self.release_long_idle();
    }
}

/// The program and its first argument, without folders: `python3 train.py`.
fn program() -> &'static str {
    static PROGRAM: OnceLock<String> = OnceLock::new();
    PROGRAM.get_or_init(|| name_of(&fs::read("/proc/self/cmdline").unwrap_or_default()))
}

fn name_of(command_line: &[u8]) -> String {
    let words = command_line.split(|byte| *byte == 0).filter(|word| !word.is_empty()).take(2);
    let names = words.map(|word| String::from_utf8_lossy(word.rsplit(|byte| *byte == b'/').next().unwrap_or(word)));
    names.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use cachette_hal::{Ordinal, Vendor};

    use super::*;

    #[test]
    fn only_devices_that_processes_share_have_an_identity() {
        let mut info = DeviceInfo::new(Ordinal(0), Vendor::Nvidia, String::new(), 1, 1);
        assert_eq!(identity(&info), None, "the driver does not name it");
        info.uuid[..12].copy_from_slice(UNSHARED);
        assert_eq!(identity(&info), None, "another process has another one");
        info.uuid = [7; 16];
        assert_eq!(identity(&info), Some([7; 16]));
    }

    #[test]
    fn a_program_has_the_names_of_its_first_two_words() {
        assert_eq!(name_of(b"/usr/bin/python3\0/home/a/train.py\0--epochs\0"), "python3 train.py");
        assert_eq!(name_of(b"server\0"), "server");
        assert_eq!(name_of(b""), "");
    }
}
