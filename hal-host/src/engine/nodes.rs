//! Nodes of captures in progress, as callers see them.

use cachette_hal::{Call, CaptureNode, CaptureStatus, ErrorKind, Result, StreamRef};

use super::State;
use super::graph::Node;
use super::stream::StreamKey;
use crate::checks::{check, error};
use crate::defect::Defect;
use crate::engine::machine::Machine;

/// The bits of a node's number that hold its position in the capture.
const PLACE_BITS: u32 = 32;

/// Returns the number of a node: its capture, and its position there counted from one, so that no number is zero.
fn number(capture: u64, node: Node) -> CaptureNode {
    let capture = usize::try_from(capture).unwrap_or_default();
    CaptureNode::from_raw((capture << PLACE_BITS) | (node + 1))
}

fn place(node: CaptureNode) -> Option<(u64, Node)> {
    let place = node.raw() & ((1 << PLACE_BITS) - 1);
    Some(((node.raw() >> PLACE_BITS) as u64, place.checked_sub(1)?))
}

impl Machine {
    /// Appends the nodes that the stream's next work depends on. Returns the capture status.
    pub(crate) fn frontier(
        &self,
        device: usize,
        stream: StreamRef,
        nodes: &mut Vec<CaptureNode>,
    ) -> Result<CaptureStatus> {
        let mut state = self.state();
        let key = state.find_stream(Call::Frontier, device, stream)?;
        let status = self.status_of(&state, key);
        match status {
            CaptureStatus::Active(_) => nodes.extend(self.frontier_of(&state, key)),
            CaptureStatus::Broken if !self.lies(Defect::BrokenCaptureHasFrontier) => {}
            CaptureStatus::Idle if !self.lies(Defect::IdleStreamHasFrontier) => {}
            _ => nodes.push(number(1, 0)),
        }
        if self.lies(Defect::FrontierBreaksCapture)
            && let Some(id) = state.streams.get(&key).and_then(|stream| stream.capture)
        {
            self.break_capture(&mut state, id);
        }
        Ok(status)
    }

    fn frontier_of(&self, state: &State, key: StreamKey) -> Vec<CaptureNode> {
        let id = state.streams.get(&key).and_then(|stream| stream.capture);
        let Some((id, capture)) = id.and_then(|id| Some((id, state.captures.get(&id)?))) else { return Vec::new() };
        let ends: Vec<Node> = if self.lies(Defect::FrontierStaysBehind) {
            Vec::new()
        } else if self.lies(Defect::FrontierOfAllStreams) {
            capture.ends.values().flatten().copied().collect()
        } else if capture.body.before(0).is_none() && self.lies(Defect::FreshCaptureHasNodes) {
            vec![0, 1]
        } else {
            capture.ends.get(&key).cloned().unwrap_or_default()
        };
        ends.into_iter().map(|node| number(id, node)).collect()
    }

    /// Appends the nodes that a node directly depends on, of any device.
    pub(crate) fn dependencies(&self, node: CaptureNode, nodes: &mut Vec<CaptureNode>) -> Result<()> {
        let call = Call::Dependencies;
        let state = self.state();
        let found = place(node).and_then(|(id, node)| {
            let capture = state.captures.get(&id)?;
            Some((id, node, capture, capture.body.before(node)?))
        });
        let (id, node, capture, before) = found.ok_or(error(call, ErrorKind::InvalidHandle))?;
        check(!capture.broken, call, ErrorKind::CaptureBroken)?;
        if self.lies(Defect::DependenciesOnEverything) {
            nodes.extend((0..node).map(|before| number(id, before)));
        } else if !self.lies(Defect::DependenciesForgotten) {
            nodes.extend(before.iter().map(|before| number(id, *before)));
        }
        Ok(())
    }
}
