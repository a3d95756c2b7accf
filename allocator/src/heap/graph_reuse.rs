//! Reuse inside a capture, where the order of the graph makes it safe.

use std::collections::HashSet;
use std::sync::atomic::Ordering::Relaxed;

use cachette_hal::{CaptureId, CaptureNode, Device, Result};

use crate::blocks::BlockId;
use crate::heap::{Heap, StreamUses};

/// A block that was freed while its own stream, or another one that uses it, was captured.
pub(crate) struct Deferred<D: Device> {
    pub(crate) block: BlockId,
    pub(crate) uses: StreamUses<D>,
    /// The nodes that its next use inside the capture must follow; `None` if it waits for the end of the capture.
    pub(super) frontier_nodes: Option<FrontierNodes>,
}

/// The frontiers of the streams that used a block, at the time of its free.
pub(super) struct FrontierNodes {
    capture: CaptureId,
    nodes: Vec<CaptureNode>,
}

impl<D: Device> Heap<D> {
    /// Returns the frontiers of all streams of a block, if they are in one capture with all uses, and reuse is enabled.
    ///
    /// If the driver fails, the block waits for the end of the capture, as it does without reuse.
    pub(super) fn frontier_nodes(&self, uses: &StreamUses<D>) -> Option<FrontierNodes> {
        if !self.reuses_in_captures() || uses.captured < uses.users.len() {
            return None;
        }
        let mut nodes = Vec::new();
        let capture = self.stream_state.frontier(&mut nodes)?;
        for stream_state in &uses.users {
            if stream_state.frontier(&mut nodes)? != capture {
                return None;
            }
        }
        nodes.sort_unstable();
        nodes.dedup();
        Some(FrontierNodes { capture, nodes })
    }

    /// Frees the blocks whose uses precede all later work of the heap's captured stream.
    pub(crate) fn reuse_in_capture(&self) {
        if !self.reuses_in_captures() {
            return;
        }
        let mut reach = {
            let pending = &mut self.state.lock().pending;
            if pending.deferred.iter().all(|known| known.frontier_nodes.is_none()) {
                return;
            }
            std::mem::take(&mut pending.reach)
        };
        // Without the lock, since this calls the driver.
        let followed = self.follow(&mut reach);
        let mut state = self.state.lock();
        let mut done = Vec::new();
        if followed.is_some() {
            // If the stream is in another capture by now, the capture of the block's uses has ended.
            let is_behind = |uses: &FrontierNodes| reach.capture != Some(uses.capture) || reach.covers(&uses.nodes);
            let freed =
                state.pending.deferred.extract_if(.., |known| known.frontier_nodes.as_ref().is_some_and(is_behind));
            done.extend(freed.map(|known| (known.block, Vec::new())));
        }
        state.pending.reach = reach;
        if !done.is_empty() {
            drop(self.become_free(state, done));
        }
    }

    /// Advances `reach` to the stream's frontier. `None` if the driver fails or the stream is not captured.
    fn follow(&self, reach: &mut Ancestors) -> Option<()> {
        let mut frontier = Vec::new();
        let id = self.stream_state.frontier(&mut frontier)?;
        let capture = self.shared.device.capture().ok()?;
        let followed = reach.follow(id, frontier, |node, before| {
            // SAFETY: 1. the driver has just returned the node, and no other thread ends the capture during the call. A
            // program that enables reuse promises that one thread at a time uses the streams of a capture.
            unsafe { capture.dependencies(node, before) }
        });
        followed.ok()
    }

    fn reuses_in_captures(&self) -> bool {
        self.shared.settings.reuses_in_captures.load(Relaxed)
    }
}

/// The graph nodes that precede the next work of a captured stream.
///
/// The set grows with the stream: an update queries the dependencies of new nodes only.
#[derive(Debug, Default)]
pub(crate) struct Ancestors {
    capture: Option<CaptureId>,
    /// The frontier of the stream at the last update.
    frontier: Vec<CaptureNode>,
    /// The frontier, and all direct and indirect dependencies of its nodes.
    nodes: HashSet<CaptureNode>,
}

impl Ancestors {
    /// Returns whether the stream's next work comes after all of `nodes`.
    pub(crate) fn covers(&self, nodes: &[CaptureNode]) -> bool {
        nodes.iter().all(|node| self.nodes.contains(node))
    }

    /// Advances to `frontier`. `before` appends the direct dependencies of a node.
    ///
    /// A failure clears the set. Otherwise a later update would skip a node whose dependencies were never queried.
    pub(crate) fn follow(
        &mut self,
        capture: CaptureId,
        frontier: Vec<CaptureNode>,
        mut before: impl FnMut(CaptureNode, &mut Vec<CaptureNode>) -> Result<()>,
    ) -> Result<()> {
        let last = std::mem::take(self);
        let mut next = Self { capture: Some(capture), frontier, nodes: HashSet::new() };
        if last.capture == Some(capture) {
            next.nodes = last.nodes;
            let mut unmet: HashSet<CaptureNode> = last.frontier.into_iter().collect();
            next.walk(&mut before, |node| {
                unmet.remove(&node);
            })?;
            // The program may have removed dependencies of the stream, so the old set may contain too many nodes.
            if !unmet.is_empty() {
                next.nodes.clear();
            }
        }
        next.walk(&mut before, |_| {})?;
        *self = next;
        Ok(())
    }

    /// Adds the frontier and all of its dependencies. Calls `meet` for every node on the way.
    fn walk(
        &mut self,
        before: &mut impl FnMut(CaptureNode, &mut Vec<CaptureNode>) -> Result<()>,
        mut meet: impl FnMut(CaptureNode),
    ) -> Result<()> {
        let mut ahead = self.frontier.clone();
        while let Some(node) = ahead.pop() {
            meet(node);
            if self.nodes.insert(node) {
                before(node, &mut ahead)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use cachette_hal::{Error, ErrorKind};

    use super::*;

    /// The dependencies of each node: 1 → 2 → 3 and 1 → 4, joined by 5.
    const GRAPH: [&[usize]; 6] = [&[], &[], &[1], &[2], &[1], &[3, 4]];

    fn nodes(numbers: &[usize]) -> Vec<CaptureNode> {
        numbers.iter().copied().map(CaptureNode::from_raw).collect()
    }

    fn capture(number: u64) -> CaptureId {
        CaptureId(NonZeroU64::new(number).expect("captures count from one"))
    }

    /// Advances to `frontier`, and returns the number of queried nodes.
    fn follow(reach: &mut Ancestors, number: u64, frontier: &[usize]) -> usize {
        let mut asked = 0;
        reach
            .follow(capture(number), nodes(frontier), |node, ahead| {
                asked += 1;
                ahead.extend(nodes(GRAPH[node.raw()]));
                Ok(())
            })
            .expect("every node can be asked");
        asked
    }

    #[test]
    fn a_stream_reaches_what_leads_to_its_frontier_and_no_more() {
        let mut reach = Ancestors::default();
        follow(&mut reach, 1, &[3]);
        assert!(reach.covers(&nodes(&[1, 2, 3])));
        assert!(!reach.covers(&nodes(&[4])) && !reach.covers(&nodes(&[3, 5])));
        follow(&mut reach, 1, &[5]);
        assert!(reach.covers(&nodes(&[1, 2, 3, 4, 5])));
        assert_eq!(reach.capture, Some(capture(1)));
    }

    #[test]
    fn each_node_is_asked_for_once() {
        let mut reach = Ancestors::default();
        let asked = [&[1][..], &[2], &[2], &[2, 4], &[3, 4], &[5], &[5]];
        let asked = asked.map(|frontier| follow(&mut reach, 1, frontier));
        assert_eq!(asked, [1, 1, 0, 1, 1, 1, 0]);
    }

    #[test]
    fn another_capture_begins_anew() {
        let mut reach = Ancestors::default();
        follow(&mut reach, 1, &[5]);
        assert_eq!(follow(&mut reach, 2, &[2]), 2);
        assert!(!reach.covers(&nodes(&[3])));
    }

    #[test]
    fn a_frontier_that_was_taken_back_is_believed() {
        let mut reach = Ancestors::default();
        follow(&mut reach, 1, &[3]);
        follow(&mut reach, 1, &[4]);
        assert!(reach.covers(&nodes(&[1, 4])));
        assert!(!reach.covers(&nodes(&[2])) && !reach.covers(&nodes(&[3])));
    }

    #[test]
    fn what_a_failure_left_half_done_is_done_again() {
        let mut reach = Ancestors::default();
        follow(&mut reach, 1, &[2]);
        let failed = reach.follow(capture(1), nodes(&[5]), |_, _| Err(Error::new(ErrorKind::Other, "dependencies")));
        assert!(failed.is_err());
        assert!(reach.capture.is_none() && !reach.covers(&nodes(&[1])));
        assert_eq!(follow(&mut reach, 1, &[5]), 5);
    }
}
