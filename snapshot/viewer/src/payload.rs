//! A snapshot as the bytes that the page carries: four of length, a head of JSON, then columns of numbers.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

use cachette_snapshot::{DeviceParts, PoolId, Setting, Snapshot, Stage, TraceAction};
use flate2::Compression;
use flate2::write::ZlibEncoder;
use serde::Serialize;

use crate::columns::Column;
use crate::history::History;
use crate::tables::{Table, Tables};

/// What everything but numbers is kept in, and where the numbers are.
#[derive(Debug, Serialize)]
struct Head {
    frames: Vec<(String, String, u32)>,
    texts: Vec<String>,
    pools: Vec<String>,
    /// As text: a stream's handle can be wider than a browser's numbers.
    streams: Vec<String>,
    settings: Vec<(String, Setting)>,
    /// How many frames each stack has, and their numbers.
    stack_lengths: Column,
    stack_frames: Column,
    devices: Vec<Device>,
}

#[derive(Debug, Serialize)]
struct Device {
    number: u32,
    events: usize,
    /// When the first event was, in microseconds since 1970.
    start_us: i64,
    /// How many allocations were made before the first event.
    before: usize,
    /// What, whether it begins, and when, after the first event.
    annotations: Vec<(String, bool, i64)>,
    steps: Table,
    allocations: Table,
    others: Table,
    segments: Table,
    blocks: Table,
}

/// The bytes of a snapshot, compressed.
pub(crate) fn compressed(snapshot: &Snapshot) -> io::Result<Vec<u8>> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    let (head, columns) = parts(snapshot)?;
    let length = u32::try_from(head.len()).map_err(|_| io::Error::other("the stacks and words are over 4 GiB"))?;
    encoder.write_all(&length.to_le_bytes())?;
    encoder.write_all(&head)?;
    encoder.write_all(&columns)?;
    encoder.finish()
}

fn parts(snapshot: &Snapshot) -> io::Result<(Vec<u8>, Vec<u8>)> {
    let streams = streams(snapshot);
    let mut tables = Tables::new(&streams);
    let devices = devices(snapshot).into_iter().map(|(number, parts)| device(number, &parts, &mut tables)).collect();
    let columns = &mut tables.columns;
    let stacks = &snapshot.stacks;
    let head = Head {
        frames: stacks.frames().iter().map(|f| (f.name.clone(), f.file.clone(), f.line)).collect(),
        texts: snapshot.texts.all().to_vec(),
        pools: snapshot.pools.iter().map(pool_name).collect(),
        streams: streams.iter().map(u64::to_string).collect(),
        settings: snapshot.settings.clone(),
        stack_lengths: columns.numbers(stacks.ids().map(|id| stacks.numbers_of(id).len() as u64)),
        stack_frames: columns.numbers(stacks.ids().flat_map(|id| stacks.numbers_of(id)).map(|&n| n.into())),
        devices,
    };
    Ok((serde_json::to_vec(&head)?, tables.columns.into_bytes()))
}

/// Every stream, the smallest handle first.
fn streams(snapshot: &Snapshot) -> BTreeSet<u64> {
    let events = snapshot.traces.iter().flat_map(|trace| &trace.events);
    let events = events.filter(|event| event.action != TraceAction::Snapshot).map(|event| event.stream);
    snapshot.segments.iter().map(|segment| segment.stream).chain(events).collect()
}

/// Every device that held something or has a history.
fn devices(snapshot: &Snapshot) -> BTreeMap<u32, DeviceParts<'_>> {
    let mut devices = snapshot.by_device();
    devices.retain(|_, parts| !parts.segments.is_empty() || parts.events().next().is_some());
    if devices.is_empty() { BTreeMap::from([(0, DeviceParts::default())]) } else { devices }
}

fn device(number: u32, parts: &DeviceParts<'_>, tables: &mut Tables) -> Device {
    let history = History::of(parts);
    let start_us = history.steps.first().map_or(0, |step| step.time_us);
    let annotations = parts.annotations.iter();
    let since = |time: i64| time.saturating_sub(start_us);
    Device {
        number,
        events: parts.events().count(),
        start_us,
        before: history.before,
        annotations: annotations.map(|a| (a.name.clone(), a.stage == Stage::Start, since(a.time_us))).collect(),
        steps: tables.steps(&history.steps, start_us),
        allocations: tables.allocations(&history.allocations),
        others: tables.others(&history.others),
        segments: tables.segments(&parts.segments),
        blocks: tables.blocks(&parts.segments, &history.at_the_end()),
    }
}

fn pool_name(pool: &PoolId) -> String {
    match pool {
        PoolId(0, 0) => "default pool".to_owned(),
        PoolId(a, b) => format!("pool {a}.{b}"),
    }
}

#[cfg(test)]
mod tests;
