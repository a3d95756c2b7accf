//! The graph nodes that precede the next work of a captured stream.

#![forbid(unsafe_code)]

use std::collections::HashSet;

use cachette_hal::{self as hal, CaptureId, CaptureNode};

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
    pub(crate) const fn capture(&self) -> Option<CaptureId> {
        self.capture
    }

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
