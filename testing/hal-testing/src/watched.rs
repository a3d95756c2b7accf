//! Whether a thread waits for something.

use std::fs::{read_link, read_to_string};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

/// A thread that another watches.
///
/// A slow thread is runnable, and `/proc` says so. So a test that sees a thread blocked does not guess by time.
#[derive(Clone, Debug)]
pub struct Watched {
    stat: PathBuf,
}

impl Watched {
    /// The thread that calls it.
    ///
    /// # Panics
    ///
    /// Without `/proc`.
    #[must_use]
    pub fn current() -> Self {
        let thread = read_link("/proc/thread-self").expect("the system has /proc");
        Self { stat: Path::new("/proc").join(thread).join("stat") }
    }

    /// Returns whether the thread is blocked; `false` if it has ended. It returns only once one of them is certain.
    #[must_use]
    pub fn is_blocked(&self) -> bool {
        let mut blocked = 0_u32;
        while blocked < 20 {
            thread::sleep(Duration::from_millis(2));
            // The state is the letter behind the name, which is in brackets.
            let Ok(stat) = read_to_string(&self.stat) else {
                return false;
            };
            let state = stat.rsplit(") ").next().unwrap_or_default();
            blocked = if state.starts_with('S') { blocked + 1 } else { blocked.saturating_sub(1) };
        }
        true
    }
}
