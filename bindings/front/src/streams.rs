//! Streams that the program destroyed, kept for their memory.
//!
//! Cached memory belongs to a stream: Cachette records events there before another stream may use it. A destroyed
//! stream would leave its memory without an order. So the front keeps the stream of a served device instead of
//! destroying it. The next stream that the program creates with the same properties is that one, with its memory. Work
//! of the former owner comes first, which costs order but no correctness.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The context or device of a stream, its flags and its priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Kind {
    pub(crate) key: usize,
    pub(crate) flags: u32,
    pub(crate) priority: i32,
}

#[derive(Debug)]
struct Streams {
    /// The streams that the program has.
    live: BTreeMap<usize, Kind>,
    /// The streams that it destroyed.
    kept: BTreeMap<Kind, Vec<usize>>,
}

static STREAMS: Mutex<Streams> = Mutex::new(Streams { live: BTreeMap::new(), kept: BTreeMap::new() });

/// A kept stream of this kind, which the program has again.
pub(crate) fn reuse(kind: Kind) -> Option<usize> {
    let mut streams = streams();
    let stream = streams.kept.get_mut(&kind)?.pop()?;
    streams.live.insert(stream, kind);
    Some(stream)
}

/// Notes a new stream.
pub(crate) fn created(stream: usize, kind: Kind) {
    streams().live.insert(stream, kind);
}

/// Keeps a stream that the program destroys, if any device is served; `false` if the driver must destroy it.
pub(crate) fn keep(stream: usize, is_served: bool) -> bool {
    let mut streams = streams();
    let Some(kind) = streams.live.remove(&stream).filter(|_| is_served) else { return false };
    streams.kept.entry(kind).or_default().push(stream);
    true
}

fn streams() -> MutexGuard<'static, Streams> {
    // Each change is one step, so a panic leaves it whole.
    STREAMS.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_had_again_by_the_next_of_its_kind() {
        let kind = Kind { key: 7, flags: 1, priority: 0 };
        created(0xa, kind);
        created(0xb, kind);
        assert!(keep(0xa, true));
        assert!(!keep(0xa, true), "it is kept already");
        assert!(!keep(0xb, false), "no memory is served");
        assert!(!keep(0xc, true), "it was made in another way");
        assert_eq!(reuse(Kind { flags: 0, ..kind }), None);
        assert_eq!(reuse(kind), Some(0xa));
        assert_eq!(reuse(kind), None);
    }
}
