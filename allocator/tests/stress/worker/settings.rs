//! Steps that change how the allocator works, look at all of it, or let time pass.

use std::thread;
use std::time::Duration;

use cachette::Config;
use cachette::history::HistoryOptions;

use super::Worker;

impl Worker<'_> {
    pub(super) fn change_settings(&mut self) {
        let allocator = &self.world.allocator;
        match self.draw.below(6) {
            0 | 1 => {
                let changes = self.world.kind.setting.changes;
                if let Some(at) = self.draw.place(changes) {
                    let config: Config = changes[at].parse().expect("it is right");
                    allocator.set_config(&config);
                }
            }
            2 if !self.world.kind.setting.changes.is_empty() => {
                let limits = [None, Some(12 << 20), Some(30 << 20)];
                allocator.set_memory_limit(*self.draw.of(&limits));
            }
            3 => {
                let options = HistoryOptions::new().stacks(false).max_entries(100);
                allocator.record_history(options);
            }
            4 => allocator.stop_history(),
            _ => {
                drop(allocator.snapshot());
                allocator.reset_peaks();
            }
        }
    }

    pub(super) fn empty_cache(&mut self) {
        let world = self.world;
        match self.draw.below(6) {
            0 => drop(world.done(world.allocator.empty_cache())),
            1 => drop(world.done(world.allocator.pinned().empty_cache())),
            2 => drop(world.allocator.release_contents()),
            number => drop(world.done(world.pools[number % 2].empty_cache())),
        }
    }

    /// Holds a stream for a moment, or lets a stepped device take some steps.
    pub(super) fn let_run(&mut self) {
        let moment = self.draw.below(200);
        if self.world.stepped {
            for _ in 0..moment / 10 {
                let _ = self.world.host.step();
            }
            return;
        }
        let stream = self.stream().handle();
        if let Ok(hold) = self.world.host.hold(stream) {
            thread::sleep(Duration::from_micros(moment as u64));
            hold.release();
        }
    }
}
