//! Graphs: captured work with its dependencies.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cachette_hal::{Call, ErrorKind, Graph, Result, StreamRef};

use super::State;
use super::work::Task;
use crate::checks::fail;
use crate::defect::Defect;
use crate::engine::machine::Machine;
use crate::random::SplitMix64;

pub(super) type Node = usize;

#[derive(Debug)]
pub(super) struct GraphState {
    pub(super) device: usize,
    pub(super) body: Arc<GraphBody>,
}

/// Captured work. Queued launches keep it alive.
#[derive(Debug, Default)]
pub(crate) struct GraphBody {
    /// Every node comes after all nodes it depends on.
    steps: Vec<Step>,
    launched: AtomicBool,
}

#[derive(Debug)]
pub(super) struct Step {
    pub(super) device: usize,
    pub(super) task: Task,
    /// Nodes that must have run before.
    after: Vec<Node>,
}

impl GraphBody {
    pub(super) fn push(&mut self, device: usize, task: Task, after: Vec<Node>) -> Node {
        self.steps.push(Step { device, task, after });
        self.steps.len() - 1
    }

    pub(super) fn tasks(&self) -> impl Iterator<Item = &Task> {
        self.steps.iter().map(|step| &step.task)
    }

    /// For every node, whether it is among `ends` or must run before one of them.
    pub(super) fn reached_from(&self, ends: &[Node]) -> Vec<bool> {
        let mut reached = vec![false; self.steps.len()];
        for end in ends {
            reached[*end] = true;
        }
        for node in (0..self.steps.len()).rev() {
            if reached[node] {
                for before in &self.steps[node].after {
                    reached[*before] = true;
                }
            }
        }
        reached
    }

    /// The nodes in an order in which they may run: as captured, or drawn from `random`.
    pub(super) fn order(&self, random: Option<&mut SplitMix64>) -> Vec<Node> {
        let Some(random) = random else { return (0..self.steps.len()).collect() };
        let mut ran = vec![false; self.steps.len()];
        let mut order = Vec::with_capacity(ran.len());
        while order.len() < ran.len() {
            let can_run = |node: &Node| !ran[*node] && self.steps[*node].after.iter().all(|before| ran[*before]);
            let ready: Vec<_> = (0..ran.len()).filter(can_run).collect();
            let chosen = ready[random.below(ready.len())];
            ran[chosen] = true;
            order.push(chosen);
        }
        order
    }

    /// Returns the nodes that a node directly depends on; `None` if there is no such node.
    pub(super) fn before(&self, node: Node) -> Option<&[Node]> {
        self.steps.get(node).map(|step| step.after.as_slice())
    }

    pub(super) fn step(&self, node: Node) -> &Step {
        &self.steps[node]
    }

    /// Marks the graph as launched; returns whether it was launched before.
    pub(super) fn mark_launched(&self) -> bool {
        // Relaxed: the flag is independent of other data.
        self.launched.swap(true, Ordering::Relaxed)
    }
}

impl State {
    fn find_graph(&self, call: Call, device: usize, graph: &Graph) -> Result<Arc<GraphBody>> {
        match self.graphs.get(&graph.raw()) {
            Some(found) if found.device == device => Ok(Arc::clone(&found.body)),
            _ => fail(call, ErrorKind::InvalidHandle),
        }
    }
}

impl Machine {
    /// Queues a graph as one piece of work, or adds it to the stream's capture.
    pub(crate) fn launch(self: &Arc<Self>, device: usize, graph: &Graph, stream: StreamRef) -> Result<()> {
        let body = self.state().find_graph(Call::Launch, device, graph)?;
        if body.mark_launched() && self.lies(Defect::GraphRunsOnce) {
            return Ok(());
        }
        self.submit(Call::Launch, device, stream, Task::Launch(body))
    }

    pub(crate) fn destroy_graph(&self, device: usize, graph: &Graph) -> Result<()> {
        let mut state = self.state();
        state.find_graph(Call::DestroyGraph, device, graph)?;
        state.graphs.remove(&graph.raw());
        Ok(())
    }

    pub(crate) fn live_graphs(&self, device: usize) -> usize {
        let own = |graph: &&GraphState| graph.device == device;
        self.state().graphs.values().filter(own).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task() -> Task {
        Task::Fill { at: 0, byte: 0, bytes: 1 }
    }

    /// Two chains that join: 0 → 1 and 0 → 2, then both → 3.
    fn diamond() -> GraphBody {
        let mut body = GraphBody::default();
        body.push(0, task(), vec![]);
        body.push(0, task(), vec![0]);
        body.push(0, task(), vec![0]);
        body.push(0, task(), vec![1, 2]);
        body
    }

    #[test]
    fn every_order_drawn_respects_the_edges_and_both_occur() {
        let mut orders: Vec<_> = (0..64).map(|seed| diamond().order(Some(&mut SplitMix64::new(seed)))).collect();
        orders.sort();
        orders.dedup();
        assert_eq!(orders, [[0, 1, 2, 3], [0, 2, 1, 3]]);
        assert_eq!(diamond().order(None), [0, 1, 2, 3]);
    }

    #[test]
    fn what_leads_to_a_node_is_found() {
        assert_eq!(diamond().reached_from(&[1]), [true, true, false, false]);
        assert_eq!(diamond().reached_from(&[3]), [true; 4]);
        assert_eq!(diamond().reached_from(&[]), [false; 4]);
    }
}
