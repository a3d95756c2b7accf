//! How far back a captured stream reaches in the graph that is being recorded.

#![forbid(unsafe_code)]

use std::collections::HashSet;

use cachette_hal::{self as hal, CaptureId, CaptureNode};

/// The nodes that come before whatever a stream captures next.
///
/// It grows with the stream: only nodes that were not there before are asked for what they depend on.
#[derive(Debug, Default)]
pub(crate) struct Ancestors {
    capture: Option<CaptureId>,
    /// Where the stream stood when it was last followed.
    frontier: Vec<CaptureNode>,
    /// The frontier, and all that its nodes depend on, near and far.
    nodes: HashSet<CaptureNode>,
}

impl Ancestors {
    /// The capture that the nodes are of.
    pub(crate) const fn capture(&self) -> Option<CaptureId> {
        self.capture
    }

    /// Whether the stream's next work comes after all of `nodes`.
    pub(crate) fn covers(&self, nodes: &[CaptureNode]) -> bool {
        nodes.iter().all(|node| self.nodes.contains(node))
    }

    /// Follows the stream to `frontier`; `before` appends what a node directly depends on.
    ///
    /// If that fails, all is forgotten: of a node that was seen and not asked nobody would know later.
    pub(crate) fn follow(
        &mut self,
        capture: CaptureId,
        frontier: Vec<CaptureNode>,
        mut before: impl FnMut(CaptureNode, &mut Vec<CaptureNode>) -> hal::Result<()>,
    ) -> hal::Result<()> {
        let last = std::mem::take(self);
        let mut next = Self { capture: Some(capture), frontier, nodes: HashSet::new() };
        if last.capture == Some(capture) {
            next.nodes = last.nodes;
            let mut unmet: HashSet<CaptureNode> = last.frontier.into_iter().collect();
            next.walk(&mut before, |node| {
                unmet.remove(&node);
            })?;
            // A program may have told the stream to depend on less than it did; what it reached may be too much then.
            if !unmet.is_empty() {
                next.nodes.clear();
            }
        }
        next.walk(&mut before, |_| {})?;
        *self = next;
        Ok(())
    }

    /// Adds the frontier and all before it; `meet` is told of every node on the way.
    fn walk(
        &mut self,
        before: &mut impl FnMut(CaptureNode, &mut Vec<CaptureNode>) -> hal::Result<()>,
        mut meet: impl FnMut(CaptureNode),
    ) -> hal::Result<()> {
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

    /// What each node depends on: 1 → 2 → 3 and 1 → 4, which 5 joins.
    const GRAPH: [&[usize]; 6] = [&[], &[], &[1], &[2], &[1], &[3, 4]];

    fn nodes(numbers: &[usize]) -> Vec<CaptureNode> {
        numbers.iter().copied().map(CaptureNode::from_raw).collect()
    }

    fn capture(number: u64) -> CaptureId {
        CaptureId(NonZeroU64::new(number).expect("captures count from one"))
    }

    /// Follows to `frontier`; how many nodes were asked for.
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
        assert_eq!(reach.capture(), Some(capture(1)));
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
        assert!(reach.capture().is_none() && !reach.covers(&nodes(&[1])));
        assert_eq!(follow(&mut reach, 1, &[5]), 5);
    }
}
