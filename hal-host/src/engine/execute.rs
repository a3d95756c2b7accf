//! Runs one piece of work.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::graph::GraphBody;
use super::work::{Task, Work};
use crate::defect::Defect;
use crate::engine::machine::Machine;

impl Machine {
    /// Runs a piece of work for a device, after all waits for it have ended.
    ///
    /// After a fault no work runs, but events still complete, so that no thread waits forever.
    pub(super) fn execute(&self, device: usize, work: Work) {
        match work {
            Work::Task(task) => self.run(device, &task),
            Work::Record(marker) => marker.finish(),
            Work::Wait { .. } | Work::Hold(_) => {}
            Work::HostCall(function) => {
                let unit = &self.units[device];
                if !unit.is_faulty() && catch_unwind(AssertUnwindSafe(function)).is_err() {
                    unit.raise_fault();
                }
            }
            Work::Free { at, ticket } => self.return_to_pool(device, at, ticket),
        }
    }

    pub(crate) fn run(&self, device: usize, task: &Task) {
        if self.units[device].is_faulty() {
            return;
        }
        let done = match task {
            Task::Launch(body) => {
                self.replay(body);
                true
            }
            _ => self.touch(device, task, &self.read_space()),
        };
        if !done && !self.lies(Defect::AccessNotEnforced) {
            self.units[device].raise_fault();
        }
    }

    /// Runs a graph's tasks in an order that its edges permit.
    fn replay(&self, body: &GraphBody) {
        // A random order is drawn only in stepped mode; with threads the lock may already be held.
        let order = match self.config.seed {
            Some(_) => body.order(self.state().random.as_mut()),
            None => body.order(None),
        };
        for node in order {
            let step = body.step(node);
            self.run(step.device, &step.task);
        }
    }
}
