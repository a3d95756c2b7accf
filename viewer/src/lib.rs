//! A snapshot as one page to look at.
//!
//! [`page`] writes a single HTML file that needs nothing else: no network, no fonts, no libraries. It shows the memory
//! of each device over time by owner, its segments as strips, who holds the most, and the moments at which memory ran
//! out.
//!
//! | part | what it does |
//! |---|---|
//! | `history.rs` | pairs events to allocations |
//! | `payload.rs`, `tables.rs`, `columns.rs` | a snapshot as compact bytes |
//! | `html.rs` | the bytes and the parts of the page, put together |
//! | `page/` | what the browser runs, one idea a file |
//!
//! Words of users travel inside the bytes alone, and the page shows them as text. So no name, file or metadata can
//! become HTML; and what the page may load or run is nothing but itself.

#![forbid(unsafe_code)]

use std::io::{self, Write};

use cachette_snapshot::Snapshot;

mod columns;
mod history;
mod html;
mod payload;
mod tables;

/// Writes a snapshot as one HTML page.
///
/// The same snapshot always gives the same page.
///
/// # Errors
///
/// If `out` cannot be written to, or the stacks and words of the snapshot are over 4 GiB.
pub fn page(snapshot: &Snapshot, mut out: impl Write) -> io::Result<()> {
    let bytes = payload::compressed(snapshot)?;
    html::write(&bytes, &mut out)
}
