//! A sample as text.

use std::io::{self, Write};

use cachette::human::Bytes;
use cachette_replay::table::Table;

use super::sample::{Device, Process, Sample};
use crate::stdout;

/// The headings of the figures of a process.
pub(super) const HEADINGS: [&str; 13] = [
    "pid",
    "program",
    "reserved",
    "in use",
    "idle",
    "evictable",
    "outside",
    "peak",
    "limit",
    "share",
    "req/s",
    "retries",
    "failed",
];

/// What is said where there is nothing to show.
pub(super) const NONE: &str = "no device: neither NVML nor AMD's kernel driver is here, and no process answers; set \
     reclaim:True in the configuration of a program to see it";

/// Writes a paragraph for each device.
pub(super) fn write(out: &mut dyn Write, sample: &Sample) -> io::Result<()> {
    if sample.devices.is_empty() {
        return write!(out, "{}", stdout::wrap(NONE));
    }
    for (number, device) in sample.devices.iter().enumerate() {
        if number > 0 {
            writeln!(out)?;
        }
        write!(out, "{}", stdout::sentence(&title(device)))?;
        if device.processes.is_empty() {
            writeln!(out, "no process")?;
            continue;
        }
        let mut table = Table::new(HEADINGS);
        device.processes.iter().for_each(|process| table.push(cells(process)));
        write!(out, "{}", stdout::table(&table))?;
    }
    Ok(())
}

/// A device in one line.
pub(super) fn title(device: &Device) -> String {
    match &device.card {
        None => format!("device {}", device.uuid),
        Some(card) => {
            let rest = match card.unattributed {
                0 => String::new(),
                bytes => format!(", {} of no listed process", Bytes(bytes)),
            };
            format!("{}: {} of {} used{rest}", card.name, Bytes(card.used), Bytes(card.total))
        }
    }
}

/// The figures of a process, under [`HEADINGS`].
pub(super) fn cells(process: &Process) -> [String; 13] {
    let none = || "-".to_owned();
    let bytes = |bytes: Option<u64>| bytes.map_or_else(none, |bytes| Bytes(bytes).to_string());
    let held = process.cachette.as_ref();
    let size = |figure: fn(&super::sample::AllocatorFigures) -> u64| bytes(held.map(figure));
    let count =
        |figure: fn(&super::sample::AllocatorFigures) -> u64| held.map_or_else(none, |held| figure(held).to_string());
    let program = if process.silent { format!("{} (no answer)", process.program) } else { process.program.clone() };
    [
        process.pid.to_string(),
        program,
        size(|held| held.reserved),
        size(|held| held.in_use),
        size(|held| held.idle),
        size(|held| held.evictable),
        bytes(process.outside),
        size(|held| held.peak),
        bytes(held.and_then(|held| held.limit)),
        bytes(held.and_then(|held| held.share)),
        held.and_then(|held| held.requests_per_second).map_or_else(none, |rate| format!("{rate:.0}")),
        count(|held| held.retries),
        count(|held| held.failures),
    ]
}
