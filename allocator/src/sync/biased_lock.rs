//! A lock that a thread which uses it alone takes and leaves with plain loads and stores.
//!
//! Such a thread is the lock's owner. It says where it is in a [`OwnerSlot`] of its own, and nobody else writes there:
//!
//! ```text
//! the owner                              anyone else, holding `spin`
//!   badge.inside = this lock               favoured = nobody
//!   (light barrier)                        (heavy barrier)
//!   favoured is still me?  then in         badge.inside is another lock, or none?  then in
//! ```
//!
//! The barriers see to it that at least one of the two notices the other. The heavy one costs microseconds, so the
//! owner's rights are not given back at once: only after a number of turns in a row that one thread had to itself,
//! and twice as many after every time it was too soon. Threads that take turns soon have a plain spin lock.
//!
//! That a thread writes only its own badge is what makes this sound: one that was the owner long ago, and learns
//! only now that it is no more, takes back its own word and not that of the owner of today.

use std::ptr;

use super::spin::Spin;
use crate::sync::{AtomicPtr, AtomicU32, AtomicUsize, Ordering, back_off, heavy_barrier, light_barrier};

/// How many turns in a row make an owner once there was another.
const FIRST_PATIENCE: u32 = 1 << 6;
/// The most that it takes: at this many, a heavy barrier for each is too little to be measured.
const LAST_PATIENCE: u32 = 1 << 16;

/// Which lock a thread has entered as its owner; on a cache line of its own, since it is written all the time.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct OwnerSlot {
    /// The address of the lock, zero for none. The thread enters no second one as its owner.
    inside: AtomicUsize,
}

impl OwnerSlot {
    pub(crate) const fn new(inside: AtomicUsize) -> Self {
        Self { inside }
    }
}

/// A lock that may have an owner.
///
/// Who holds `spin` holds the lock if there is no owner. Only the holder of `spin` writes the other fields, and
/// an owner's badge holds the lock while it says so.
#[derive(Debug)]
pub(crate) struct BiasedLock {
    pub(crate) rights: Rights,
    pub(crate) turns: Turns,
}

/// What the owner reads; on a cache line that is hardly ever written.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Rights {
    /// The badge of the thread that may enter as owner; null, or the same as `owner`.
    pub(crate) favoured: AtomicPtr<OwnerSlot>,
    /// The badge to be asked whether its thread is inside; null once a holder of `spin` knows that it is not.
    pub(crate) owner: AtomicPtr<OwnerSlot>,
}

/// What everyone else writes.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Turns {
    pub(crate) spin: Spin,
    /// The badge of the thread whose turn was the last.
    pub(crate) last: AtomicPtr<OwnerSlot>,
    /// The turns it had in a row without finding the lock taken.
    pub(crate) streak: AtomicU32,
    /// How many of them make an owner; none for the first one.
    pub(crate) patience: AtomicU32,
}

impl BiasedLock {
    /// Takes the lock if the badge is the owner's, and the badge's thread is not inside another lock.
    #[inline(always)]
    pub(crate) fn enter(&self, me: &OwnerSlot) -> bool {
        if me.inside.load(Ordering::Relaxed) != 0 {
            return false;
        }
        // Release, with `recall`: whoever sees this thread in here sees all that it did in the lock before.
        me.inside.store(self.address(), Ordering::Release);
        light_barrier();
        // Acquire: nothing that the lock guards is read before. Whether this is still true is for the barriers.
        if ptr::eq(self.rights.favoured.load(Ordering::Acquire), me) {
            return true;
        }
        // Release, with `recall`, as above.
        me.inside.store(0, Ordering::Release);
        false
    }

    /// Takes the lock, after whoever holds it; makes the badge's thread the owner when its time has come.
    pub(crate) fn take(&self, me: Option<&'static OwnerSlot>) {
        let alone = self.turns.spin.try_take();
        if !alone {
            self.turns.spin.wait();
        }
        if !self.recall() {
            self.wait_for_owner();
        }
        self.count(me, alone);
    }

    /// Takes the lock if nobody holds it.
    pub(crate) fn try_take(&self, me: Option<&'static OwnerSlot>) -> bool {
        if !self.turns.spin.try_take() {
            return false;
        }
        if !self.recall() {
            self.turns.spin.leave();
            return false;
        }
        self.count(me, true);
        true
    }

    /// Leaves the lock to the next.
    #[inline(always)]
    pub(crate) fn leave(&self) {
        match self.owner() {
            // Release, with `recall`: the next sees what was done in here.
            Some(owner) => owner.inside.store(0, Ordering::Release),
            None => self.turns.spin.leave(),
        }
    }

    /// Keeps the owner from entering; `false` if it is inside. For the holder of `spin`.
    #[inline]
    fn recall(&self) -> bool {
        let Some(owner) = self.owner() else {
            return true;
        };
        if !self.rights.favoured.load(Ordering::Relaxed).is_null() {
            self.take_rights();
        }
        // Acquire, with the stores in `leave` and `enter`.
        if owner.inside.load(Ordering::Acquire) == self.address() {
            return false;
        }
        self.rights.owner.store(ptr::null_mut(), Ordering::Relaxed);
        true
    }

    #[cold]
    fn take_rights(&self) {
        self.rights.favoured.store(ptr::null_mut(), Ordering::Relaxed);
        heavy_barrier();
        let patience = self.turns.patience.load(Ordering::Relaxed) * 2;
        let patience = patience.clamp(FIRST_PATIENCE, LAST_PATIENCE);
        self.turns.patience.store(patience, Ordering::Relaxed);
    }

    #[cold]
    fn wait_for_owner(&self) {
        for round in 0.. {
            back_off(round);
            if self.recall() {
                return;
            }
        }
    }

    /// Counts a turn, and makes its thread the owner if it had enough of them. For the holder of `spin`.
    #[inline]
    fn count(&self, me: Option<&'static OwnerSlot>, alone: bool) {
        let Turns { last, streak, patience, .. } = &self.turns;
        let mine = me.map_or(ptr::null_mut(), |me| ptr::from_ref(me).cast_mut());
        let turns = if alone && last.load(Ordering::Relaxed) == mine {
            streak.load(Ordering::Relaxed) + 1
        } else {
            last.store(mine, Ordering::Relaxed);
            0
        };
        if turns < patience.load(Ordering::Relaxed) {
            streak.store(turns, Ordering::Relaxed);
        } else if let Some(me) = me {
            self.favour(me);
        }
    }

    /// Makes the holder of `spin` the owner, and lets its badge hold the lock instead.
    #[cold]
    fn favour(&self, me: &'static OwnerSlot) {
        if me.inside.load(Ordering::Relaxed) != 0 {
            return;
        }
        let mine = ptr::from_ref(me).cast_mut();
        me.inside.store(self.address(), Ordering::Release);
        self.rights.owner.store(mine, Ordering::Relaxed);
        self.rights.favoured.store(mine, Ordering::Relaxed);
        // Whoever takes `spin` from here on sees the three stores.
        self.turns.spin.leave();
    }

    #[inline(always)]
    fn owner(&self) -> Option<&'static OwnerSlot> {
        let owner = self.rights.owner.load(Ordering::Relaxed);
        // SAFETY: it is null, or was made in `favour` from a reference that holds for ever.
        unsafe { owner.as_ref() }
    }

    #[inline(always)]
    fn address(&self) -> usize {
        ptr::from_ref(self).addr()
    }
}
