//! `cachette snapshot diff`: what changed between two snapshots, by owner.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::PathBuf;

use cachette::human::Bytes;
use cachette_snapshot::{Block, BlockState, Snapshot, StackId};
use clap::Args;
use serde::Serialize;
use serde_json::json;

use super::summary::{place, plural};
use crate::commands::standard;
use crate::error::CliError;
use crate::json::write_to;
use crate::stdout;

/// Compares two snapshots: what grew, came, shrank and went, by owner
///
/// An owner is the two innermost callers of an allocation, or the label of the memory if no callers were recorded.
/// Memory that was freed but waits for other streams counts.
#[derive(Debug, Args)]
pub(super) struct Diff {
    /// The earlier snapshot
    #[arg(value_name = "A", value_parser = standard::input())]
    before: PathBuf,
    /// The later snapshot
    #[arg(value_name = "B", value_parser = standard::input())]
    after: PathBuf,
    /// How many owners are listed for each change
    #[arg(long, value_name = "N", default_value_t = 10)]
    owners: usize,
    /// Prints every owner as JSON
    #[arg(long)]
    json: bool,
}

/// How the memory of an owner changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Change {
    Grew,
    Came,
    Shrank,
    Went,
    Stayed,
}

impl Change {
    const SHOWN: [(Self, &str); 4] =
        [(Self::Grew, "grew"), (Self::Came, "came"), (Self::Shrank, "shrank"), (Self::Went, "went")];
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
struct Held {
    bytes: u64,
    blocks: usize,
}

impl Held {
    fn add(&mut self, bytes: u64, blocks: usize) {
        // A file may contain any number.
        self.bytes = self.bytes.saturating_add(bytes);
        self.blocks += blocks;
    }
}

/// What one owner held in both snapshots.
#[derive(Debug, Serialize)]
struct OwnerChange {
    owner: String,
    change: Change,
    before: Held,
    after: Held,
}

impl OwnerChange {
    fn new(owner: String, [before, after]: [Held; 2]) -> Self {
        let change = match (before.bytes, after.bytes) {
            (0, 1..) => Change::Came,
            (1.., 0) => Change::Went,
            (earlier, later) if later > earlier => Change::Grew,
            (earlier, later) if later < earlier => Change::Shrank,
            _ => Change::Stayed,
        };
        Self { owner, change, before, after }
    }

    const fn difference(&self) -> u64 {
        self.after.bytes.abs_diff(self.before.bytes)
    }
}

/// One device of both snapshots.
#[derive(Debug, Serialize)]
struct DeviceChange {
    device: u32,
    before: Held,
    after: Held,
    /// The owners, those with the largest difference first.
    owners: Vec<OwnerChange>,
}

impl Diff {
    pub(super) fn run(self) -> Result<(), CliError> {
        let devices = compare(&[Snapshot::read(&self.before)?, Snapshot::read(&self.after)?]);
        stdout::print(|out| {
            if self.json {
                return write_to(out, &json!({ "devices": devices }));
            }
            if devices.is_empty() {
                writeln!(out, "both snapshots are empty")?;
            }
            devices.iter().try_for_each(|device| device.write(out, self.owners))
        })?;
        Ok(())
    }
}

fn compare(snapshots: &[Snapshot; 2]) -> Vec<DeviceChange> {
    let mut devices: BTreeMap<u32, BTreeMap<String, [Held; 2]>> = BTreeMap::new();
    for (index, snapshot) in snapshots.iter().enumerate() {
        for (device, parts) in snapshot.by_device() {
            let owners = devices.entry(device).or_default();
            let outside = parts.outside.bytes;
            if outside > 0 {
                owners.entry("the program, past the cache".to_owned()).or_default()[index].add(outside, 1);
            }
            let blocks = parts.segments.into_iter().flat_map(|segment| &segment.blocks);
            for block in blocks.filter(|block| block.state != BlockState::Free) {
                owners.entry(owner(snapshot, block)).or_default()[index].add(block.bytes, 1);
            }
        }
    }
    let compared = devices.into_iter().map(|(device, owners)| {
        let (mut before, mut after) = (Held::default(), Held::default());
        for [earlier, later] in owners.values() {
            before.add(earlier.bytes, earlier.blocks);
            after.add(later.bytes, later.blocks);
        }
        let mut owners: Vec<_> = owners.into_iter().map(|(name, held)| OwnerChange::new(name, held)).collect();
        owners.sort_by_key(|owner| Reverse(owner.difference()));
        DeviceChange { device, before, after, owners }
    });
    compared.collect()
}

fn owner(snapshot: &Snapshot, block: &Block) -> String {
    let label = snapshot.texts.get(block.label);
    if block.stack == StackId::NONE && !label.is_empty() {
        return label.escape_debug().to_string();
    }
    place(snapshot, block.stack)
}

impl DeviceChange {
    fn write(&self, out: &mut dyn Write, most: usize) -> io::Result<()> {
        let (before, after) = (self.before.bytes, self.after.bytes);
        let (difference, word) = (Bytes(after.abs_diff(before)), if after < before { "less" } else { "more" });
        writeln!(out, "device {}: {} in use, then {}: {difference} {word}", self.device, Bytes(before), Bytes(after))?;
        for (change, name) in Change::SHOWN {
            let owners: Vec<_> = self.owners.iter().filter(|owner| owner.change == change).collect();
            if owners.is_empty() {
                continue;
            }
            writeln!(out, "{name} ({} of {})", owners.len().min(most), owners.len())?;
            for OwnerChange { owner, before, after, .. } in owners.into_iter().take(most) {
                let sign = if after.bytes < before.bytes { '-' } else { '+' };
                let difference = format!("{sign}{}", Bytes(after.bytes.abs_diff(before.bytes)));
                let (now, blocks) = (Bytes(after.bytes), after.blocks);
                let noun = plural(blocks, "block", "blocks");
                let line = format!("  {difference:>13}  to {now} in {blocks} {noun}  {owner}");
                write!(out, "{}", stdout::sentence(&line))?;
            }
        }
        if self.owners.iter().all(|owner| owner.change == Change::Stayed) {
            writeln!(out, "no owner has more or less")?;
        }
        Ok(())
    }
}
