//! The desks of this process, by the name of their socket.
//!
//! Memory in one piece is not opened a second time in the process that has it. Its address comes from here and never from
//! a message: another process could otherwise name any address of this one.

#![forbid(unsafe_code)]

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::handle::Key;

/// A desk, whatever its device is.
pub(super) trait Here: Send + Sync {
    /// The address of the segment that an offer lies in; `None` if there is no such offer.
    fn base_of(&self, offer: u64, key: &Key) -> Option<u64>;
}

type Entry = ([u8; 16], Weak<dyn Here>);

static DESKS: Mutex<Vec<Entry>> = Mutex::new(Vec::new());

/// Enters a desk, for as long as it is there.
pub(super) fn enter(name: [u8; 16], desk: Weak<dyn Here>) {
    let mut desks = desks();
    desks.retain(|(_, desk)| desk.strong_count() > 0);
    desks.push((name, desk));
}

/// The desk of a name, if it is of this process.
pub(super) fn find(name: &[u8; 16]) -> Option<Arc<dyn Here>> {
    let desks = desks();
    let (_, desk) = desks.iter().find(|(entered, _)| entered == name)?;
    desk.upgrade()
}

fn desks() -> MutexGuard<'static, Vec<Entry>> {
    // Entries come and go whole, so a panic leaves the list sound.
    DESKS.lock().unwrap_or_else(PoisonError::into_inner)
}
