//! Blocks that their callers freed while streams or graphs still use them.

#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::sync::Arc;

use cachette_hal::Device;

use super::bucket::PinnedPlace;
use super::uses::{GraphOwner, PinnedUses};
use crate::fence::Fence;

/// Blocks that their callers freed while streams or graphs still use them. Each is in one of the lists.
#[derive(Debug)]
pub(super) struct PinnedPending<D: Device> {
    /// For every stream state that uses such blocks, by number: the points to wait for, in the order they were marked.
    queues: Vec<(u64, VecDeque<PinnedWaiting<D>>)>,
    /// Blocks whose uses are not marked yet: the driver failed, or a stream that uses them is captured.
    unmarked: Vec<(PinnedPlace, PinnedUses<D>)>,
    /// Blocks that only graphs use.
    kept: Vec<Waiter>,
}

/// One point that a block waits for.
#[derive(Debug)]
struct PinnedWaiting<D: Device> {
    fence: Arc<Fence<D>>,
    /// Shared by all points of the block. The release of the last reference shows that no point is left.
    waiter: Arc<Waiter>,
}

/// A block that waits, and the graphs that keep it after that.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) place: PinnedPlace,
    pub(super) keepers: Vec<GraphOwner>,
}

impl<D: Device> Default for PinnedPending<D> {
    fn default() -> Self {
        Self { queues: Vec::new(), unmarked: Vec::new(), kept: Vec::new() }
    }
}

impl<D: Device> PinnedPending<D> {
    /// Whether there is any such block.
    pub(super) fn is_any(&self) -> bool {
        self.awaits_streams() || !self.kept.is_empty()
    }

    /// Whether any block waits for a stream.
    pub(super) fn awaits_streams(&self) -> bool {
        !self.queues.is_empty() || !self.unmarked.is_empty()
    }

    /// Lets a block wait for points, at least one.
    pub(super) fn wait(&mut self, waiter: Waiter, fences: Vec<Fence<D>>) {
        let waiter = Arc::new(waiter);
        for fence in fences {
            let (stream_state, _) = fence.point();
            let waiting = PinnedWaiting { fence: Arc::new(fence), waiter: Arc::clone(&waiter) };
            match self.queues.iter_mut().find(|(of, _)| *of == stream_state) {
                Some((_, queue)) => queue.push_back(waiting),
                None => self.queues.push((stream_state, VecDeque::from([waiting]))),
            }
        }
    }

    /// Lets a block wait until its uses can be marked.
    pub(super) fn postpone(&mut self, place: PinnedPlace, uses: PinnedUses<D>) {
        self.unmarked.push((place, uses));
    }

    /// Lets a block wait until its keepers are gone.
    pub(super) fn keep(&mut self, waiter: Waiter) {
        self.kept.push(waiter);
    }

    /// The blocks whose uses are not marked yet; they are the caller's from now on.
    pub(super) fn take_unmarked(&mut self) -> Vec<(PinnedPlace, PinnedUses<D>)> {
        std::mem::take(&mut self.unmarked)
    }

    /// The first point of every stream state, with the number of the state.
    pub(super) fn heads(&self) -> Vec<(u64, Arc<Fence<D>>)> {
        let head = |(stream_state, queue): &(u64, VecDeque<PinnedWaiting<D>>)| {
            let first = queue.front()?;
            Some((*stream_state, Arc::clone(&first.fence)))
        };
        self.queues.iter().filter_map(head).collect()
    }

    /// Every point that is waited for.
    pub(super) fn fences(&self) -> Vec<Arc<Fence<D>>> {
        let waiting = self.queues.iter().flat_map(|(_, queue)| queue);
        waiting.map(|one| Arc::clone(&one.fence)).collect()
    }

    /// Lets every one of `users` pass its first point; the blocks that wait for no more.
    pub(super) fn pass(&mut self, users: &[u64]) -> Vec<Waiter> {
        let passing = self.queues.iter_mut().filter(|(of, _)| users.contains(of));
        let passed = passing.filter_map(|(_, queue)| queue.pop_front());
        let done = passed.filter_map(|waiting| Arc::into_inner(waiting.waiter)).collect();
        self.queues.retain(|(_, queue)| !queue.is_empty());
        done
    }

    /// The blocks whose keepers are gone.
    pub(super) fn take_unkept(&mut self) -> Vec<Waiter> {
        let gone = |waiter: &mut Waiter| waiter.keepers.iter().all(GraphOwner::is_gone);
        self.kept.extract_if(.., gone).collect()
    }

    /// Every block; none waits any more.
    pub(super) fn into_places(self) -> Vec<PinnedPlace> {
        let waiting = self.queues.into_iter().flat_map(|(_, queue)| queue);
        let waiters = waiting.filter_map(|waiting| Arc::into_inner(waiting.waiter));
        let unmarked = self.unmarked.into_iter().map(|(place, _)| place);
        let waiters = waiters.chain(self.kept).map(|waiter| waiter.place);
        waiters.chain(unmarked).collect()
    }
}
