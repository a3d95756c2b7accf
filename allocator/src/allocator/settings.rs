//! The settings that can change at run time: the configuration, the memory limit and the callbacks.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use cachette_hal::Device;

use super::Allocator;
use crate::config::Config;
use crate::device_state::fraction_of;
use crate::error::Error;
use crate::heap_policy::HeapPolicy;
use crate::observe::callbacks::{Notice, TraceAction, TraceEvent, bit};
use crate::out_of_memory::OutOfMemory;

impl<D: Device> Allocator<D> {
    /// Limits the memory that the allocator may hold to a fraction of the device's memory; 1 is no limit.
    ///
    /// A limit below the memory that is already held only prevents growth.
    pub fn set_memory_fraction(&self, fraction: f64) -> Result<(), Error> {
        if !(0.0..=1.0).contains(&fraction) {
            return Err(Error::InvalidFraction(fraction.to_string()));
        }
        let limit = fraction_of(fraction, self.device_info().total_memory);
        self.shared().settings.limit.store(limit, Relaxed);
        Ok(())
    }

    /// The fraction of the device's memory that the allocator may hold; 1 without a limit.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a fraction of bytes needs no more digits than a float has")]
    pub fn memory_fraction(&self) -> f64 {
        let total = self.device_info().total_memory;
        match self.memory_limit() {
            Some(limit) if limit < total => limit as f64 / total as f64,
            _ => 1.0,
        }
    }

    /// Limits the memory that the allocator may hold, in bytes; `None` is no limit.
    pub fn set_memory_limit(&self, bytes: Option<u64>) {
        let limit = bytes.unwrap_or(u64::MAX);
        self.shared().settings.limit.store(limit, Relaxed);
    }

    /// The memory that the allocator may hold, if it is limited.
    #[must_use]
    pub fn memory_limit(&self) -> Option<u64> {
        self.shared().settings.limit()
    }

    /// The current configuration.
    #[must_use]
    pub fn config(&self) -> Config {
        self.shared().settings.config()
    }

    /// Replaces the configuration, except for the backend, which is chosen at the start.
    ///
    /// A stream that holds memory keeps its kind of segments in each pool: a change of `expandable_segments` applies to
    /// the next request that finds none. The memory limit is not part of the configuration; see
    /// [`set_memory_limit`](Self::set_memory_limit) and [`set_memory_fraction`](Self::set_memory_fraction).
    pub fn set_config(&self, config: &Config) {
        let _turn = self.inner.config_turn.lock();
        let before = self.config();
        let config = config.clone().with_backend(before.backend());
        if (before.reclaim(), before.idle_release()) != (config.reclaim(), config.idle_release()) {
            self.inner.reclaim.leave();
        }
        let policy = HeapPolicy::of(&config);
        self.shared().settings.apply(&config);
        for heap in self.inner.heaps.all() {
            heap.set_policy(&policy);
        }
    }

    /// Makes a configuration without the key `reclaim` mean `reclaim:True`. The configuration itself stays.
    ///
    /// For bindings that are loaded into programs of users, which share devices.
    pub fn reclaim_by_default(&self) {
        self.inner.reclaim.set_on_by_default();
    }

    /// Calls `observer` with the figures of every request that fails with out-of-memory, before the request returns.
    pub fn on_out_of_memory(&self, observer: impl Fn(&OutOfMemory) + Send + Sync + 'static) {
        self.shared().callbacks.oom.write().push(Arc::new(observer));
    }

    /// Calls `reliever` when no free block fits. It frees memory, and returns whether it freed any.
    ///
    /// It may drop allocations and decommit growable memory, but must not allocate.
    pub fn on_pressure(&self, reliever: impl Fn() -> bool + Send + Sync + 'static) {
        self.shared().callbacks.free_memory.write().push(Arc::new(reliever));
    }

    /// Calls `observer` for waits, for memory that comes to an address range and leaves it, and for direct segments in
    /// place of elastic ones, on the thread where they happen.
    ///
    /// It must not call the allocator, nor wait for a thread that does.
    pub fn on_notice(&self, observer: impl Fn(&Notice) + Send + Sync + 'static) {
        self.shared().callbacks.notices.write().push(Arc::new(observer));
    }

    /// Calls `tracker` for every memory event, on the thread where it happens.
    ///
    /// It must not call the allocator, nor wait for a thread that does.
    pub fn track(&self, tracker: impl Fn(&TraceEvent) + Send + Sync + 'static) {
        self.track_actions(&TraceAction::ALL, tracker);
    }

    /// Calls `tracker` as [`track`](Self::track) does, for the events of these actions.
    ///
    /// Without the actions of blocks, which are frequent, the calls of the program stay as fast as they are.
    pub fn track_actions(&self, actions: &[TraceAction], tracker: impl Fn(&TraceEvent) + Send + Sync + 'static) {
        let actions = actions.iter().fold(0, |set, action| set | bit(*action));
        self.shared().callbacks.add_sink(actions, Arc::new(tracker));
        for heap in self.inner.heaps.all() {
            // Its drop derives the fast-path flag again.
            drop(heap.state.lock());
        }
    }
}
