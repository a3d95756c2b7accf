//! The blocks of one size, and the state of each.

#![forbid(unsafe_code)]

use std::ptr::NonNull;

use cachette_hal::Device;

use super::memory::PinnedMemory;
use super::uses::PinnedUser;
use crate::stats::Stat;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PinnedPlace {
    /// log2 of the size.
    pub(super) bucket: u32,
    pub(super) slot: u32,
}

impl PinnedPlace {
    pub(super) const NOWHERE: Self = Self { bucket: u32::MAX, slot: 0 };

    pub(super) const fn bytes(self) -> usize {
        1 << self.bucket
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PinnedState {
    Vacant,
    /// No user; it is in the list of free blocks.
    Free,
    /// A [`PinnedAllocation`](super::PinnedAllocation).
    Owned,
    /// A caller that has its address.
    Raw,
    /// Streams or graphs; its caller has freed it.
    Pending,
    /// The block is being returned to the driver.
    Leaving,
}

pub(super) struct Bucket<D: Device> {
    slots: Vec<PinnedSlot<D>>,
    /// The free blocks, the last-freed one at the end. Its capacity is at least the length of `slots`.
    free: Vec<u32>,
    vacant: Vec<u32>,
    pub(super) active: Stat,
    /// Whether the allocator is dropped, so that a freed block serves no further request.
    closed: bool,
}

struct PinnedSlot<D: Device> {
    memory: PinnedMemory,
    state: PinnedState,
    /// Empty unless it is `Owned` or `Raw`.
    users: Vec<PinnedUser<D>>,
}

impl<D: Device> Default for Bucket<D> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: Vec::new(), vacant: Vec::new(), active: Stat::default(), closed: false }
    }
}

impl<D: Device> Bucket<D> {
    #[inline(always)]
    pub(super) fn allocate(&mut self, state: PinnedState) -> Option<(u32, NonNull<u8>)> {
        let index = self.free.pop()?;
        let slot = &mut self.slots[index as usize];
        slot.state = state;
        self.active.raise(1);
        Some((index, slot.memory.ptr))
    }

    /// Frees a block on the fast path. Returns `false` if the free takes the slow path; then nothing has changed.
    #[inline(always)]
    pub(super) fn try_free(&mut self, index: u32) -> bool {
        let fast_path = self.slots[index as usize].users.is_empty() && !self.closed;
        if fast_path {
            self.free(index);
        }
        fast_path
    }

    /// Makes a block pending. Returns its users, and whether the allocator is dropped.
    pub(super) fn suspend(&mut self, index: u32) -> (Vec<PinnedUser<D>>, bool) {
        let slot = &mut self.slots[index as usize];
        slot.state = PinnedState::Pending;
        (std::mem::take(&mut slot.users), self.closed)
    }

    #[inline(always)]
    pub(super) fn free(&mut self, index: u32) {
        self.slots[index as usize].state = PinnedState::Free;
        self.free.push(index);
        self.active.lower(1);
    }

    /// Adds a new block for a caller. Returns its slot.
    pub(super) fn add(&mut self, memory: PinnedMemory, state: PinnedState) -> u32 {
        let slot = PinnedSlot { memory, state, users: Vec::new() };
        self.active.raise(1);
        if let Some(index) = self.vacant.pop() {
            self.slots[index as usize] = slot;
            return index;
        }
        self.slots.push(slot);
        self.free.reserve(self.slots.len());
        u32::try_from(self.slots.len() - 1).expect("there are fewer blocks than addresses of pages")
    }

    /// Removes every free block from the list, except those of the reserve segment.
    pub(super) fn begin_leaving(&mut self) -> Vec<(u32, PinnedMemory)> {
        let slots = &mut self.slots;
        let leaving = self.free.extract_if(.., |index| !slots[*index as usize].memory.is_of_reserve());
        let leaving: Vec<u32> = leaving.collect();
        let leave = |index: u32| {
            let slot = &mut slots[index as usize];
            slot.state = PinnedState::Leaving;
            (index, slot.memory)
        };
        leaving.into_iter().map(leave).collect()
    }

    /// Removes a block that is `gone`, or puts it back into the list.
    pub(super) fn end_leaving(&mut self, index: u32, gone: bool) {
        let (state, list) =
            if gone { (PinnedState::Vacant, &mut self.vacant) } else { (PinnedState::Free, &mut self.free) };
        self.slots[index as usize].state = state;
        list.push(index);
    }

    pub(super) fn record_use(&mut self, index: u32, user: PinnedUser<D>) {
        let users = &mut self.slots[index as usize].users;
        if !users.iter().any(|known| known.is(&user)) {
            users.push(user);
        }
    }

    pub(super) fn make_raw(&mut self, index: u32) {
        self.slots[index as usize].state = PinnedState::Raw;
    }

    /// The user of the block in a slot, if the block is at `address`.
    pub(super) fn state_at(&self, index: u32, address: usize) -> PinnedState {
        match self.slots.get(index as usize) {
            Some(slot) if slot.memory.address() == address => slot.state,
            _ => PinnedState::Vacant,
        }
    }

    /// Closes the bucket: freed blocks are not reused any more. Returns the number of owned blocks.
    pub(super) fn close(&mut self) -> usize {
        self.closed = true;
        self.slots.iter().filter(|slot| slot.state == PinnedState::Owned).count()
    }

    pub(super) fn uses_reserve(&self) -> bool {
        self.slots.iter().any(|slot| slot.memory.is_of_reserve() && slot.state != PinnedState::Free)
    }
}
