//! A memory snapshot as an HTML page.
//!
//! [`page`] writes one self-contained HTML file: no network, fonts or libraries. It shows the memory of each device
//! over time by owner, its segments, the top allocation sites, and out-of-memory events.
//!
//! | part | what it does |
//! |---|---|
//! | `history.rs` | pairs events to allocations |
//! | `payload.rs`, `tables.rs`, `columns.rs` | a snapshot as compact bytes |
//! | `html.rs` | assembles the bytes and the parts of the page |
//! | `page/` | the page's HTML, CSS and scripts |
//!
//! Texts of users are part of the bytes only, and the page shows them as text. So no name, file or metadata can become
//! HTML. The page's policy lets it load and run nothing but itself.

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
