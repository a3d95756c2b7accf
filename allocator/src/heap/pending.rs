//! The fences that freed blocks wait for, in one queue per stream.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use cachette_hal::{self as hal, Device, ErrorKind, Progress};

use crate::blocks::BlockId;
use crate::fence::Fence;
use crate::heap::StreamUses;
use crate::heap::graph_reuse::{Ancestors, Deferred};

/// The most streams of which a hit polls an event. With more streams they take turns.
const POLLED: usize = 16;

/// Blocks that their callers freed while other streams still use them.
pub(crate) struct PendingFrees<D: Device> {
    /// One queue for every stream state that uses such blocks, by its number.
    queues: BTreeMap<u64, PendingQueue<D>>,
    /// The stream state whose queue a hit polled last.
    polled: u64,
    /// The number of fences that each of these blocks still waits for.
    left: HashMap<BlockId, u32>,
    /// Blocks for whose uses no fence is recorded yet, because the driver failed.
    pub(super) unrecorded: Vec<(BlockId, StreamUses<D>)>,
    /// Blocks freed while one of their streams was captured: no fence can be recorded there.
    pub(crate) deferred: Vec<Deferred<D>>,
    /// The graph nodes that precede the next work of the heap's own stream, if it is captured and was queried.
    pub(crate) reach: Ancestors,
    /// Blocks freed while they are exported to other processes. The end of the last export continues the free.
    pub(crate) exported: HashMap<BlockId, StreamUses<D>>,
}

/// The fences of one stream state that blocks wait for.
struct PendingQueue<D: Device> {
    /// In the order of the fences. A stream runs in order, so a fence that has passed covers those before it.
    blocks: VecDeque<PendingBlock<D>>,
    /// Whether the next poll is for the last fence, and not for the first.
    polls_last: bool,
}

struct PendingBlock<D: Device> {
    fence: Arc<Fence<D>>,
    block: BlockId,
}

/// A fence to be polled without the heap's lock.
pub(super) struct Poll<D: Device> {
    pub(super) fence: Arc<Fence<D>>,
    /// How many fences of the queue come before it.
    at: usize,
    /// How many come before the first one that is known not to have passed; `None` if none is.
    open: Option<usize>,
    /// Whether all polls from the first fence on have passed.
    grows: bool,
}

impl<D: Device> Poll<D> {
    /// Returns whether the fence has passed. One in a captured stream has not.
    pub(super) fn ask(&self) -> hal::Result<bool> {
        match self.fence.poll() {
            Err(error) if error.kind() == ErrorKind::CaptureForbids => Ok(false),
            polled => polled.map(Progress::is_done),
        }
    }
}

impl<D: Device> Default for PendingFrees<D> {
    fn default() -> Self {
        Self {
            queues: BTreeMap::new(),
            polled: 0,
            left: HashMap::new(),
            unrecorded: Vec::new(),
            deferred: Vec::new(),
            reach: Ancestors::default(),
            exported: HashMap::new(),
        }
    }
}

impl<D: Device> PendingFrees<D> {
    #[inline]
    pub(crate) fn has_pending_events(&self) -> bool {
        !self.queues.is_empty() || !self.unrecorded.is_empty() || !self.deferred.is_empty()
    }

    pub(super) fn push(&mut self, block: BlockId, fences: Vec<Fence<D>>) {
        self.left.insert(block, u32::try_from(fences.len()).unwrap_or(u32::MAX));
        for fence in fences {
            let (stream, order) = fence.order_key();
            let waiting = PendingBlock { fence: Arc::new(fence), block };
            let new = || PendingQueue { blocks: VecDeque::new(), polls_last: true };
            let blocks = &mut self.queues.entry(stream).or_insert_with(new).blocks;
            let at = blocks.partition_point(|known| known.fence.order_key().1 < order);
            blocks.insert(at, waiting);
        }
    }

    /// One fence of each stream: the last one, and after it had not passed the first. Of many streams, these are some.
    pub(super) fn next_polls(&mut self) -> Vec<Poll<D>> {
        let after = (Bound::Excluded(self.polled), Bound::Unbounded);
        let in_turn = self.queues.range(after).chain(self.queues.range(..=self.polled)).take(POLLED);
        let mut last = self.polled;
        let poll = |(stream_state, queue): (&u64, &PendingQueue<D>)| {
            last = *stream_state;
            queue.poll_at(if queue.polls_last { usize::MAX } else { 0 })
        };
        let polls = in_turn.map(poll).collect();
        self.polled = last;
        polls
    }

    pub(super) fn last_polls(&self) -> Vec<Poll<D>> {
        self.queues.values().map(|queue| queue.poll_at(usize::MAX)).collect()
    }

    pub(crate) fn first_fences(&self) -> Vec<Arc<Fence<D>>> {
        self.queues.values().map(|queue| queue.poll_at(0).fence).collect()
    }

    /// Notes the result of a poll. Appends the blocks that wait for no other fence to `done`.
    pub(super) fn note(&mut self, poll: &Poll<D>, passed: bool, done: &mut Vec<BlockId>) {
        let (stream, order) = poll.fence.order_key();
        let Some(queue) = self.queues.get_mut(&stream) else { return };
        queue.polls_last = passed;
        let count = if passed { queue.blocks.partition_point(|known| known.fence.order_key().1 <= order) } else { 0 };
        for first in queue.blocks.drain(..count) {
            if let Some(left) = self.left.get_mut(&first.block) {
                *left -= 1;
                if *left == 0 {
                    self.left.remove(&first.block);
                    done.push(first.block);
                }
            }
        }
        if queue.blocks.is_empty() {
            self.queues.remove(&stream);
        }
    }

    /// The next fence of the same stream to poll, after its last one had not passed. The distance from the first doubles
    /// until one has not passed, and then halves. So the polls are as many as the doublings of the fences that have.
    pub(super) fn after(&self, poll: &Poll<D>, passed: bool) -> Option<Poll<D>> {
        let queue = self.queues.get(&poll.fence.order_key().0)?;
        let (open, grows) = match (passed, poll.open) {
            (true, open) => (open?.checked_sub(poll.at + 1)?, poll.grows),
            (false, open) => (poll.at, open.is_none()),
        };
        let at = match (grows, poll.open) {
            (true, None) => 0,
            (true, Some(_)) => 2 * poll.at + 1,
            (false, _) => open / 2,
        };
        let next = (open > 0).then(|| queue.poll_at(at.min(open - 1)));
        next.map(|next| Poll { open: Some(open), grows, ..next })
    }

    /// The last fence that each pending block waits for. Blocks without recorded fences are not included.
    pub(crate) fn last_points(&self) -> HashMap<BlockId, u64> {
        let mut last = HashMap::new();
        for waiting in self.queues.values().flat_map(|queue| &queue.blocks) {
            let (_, order) = waiting.fence.order_key();
            let last = last.entry(waiting.block).or_insert(order);
            *last = order.max(*last);
        }
        last
    }

    /// The last fence in each stream that some blocks wait for, which covers the others, for several disjoint sets.
    pub(crate) fn last_fences_of(&self, sets: &[Vec<BlockId>]) -> Vec<Vec<Arc<Fence<D>>>> {
        let members = sets.iter().enumerate().flat_map(|(set, blocks)| blocks.iter().map(move |block| (*block, set)));
        let set_of: HashMap<BlockId, usize> = members.collect();
        let mut fences: Vec<Vec<Arc<Fence<D>>>> = sets.iter().map(|_| Vec::new()).collect();
        for queue in self.queues.values() {
            let mut seen = HashSet::new();
            for waiting in queue.blocks.iter().rev() {
                if let Some(set) = set_of.get(&waiting.block).filter(|set| seen.insert(**set)) {
                    fences[*set].push(Arc::clone(&waiting.fence));
                }
                if seen.len() == sets.len() {
                    break;
                }
            }
        }
        fences
    }
}

impl<D: Device> PendingQueue<D> {
    /// The fence behind `at` others, or the last one.
    fn poll_at(&self, at: usize) -> Poll<D> {
        let at = at.min(self.blocks.len() - 1);
        Poll { fence: Arc::clone(&self.blocks[at].fence), at, open: None, grows: false }
    }
}

#[cfg(test)]
mod tests;
