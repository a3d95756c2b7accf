//! A biased lock: a thread that uses it exclusively locks and unlocks it with plain loads and stores.
//!
//! That thread is the owner. It publishes which lock it is inside in its [`OwnerSlot`], which no other thread writes:
//!
//! ```text
//! the owner                              another thread, holding `spin`
//!   slot.inside = this lock                bias = null
//!   (light barrier)                        (heavy barrier)
//!   bias is still this slot? then in       slot.inside is another lock, or none? then in
//! ```
//!
//! The two barriers make at least one thread see the other. The heavy barrier costs microseconds, so a revoked bias
//! is not restored at once. A thread becomes the owner after a streak of uncontended turns, and every revocation
//! doubles the length of that streak. Threads that alternate soon have a plain spin lock. The more of them wait, the
//! longer they wait before they look again, so that each holder has many turns.
//!
//! Soundness: a thread writes only its own slot. A former owner that notices its revocation late clears its own slot,
//! never that of the current owner.

use std::ptr;

use crate::spin::Spin;
use crate::{AtomicPtr, AtomicU32, AtomicUsize, Ordering, back_off_until, compiler_fence, heavy_barrier};

/// The streak that makes an owner after the first revocation.
const FIRST_REBIAS_THRESHOLD: u32 = 1 << 6;
/// The longest such streak. At this length the cost of a heavy barrier per streak cannot be measured.
const LAST_REBIAS_THRESHOLD: u32 = 1 << 16;

/// The largest measure of a crowd, beside the number of waiting threads.
const LARGEST_CROWD: u32 = 7;
/// The uncontended turns of one thread after which the measure of the crowd falls by one.
const CALM: u32 = 1 << 8;

/// The lock that a thread has entered as owner. It has a separate cache line, since every lock and unlock writes it.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct OwnerSlot {
    /// The address of the lock, zero for none. A thread is inside one lock at a time as its owner.
    inside: AtomicUsize,
}

impl OwnerSlot {
    pub(crate) const fn new(inside: AtomicUsize) -> Self {
        Self { inside }
    }
}

/// A lock that may have an owner.
///
/// The holder of `spin` holds the lock if there is no owner. Only the holder of `spin` writes the other fields. An
/// owner holds the lock while its slot names the lock.
#[derive(Debug)]
pub struct BiasedLock {
    pub(crate) bias: Bias,
    pub(crate) contended: Contended,
}

/// The part that the owner reads; its cache line is rarely written.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Bias {
    /// The slot of the thread that may enter as owner; null, or the same as `owner`.
    pub(crate) biased_to: AtomicPtr<OwnerSlot>,
    /// The slot that shows whether the owner is inside; null once a holder of `spin` has checked that it is not.
    pub(crate) owner: AtomicPtr<OwnerSlot>,
}

/// The part that threads other than the owner write.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Contended {
    pub(crate) spin: Spin,
    /// The slot of the last thread that took `spin`.
    pub(crate) last: AtomicPtr<OwnerSlot>,
    /// The number of its consecutive turns without contention.
    pub(crate) streak: AtomicU32,
    /// The streak that makes it the owner; zero for the first one.
    pub(crate) rebias_threshold: AtomicU32,
    /// How often threads had to wait of late: the round with which the wait of a single thread begins.
    pub(crate) crowd: AtomicU32,
    /// The number of threads that wait for `spin`. Relaxed: it only says how long to wait.
    pub(crate) waiting: AtomicU32,
}

impl Contended {
    /// Waits for `spin`. The first wait is the longer, the more threads wait and the more often they had to.
    #[cold]
    fn wait(&self) {
        let others = self.waiting.fetch_add(1, Ordering::Relaxed);
        self.spin.wait(self.crowd.load(Ordering::Relaxed) + (others + 1).ilog2());
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

impl BiasedLock {
    /// Takes the lock if `me` is the owner and is not inside another lock.
    #[inline(always)]
    pub(crate) fn enter(&self, me: &OwnerSlot) -> bool {
        if me.inside.load(Ordering::Relaxed) != 0 {
            return false;
        }
        // Release, with `revoke`: a thread that sees this store sees all earlier changes made under the lock.
        me.inside.store(ptr::from_ref(self).addr(), Ordering::Release);
        // The light barrier: the heavy one of `revoke_bias` orders the processors.
        compiler_fence(Ordering::SeqCst);
        // Acquire: no guarded data is read before. The barriers keep the result valid.
        if ptr::eq(self.bias.biased_to.load(Ordering::Acquire), me) {
            return true;
        }
        // Release, with `revoke`, as above.
        me.inside.store(0, Ordering::Release);
        false
    }

    /// Waits for the lock and takes it; makes `me` the owner after a long enough streak.
    pub(crate) fn take(&self, me: Option<&'static OwnerSlot>) {
        let alone = self.contended.spin.try_take();
        if !alone {
            self.contended.wait();
        }
        if !self.revoke() {
            back_off_until(0, || self.revoke());
        }
        self.count(me, alone);
    }

    /// Takes the lock if it is free.
    pub(crate) fn try_take(&self, me: Option<&'static OwnerSlot>) -> bool {
        if !self.contended.spin.try_take() {
            return false;
        }
        if !self.revoke() {
            self.contended.spin.leave();
            return false;
        }
        self.count(me, true);
        true
    }

    /// Releases the lock.
    #[inline(always)]
    pub(crate) fn leave(&self) {
        let owner = self.bias.owner.load(Ordering::Relaxed);
        // SAFETY: it is null, or `bias_to` stored a reference with static lifetime.
        match unsafe { owner.as_ref() } {
            // Release, with `revoke`: the next holder sees all changes.
            Some(owner) => owner.inside.store(0, Ordering::Release),
            None => self.contended.spin.leave(),
        }
    }

    /// Takes the bias from the owner; `false` if the owner is inside. Only the holder of `spin` calls this.
    #[inline]
    fn revoke(&self) -> bool {
        let owner = self.bias.owner.load(Ordering::Relaxed);
        // SAFETY: it is null, or `bias_to` stored a reference with static lifetime.
        let Some(owner) = (unsafe { owner.as_ref() }) else { return true };
        if !self.bias.biased_to.load(Ordering::Relaxed).is_null() {
            self.revoke_bias();
        }
        // Acquire, with the stores in `leave` and `enter`.
        if owner.inside.load(Ordering::Acquire) == ptr::from_ref(self).addr() {
            return false;
        }
        self.bias.owner.store(ptr::null_mut(), Ordering::Relaxed);
        true
    }

    #[cold]
    fn revoke_bias(&self) {
        self.bias.biased_to.store(ptr::null_mut(), Ordering::Relaxed);
        heavy_barrier();
        let rebias_threshold = self.contended.rebias_threshold.load(Ordering::Relaxed) * 2;
        let rebias_threshold = rebias_threshold.clamp(FIRST_REBIAS_THRESHOLD, LAST_REBIAS_THRESHOLD);
        self.contended.rebias_threshold.store(rebias_threshold, Ordering::Relaxed);
    }

    /// Counts a turn of `me`, and makes it the owner after a long enough streak. Only the holder of `spin` calls this.
    #[inline]
    fn count(&self, me: Option<&'static OwnerSlot>, alone: bool) {
        let Contended { last, streak, rebias_threshold, crowd, .. } = &self.contended;
        let mine = me.map_or(ptr::null_mut(), |me| ptr::from_ref(me).cast_mut());
        let turns = if alone && last.load(Ordering::Relaxed) == mine {
            streak.load(Ordering::Relaxed) + 1
        } else {
            last.store(mine, Ordering::Relaxed);
            0
        };
        if !alone {
            crowd.store(LARGEST_CROWD.min(crowd.load(Ordering::Relaxed) + 1), Ordering::Relaxed);
        } else if turns % CALM == CALM - 1 {
            crowd.store(crowd.load(Ordering::Relaxed).saturating_sub(1), Ordering::Relaxed);
        }
        if turns < rebias_threshold.load(Ordering::Relaxed) {
            streak.store(turns, Ordering::Relaxed);
        } else if let Some(me) = me {
            self.bias_to(me);
        }
    }

    /// Makes the holder of `spin` the owner, which then holds the lock by its slot.
    #[cold]
    fn bias_to(&self, me: &'static OwnerSlot) {
        if me.inside.load(Ordering::Relaxed) != 0 {
            return;
        }
        let mine = ptr::from_ref(me).cast_mut();
        me.inside.store(ptr::from_ref(self).addr(), Ordering::Release);
        self.bias.owner.store(mine, Ordering::Relaxed);
        self.bias.biased_to.store(mine, Ordering::Relaxed);
        self.contended.crowd.store(0, Ordering::Relaxed);
        // The next thread that takes `spin` sees the four stores.
        self.contended.spin.leave();
    }
}
