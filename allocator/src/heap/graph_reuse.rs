//! Reuse inside a capture, where the graph's own order makes it safe.

use std::sync::atomic::Ordering::Relaxed;

use cachette_hal::{CaptureId, CaptureNode, Device};

use crate::blocks::BlockId;
use crate::heap::ancestors::Ancestors;
use crate::heap::{Heap, StreamUses};

/// A block that was freed while a stream that uses it, or its own, was captured.
#[derive(Debug)]
pub(crate) struct Deferred<D: Device> {
    pub(crate) block: BlockId,
    pub(crate) uses: StreamUses<D>,
    /// What its next use inside the capture must come after; `None` if it waits until the capture is over.
    markers: Option<FrontierNodes>,
}

/// Where the streams that used a block stood when it was freed.
#[derive(Debug)]
struct FrontierNodes {
    capture: CaptureId,
    nodes: Vec<CaptureNode>,
}

impl FrontierNodes {
    /// Whether the uses come before all that follows in the stream that is followed by `reach`.
    ///
    /// Once that stream is in another capture, the one in which the block was used is over.
    fn are_behind(&self, reach: &Ancestors) -> bool {
        let current = reach.capture() == Some(self.capture);
        !current || reach.covers(&self.nodes)
    }
}

impl<D: Device> Heap<D> {
    /// A block that is freed now, during a capture, with what its reuse has to come after.
    pub(crate) fn deferred(&self, block: BlockId, uses: StreamUses<D>) -> Deferred<D> {
        let markers = self.markers(&uses);
        Deferred { block, uses, markers }
    }

    /// Where the heap's own stream and all that use the block stand, if reuse is wanted, all of them take part in
    /// one capture and every use was captured.
    ///
    /// If the driver fails to say it, the block waits for the end of the capture, as it would without.
    fn markers(&self, uses: &StreamUses<D>) -> Option<FrontierNodes> {
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

    /// Frees the blocks whose uses come before all that the heap's stream, which is captured, will do.
    pub(crate) fn reuse_in_capture(&self) {
        if !self.reuses_in_captures() {
            return;
        }
        let mut reach = {
            let pending = &mut self.state.lock().pending;
            if pending.deferred.iter().all(|known| known.markers.is_none()) {
                return;
            }
            std::mem::take(&mut pending.reach)
        };
        // Without the lock, for the driver is asked.
        let followed = self.follow(&mut reach);
        let mut state = self.state.lock();
        let mut done = Vec::new();
        if followed.is_some() {
            let behind = |known: &mut Deferred<D>| {
                let markers = known.markers.as_ref();
                markers.is_some_and(|markers| markers.are_behind(&reach))
            };
            let freed = state.pending.deferred.extract_if(.., behind);
            done.extend(freed.map(|known| (known.block, Vec::new())));
        }
        state.pending.reach = reach;
        if !done.is_empty() {
            self.become_free(state, done);
        }
    }

    /// Follows the heap's stream to where it stands; `None` if the driver fails or the stream is not captured.
    fn follow(&self, reach: &mut Ancestors) -> Option<()> {
        let mut frontier = Vec::new();
        let id = self.stream_state.frontier(&mut frontier)?;
        let capture = self.shared.device.capture().ok()?;
        let followed = reach.follow(id, frontier, |node, before| {
            // SAFETY: 1. the node was told just now, and nobody ends the capture meanwhile: who wants reuse has promised
            // that one thread at a time uses the streams of a capture.
            unsafe { capture.dependencies(node, before) }
        });
        followed.ok()
    }

    /// Frees what waited for a capture that is over, as far as nothing else is waited for.
    pub(crate) fn tend_after_capture(&self) {
        if !self.reuses_in_captures() {
            return;
        }
        // What fails now is tried again at the next request.
        let _ = self.process_events();
    }

    fn reuses_in_captures(&self) -> bool {
        self.shared.settings.reuses_in_captures.load(Relaxed)
    }
}
