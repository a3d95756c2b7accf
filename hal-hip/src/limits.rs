//! File descriptors: every backing holds one, so a process can exhaust them before its memory.

use std::fs;
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// With no more than this many descriptors left, they count as exhausted.
const RESERVE: u64 = 8;

/// Raises the process's soft limit on descriptors to the hard one, once.
pub(crate) fn raise() {
    static RAISED: Once = Once::new();
    RAISED.call_once(|| {
        let limit = getrlimit(Resource::Nofile);
        if limit.current != limit.maximum {
            let current = limit.maximum;
            // If the system refuses, the limit stays, and exhaustion is reported later.
            let _ = setrlimit(Resource::Nofile, Rlimit { current, ..limit });
        }
    });
}

/// The descriptors that the driver will never close. Relaxed: it only counts.
static LEAKED: AtomicU64 = AtomicU64::new(0);

/// Counts a descriptor that the driver will never close.
pub(crate) fn note_leak() {
    LEAKED.fetch_add(1, Ordering::Relaxed);
}

/// Whether those descriptors are less than a quarter of the limit.
pub(crate) fn may_leak() -> bool {
    getrlimit(Resource::Nofile).current.is_none_or(|limit| LEAKED.load(Ordering::Relaxed) < limit / 4)
}

/// Whether the process has almost no descriptor left.
pub(crate) fn is_exhausted() -> bool {
    let open = match fs::read_dir("/proc/self/fd") {
        Ok(entries) => entries.count() as u64,
        // No descriptor was left for the folder.
        Err(_) => return true,
    };
    is_short(open, getrlimit(Resource::Nofile).current)
}

const fn is_short(open: u64, limit: Option<u64>) -> bool {
    match limit {
        Some(limit) => open + RESERVE >= limit,
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_raised_as_far_as_it_may() {
        raise();
        let limit = getrlimit(Resource::Nofile);
        assert_eq!(limit.current, limit.maximum);
    }

    #[test]
    fn few_left_is_exhausted_and_no_limit_never_is() {
        assert!(is_short(1020, Some(1024)));
        assert!(!is_short(20, Some(1024)));
        assert!(!is_short(1 << 40, None));
        assert!(!is_exhausted());
    }
}
