//! The export tables of this process, by socket name.
//!
//! A segment is not opened a second time in the process that owns it. Its address comes from here and never from a
//! message: otherwise another process could name any address of this one.

#![forbid(unsafe_code)]

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use crate::handle::Key;
use crate::socket;

/// An export table of any type.
pub(crate) trait LocalTable: Send + Sync {
    /// The address of the segment of an export; `None` if there is no such export.
    fn base_of(&self, export: u64, key: &Key) -> Option<u64>;
}

type Entry = ([u8; 16], Weak<dyn LocalTable>);

static TABLES: Mutex<Vec<Entry>> = Mutex::new(Vec::new());

/// Registers a table until it is dropped.
pub(crate) fn register(name: [u8; 16], table: Weak<dyn LocalTable>) {
    let mut tables = tables();
    tables.retain(|(_, table)| table.strong_count() > 0);
    tables.push((name, table));
}

/// The table of a socket name, if it belongs to this process.
pub(crate) fn find(name: &[u8; 16]) -> Option<Arc<dyn LocalTable>> {
    let tables = tables();
    let (_, table) = tables.iter().find(|(registered, _)| registered == name)?;
    table.upgrade()
}

fn tables() -> MutexGuard<'static, Vec<Entry>> {
    // Each change is one step, so a panic leaves the list valid.
    TABLES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Identifies this process: random bytes and its number, which differs after a fork. `None` if the system has no random
/// bytes.
pub(crate) fn process_identity() -> Option<[u8; 16]> {
    static RANDOM: OnceLock<Option<[u8; 12]>> = OnceLock::new();
    let random = RANDOM.get_or_init(|| socket::random().ok()).as_ref()?;
    let mut identity = [0; 16];
    identity[..12].copy_from_slice(random);
    identity[12..].copy_from_slice(&std::process::id().to_le_bytes());
    Some(identity)
}
