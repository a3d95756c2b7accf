//! The part of an allocator that other processes meet: its registration, and what it remembers.

use std::collections::HashMap;
use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use std::sync::{MutexGuard, Weak};
use std::time::{Duration, Instant};

use cachette_hal::DeviceInfo;
use cachette_ipc::reclaim::{Neighbour, Registration};

use crate::config::Config;
use crate::sync::Mutex;

/// What identifies host devices that no other process shares. Each process has one, with the same identity.
const UNSHARED: &[u8] = b"cachettehost";

/// For so long a process keeps what it received, in milliseconds, unless a request would fail.
pub(super) const KEPT: u64 = 1000;

/// The ticks in the time after which memory is released.
pub(super) const SAMPLES: u32 = 8;

/// How many ticks in a row have seen each segment or chunk idle, by the number of its heap and its own.
pub(super) type IdleSamples = HashMap<(u32, u64), u32>;

/// The part of an allocator that other processes meet.
pub(crate) struct ReclaimState {
    /// The allocator that answers.
    pub(super) own: Weak<dyn Neighbour>,
    /// What a configuration without the key `reclaim` means.
    by_default: AtomicBool,
    /// Whether the configuration was followed: there is a registration if it asks for one.
    joined: AtomicBool,
    pub(super) registration: Mutex<Option<Registration>>,
    /// Whether [`Notice::Alone`] was sent.
    told: AtomicBool,
    /// Whether the driver is shutting down.
    pub(super) is_ending: AtomicBool,
    begun: Instant,
    /// When memory was last received, in milliseconds after `begun` and one more; zero for never.
    received: AtomicU64,
    /// The bytes that were received without a pause.
    received_bytes: AtomicU64,
    pub(super) samples: Mutex<IdleSamples>,
    /// When the last sample was taken.
    sampled: Mutex<Option<Instant>>,
}

impl ReclaimState {
    pub(crate) fn new(own: Weak<dyn Neighbour>) -> Self {
        Self {
            own,
            by_default: AtomicBool::new(false),
            joined: AtomicBool::new(false),
            registration: Mutex::default(),
            told: AtomicBool::new(false),
            is_ending: AtomicBool::new(false),
            begun: Instant::now(),
            received: AtomicU64::new(0),
            received_bytes: AtomicU64::new(0),
            samples: Mutex::default(),
            sampled: Mutex::default(),
        }
    }

    /// Begins to follow the configuration; `None` if a thread has begun before. The caller registers under the lock.
    pub(super) fn begin_join(&self) -> Option<MutexGuard<'_, Option<Registration>>> {
        if self.joined.load(Acquire) {
            return None;
        }
        let registration = self.registration.lock();
        (!self.joined.swap(true, Release)).then_some(registration)
    }

    /// Whether no failure was told before.
    pub(super) fn is_first_failure(&self) -> bool {
        !self.told.swap(true, Relaxed)
    }

    /// Ends the registration, after a change of the configuration. The next miss registers again if it asks for it.
    pub(crate) fn leave(&self) {
        let mut registration = self.registration.lock();
        *registration = None;
        self.joined.store(false, Release);
    }

    /// Makes a configuration without the key mean that it is on.
    pub(crate) fn set_on_by_default(&self) {
        self.by_default.store(true, Relaxed);
        self.leave();
    }

    /// Begins a sample if the last one began an interval ago. A tick may come a little early.
    pub(super) fn begin_sample(&self, interval: Duration) -> bool {
        let mut sampled = self.sampled.lock();
        let is_due = sampled.is_none_or(|last| last.elapsed() >= interval * 15 / 16);
        if is_due {
            *sampled = Some(Instant::now());
        }
        is_due
    }

    pub(super) fn is_on(&self, config: &Config) -> bool {
        config.reclaim().unwrap_or_else(|| self.by_default.load(Relaxed))
    }

    pub(super) fn note_received(&self, bytes: u64) {
        self.received_bytes.store(self.received_lately().saturating_add(bytes), Relaxed);
        self.received.store(self.milliseconds() + 1, Relaxed);
    }

    /// The bytes that were received without a pause of [`KEPT`], up to now.
    pub(super) fn received_lately(&self) -> u64 {
        if self.received_ago().is_some_and(|ago| ago < KEPT) { self.received_bytes.load(Relaxed) } else { 0 }
    }

    fn milliseconds(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX - 1)
    }

    pub(super) fn received_ago(&self) -> Option<u64> {
        let received = self.received.load(Relaxed).checked_sub(1)?;
        Some(self.milliseconds().saturating_sub(received))
    }
}

/// The identity of a device that other processes share; `None` if there is none.
pub(super) fn identity(info: &DeviceInfo) -> Option<[u8; 16]> {
    (info.uuid != [0; 16] && !info.uuid.starts_with(UNSHARED)).then_some(info.uuid)
}

#[cfg(test)]
mod tests {
    use std::thread;

    use cachette_hal::{AnyDevice, Ordinal, Vendor};

    use super::*;
    use crate::allocator::allocator_state::AllocatorState;

    #[test]
    fn memory_was_received_as_long_ago_as_it_was() {
        let state = ReclaimState::new(Weak::<AllocatorState<AnyDevice>>::new());
        assert_eq!(state.received_ago(), None, "none was received");
        let begun = Instant::now();
        state.note_received(1);
        thread::sleep(Duration::from_millis(5));
        let ago = state.received_ago().map(Duration::from_millis);
        // Both are cut to whole milliseconds.
        assert!(
            ago.is_some_and(|ago| ago >= Duration::from_millis(4) && ago <= begun.elapsed() + Duration::from_millis(1))
        );
    }

    #[test]
    fn only_devices_that_processes_share_have_an_identity() {
        let mut info = DeviceInfo::new(Ordinal(0), Vendor::Nvidia, String::new(), 1, 1);
        assert_eq!(identity(&info), None, "the driver does not name it");
        info.uuid[..12].copy_from_slice(UNSHARED);
        assert_eq!(identity(&info), None, "another process has another one");
        info.uuid = [7; 16];
        assert_eq!(identity(&info), Some([7; 16]));
    }
}
