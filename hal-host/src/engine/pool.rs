//! The ranges of the stream-ordered pool and their use, by address.

use std::collections::BTreeMap;

use crate::engine::StreamKey;

/// Ranges of the stream-ordered pool. A range is never split, and is reused only for the same size.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    ranges: BTreeMap<u64, Held>,
    tickets: u64,
}

#[derive(Debug)]
struct Held {
    bytes: u64,
    state: HeldState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HeldState {
    Live,
    /// It was freed, but the stream has not reached the free.
    Freeing {
        stream: StreamKey,
        ticket: u64,
    },
    Idle,
}

impl Pool {
    pub(crate) fn insert(&mut self, at: u64, bytes: u64) {
        let state = HeldState::Live;
        self.ranges.insert(at, Held { bytes, state });
    }

    /// Reuses a freed range of this size for later work in `stream`: one of the stream itself, or one whose stream has
    /// reached the free. With the defect `early` it may be of any stream.
    pub(crate) fn reuse(&mut self, bytes: u64, stream: StreamKey, early: bool) -> Option<u64> {
        let fits = |held: &Held| {
            let free = match held.state {
                HeldState::Live => false,
                HeldState::Freeing { stream: other, .. } => other == stream || early,
                HeldState::Idle => true,
            };
            free && held.bytes == bytes
        };
        let (at, held) = self.ranges.iter_mut().find(|(_, held)| fits(held))?;
        held.state = HeldState::Live;
        Some(*at)
    }

    /// Records that a range becomes idle once the stream reaches the free. Returns the number of the free.
    pub(crate) fn begin_free(&mut self, at: u64, stream: StreamKey) -> Option<u64> {
        let held = self.ranges.get_mut(&at)?;
        if held.state != HeldState::Live {
            return None;
        }
        self.tickets += 1;
        let ticket = self.tickets;
        held.state = HeldState::Freeing { stream, ticket };
        Some(ticket)
    }

    /// Records that the stream has reached a free. Returns `false` if the range was reused before.
    pub(crate) fn end_free(&mut self, at: u64, ticket: u64) -> bool {
        self.settle(at, ticket, HeldState::Idle)
    }

    /// Reverses [`begin_free`](Self::begin_free).
    pub(crate) fn undo_free(&mut self, at: u64, ticket: u64) {
        self.settle(at, ticket, HeldState::Live);
    }

    fn settle(&mut self, at: u64, wanted: u64, state: HeldState) -> bool {
        match self.ranges.get_mut(&at) {
            Some(held) if matches!(held.state, HeldState::Freeing { ticket, .. } if ticket == wanted) => {
                held.state = state;
                true
            }
            _ => false,
        }
    }

    /// Removes idle ranges until at most `keep` idle bytes are left.
    pub(crate) fn trim(&mut self, keep: u64) -> Vec<u64> {
        let idle = |held: &Held| held.state == HeldState::Idle;
        let mut left: u64 = self.ranges.values().filter(|held| idle(held)).map(|held| held.bytes).sum();
        let mut out = Vec::new();
        self.ranges.retain(|at, held| {
            let goes = idle(held) && left > keep;
            if goes {
                left -= held.bytes;
                out.push(*at);
            }
            !goes
        });
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: StreamKey = StreamKey::default_of(0);
    const THERE: StreamKey = StreamKey::default_of(1);

    #[test]
    fn a_freed_range_is_its_own_streams_at_once_and_anothers_later() {
        let mut pool = Pool::default();
        pool.insert(0x1000, 100);
        assert_eq!(pool.reuse(100, HERE, false), None);
        let ticket = pool.begin_free(0x1000, HERE).unwrap();
        assert_eq!(pool.begin_free(0x1000, HERE), None);
        assert_eq!(pool.reuse(100, THERE, false), None);
        assert_eq!(pool.reuse(101, HERE, false), None);
        assert_eq!(pool.reuse(100, HERE, false), Some(0x1000));
        assert!(!pool.end_free(0x1000, ticket), "it is in use again");
        let ticket = pool.begin_free(0x1000, HERE).unwrap();
        assert!(pool.end_free(0x1000, ticket));
        assert_eq!(pool.reuse(100, THERE, false), Some(0x1000));
    }

    #[test]
    fn trimming_leaves_at_most_what_is_kept() {
        let mut pool = Pool::default();
        for at in [0x1000, 0x2000, 0x3000] {
            pool.insert(at, 100);
        }
        for at in [0x1000, 0x2000] {
            let ticket = pool.begin_free(at, HERE).unwrap();
            assert!(pool.end_free(at, ticket));
        }
        assert_eq!(pool.trim(150), [0x1000]);
        assert_eq!(pool.trim(0), [0x2000]);
        assert_eq!(pool.trim(0), []);
    }
}
