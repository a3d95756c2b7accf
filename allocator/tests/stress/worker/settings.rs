//! Steps that change how the allocator works, look at all of it, or let time pass.

use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Duration;

use cachette::Config;
use cachette::history::HistoryOptions;

use super::Worker;

impl Worker<'_> {
    pub(super) fn change_settings(&mut self) {
        let allocator = &self.fixture.allocator;
        match self.random.below(6) {
            0 | 1 => {
                let changes = self.fixture.kind.setting.changes;
                if let Some(at) = self.random.place(changes) {
                    let config: Config = changes[at].parse().expect("it is right");
                    allocator.set_config(&config);
                }
            }
            2 if !self.fixture.kind.setting.changes.is_empty() => {
                let limits = [None, Some(12 << 20), Some(30 << 20)];
                allocator.set_memory_limit(*self.random.of(&limits));
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

    /// Lets the tracker panic soon.
    pub(super) fn arm_tracker(&mut self) {
        let events = 1 + self.random.below(6) as u64;
        self.fixture.armed.store(events, Relaxed);
    }

    pub(super) fn empty_cache(&mut self) {
        let fixture = self.fixture;
        match self.random.below(7) {
            0 => drop(fixture.done(fixture.allocator.empty_cache())),
            1 => drop(fixture.done(fixture.allocator.pinned().empty_cache())),
            2 => drop(fixture.allocator.release_contents()),
            3 => drop(fixture.done(fixture.second.empty_cache())),
            _ => drop(fixture.done(self.random.of(&fixture.pools).empty_cache())),
        }
    }

    /// Holds a stream for a moment, or lets a stepped device take some steps.
    pub(super) fn let_run(&mut self) {
        let moment = self.random.below(200);
        if self.fixture.stepped {
            for _ in 0..moment / 10 {
                let _ = self.fixture.host.step();
            }
            return;
        }
        let stream = self.stream().handle();
        if let Ok(hold) = self.fixture.host.hold(stream) {
            thread::sleep(Duration::from_micros(moment as u64));
            hold.release();
        }
    }
}
