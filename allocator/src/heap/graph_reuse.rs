//! Reuse inside a capture, where the order of the graph makes it safe.

use std::sync::atomic::Ordering::Relaxed;

use cachette_hal::{CaptureId, CaptureNode, Device};

use crate::blocks::BlockId;
use crate::heap::ancestors::Ancestors;
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
            let is_behind = |uses: &FrontierNodes| reach.capture() != Some(uses.capture) || reach.covers(&uses.nodes);
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
