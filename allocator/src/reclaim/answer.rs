//! What this process answers to others, and what it releases for them.

use std::cmp::Reverse;
use std::fs;
#[cfg(feature = "history")]
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{OnceLock, Weak};
use std::time::Duration;

use cachette_hal::{Device, ErrorKind};
use cachette_ipc::reclaim::{Figures, Give, Holder, Neighbour, Place, register};

use crate::allocator::allocator_state::AllocatorState;
use crate::evict::Priority;
use crate::observe::callbacks::Notice;
#[cfg(feature = "history")]
use crate::observe::snapshot::save;
use crate::observe::snapshot::{Snapshot, SnapshotOptions};
use crate::pool::PoolId;
use crate::reclaim::state::{SAMPLES, identity};
use crate::stats::Counted;

/// How often an allocator looks whether a host that shares its memory runs short.
const HOST_WATCH: Duration = Duration::from_millis(250);

impl<D: Device> AllocatorState<D> {
    /// Registers the allocator once, if the configuration asks for it. The caller is about to take memory of the device.
    pub(crate) fn join_neighbours(&self) {
        let state = &self.reclaim;
        let Some(mut registration) = state.begin_join() else { return };
        let config = self.shared.settings.config();
        let device = identity(self.shared.device.info()).filter(|_| state.is_on(&config));
        let samples = config.idle_release().map(|seconds| Duration::from_secs_f64(seconds) / SAMPLES);
        let watch = self.shared.device.host_available().map(|_| HOST_WATCH);
        let interval = samples.into_iter().chain(watch).min();
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
        let outside = self.shared.outside.stats();
        figures.outside = (!outside.is_empty()).then_some(outside.device.current);
        (figures.outside_managed, figures.outside_host) = (outside.managed.current, outside.host.current);
        figures.is_ending = self.reclaim.is_ending.load(Relaxed);
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
        // The thread that answers makes no call that may wait for the driver, so this one looks.
        let failed = if given == 0 { self.shared.device.memory_info().err() } else { None };
        if failed.is_some_and(|error| error.kind() == ErrorKind::ShuttingDown) {
            self.reclaim.is_ending.store(true, Relaxed);
        }
        self.shared.totals.given.fetch_add(given, Relaxed);
        given
    }

    fn holders(&self) -> Vec<Holder> {
        let _relaxed = self.shared.relax_capture();
        let held = self.memory_holders();
        let labels = held.by_label.into_iter().filter(|(name, _)| !name.is_empty());
        let labels = labels.map(|(name, bytes)| Holder { name: name.to_owned(), is_pool: false, bytes });
        let pools = held.by_pool.into_iter().map(|(id, tag, bytes)| {
            let name = if id == PoolId::DEFAULT { "default".to_owned() } else { format!("{tag} {id}") };
            Holder { name: name.trim_start().to_owned(), is_pool: true, bytes }
        });
        let mut all: Vec<_> = labels.chain(pools).collect();
        all.sort_by_key(|holder| Reverse(holder.bytes));
        all
    }

    fn write_snapshot(&self) -> String {
        let _relaxed = self.shared.relax_capture();
        snapshot_file(&self.snapshot_with(SnapshotOptions::new())).unwrap_or_default()
    }

    fn tick(&self) {
        let _relaxed = self.shared.relax_capture();
        self.relieve_host();
        self.release_long_idle();
    }
}

/// Writes a snapshot to a new file for temporary files, and returns its path.
#[cfg(feature = "history")]
fn snapshot_file(snapshot: &Snapshot) -> Option<String> {
    // Nobody can guess it, so no other user has put a link there.
    let random = RandomState::new().hash_one(());
    let name = format!("cachette-{}-{random:016x}.json", std::process::id());
    let path = std::env::temp_dir().join(name);
    save(snapshot, &path).ok()?;
    path.into_os_string().into_string().ok()
}

/// Files need the feature.
#[cfg(not(feature = "history"))]
fn snapshot_file(_: &Snapshot) -> Option<String> {
    None
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
    use super::*;

    #[test]
    fn a_program_has_the_names_of_its_first_two_words() {
        assert_eq!(name_of(b"/usr/bin/python3\0/home/a/train.py\0--epochs\0"), "python3 train.py");
        assert_eq!(name_of(b"server\0"), "server");
        assert_eq!(name_of(b""), "");
    }
}
