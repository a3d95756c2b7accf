//! `cachette snapshot info`: memory, allocation sites and events.

use std::io::{self, Write};
use std::path::PathBuf;

use cachette::human::Bytes;
use cachette_replay::table::Table;
use cachette_snapshot::{Frame, OutsideMemory, PoolId, Setting, Snapshot, StackId, TraceAction};
use clap::Args;
use serde_json::{Value, json};

use super::summary::{Memory, Summary, place, plural, share};
use crate::commands::standard;
use crate::error::CliError;
use crate::json::write_to;
use crate::stdout;

/// The maximum number of out-of-memory events in the list.
const MOST_SHORTAGES: usize = 10;

/// Summarises a snapshot: memory, top allocation sites, pools and events
///
/// Fragmentation is the fraction of the free memory that is not in its largest block. Rounding is the fraction of the
/// memory in use beyond what was requested.
#[derive(Debug, Args)]
pub(super) struct Info {
    /// The snapshot; - is the standard input
    #[arg(value_name = "FILE", value_parser = standard::input())]
    file: PathBuf,
    /// How many allocation sites are listed
    #[arg(long, value_name = "N", default_value_t = 10)]
    holders: usize,
    /// Prints the figures as JSON
    #[arg(long)]
    json: bool,
}

impl Info {
    pub(super) fn run(self) -> Result<(), CliError> {
        let snapshot = Snapshot::read(&self.file)?;
        let summaries = Summary::all(&snapshot);
        let page = Page { snapshot: &snapshot, holders: self.holders };
        stdout::print(|out| {
            if self.json {
                let devices: Vec<_> = summaries.iter().map(|summary| page.json(summary)).collect();
                return write_to(out, &json!({ "devices": devices }));
            }
            if summaries.is_empty() {
                writeln!(out, "the snapshot is empty: no segments and no events")?;
            }
            for summary in &summaries {
                page.device(out, summary)?;
            }
            page.settings(out)
        })?;
        Ok(())
    }
}

struct Page<'a> {
    snapshot: &'a Snapshot,
    holders: usize,
}

impl Page<'_> {
    fn json(&self, summary: &Summary<'_>) -> Value {
        let frame = |frame: &Frame| json!({ "name": frame.name, "file": frame.file, "line": frame.line });
        let holders = summary.holders.iter().take(self.holders).map(|holder| {
            let stack: Vec<_> = self.snapshot.stacks.frames_of(holder.stack).map(frame).collect();
            json!({ "bytes": holder.bytes, "blocks": holder.blocks, "stack": stack })
        });
        let pools = summary.pools.iter().map(|(pool, memory)| json!({ "pool": [pool.0, pool.1], "memory": memory }));
        let outside = &summary.outside;
        let events = summary.actions().map(|(action, count)| (action.name().to_owned(), count.into()));
        json!({
            "device": summary.device,
            "memory": summary.memory,
            "outside": { "bytes": outside.bytes, "managed": outside.managed, "host": outside.host },
            "pools": pools.collect::<Vec<_>>(),
            "holders": holders.collect::<Vec<_>>(),
            "events": events.collect::<serde_json::Map<_, _>>(),
        })
    }

    fn device(&self, out: &mut dyn Write, summary: &Summary<'_>) -> io::Result<()> {
        writeln!(out, "device {}", summary.device)?;
        write_memory(out, &summary.memory)?;
        write_outside(out, &summary.outside)?;
        write_pools(out, summary)?;
        self.holders(out, summary)?;
        self.events(out, summary)?;
        writeln!(out)
    }

    fn holders(&self, out: &mut dyn Write, summary: &Summary<'_>) -> io::Result<()> {
        if summary.holders.is_empty() || self.holders == 0 {
            return Ok(());
        }
        let total = summary.holders.len();
        let shown = total.min(self.holders);
        writeln!(out, "largest holders ({shown} of {total})")?;
        let used = summary.memory.allocated.saturating_add(summary.memory.pending);
        for holder in &summary.holders[..shown] {
            let (bytes, blocks) = (Bytes(holder.bytes), holder.blocks);
            let percent = 100.0 * share(holder.bytes, used.max(1));
            let (noun, place) = (plural(blocks, "block", "blocks"), self.place(holder.stack));
            let line = format!("  {bytes:>12}  {percent:>5.1} %  {blocks:>6} {noun}  {place}");
            write!(out, "{}", stdout::sentence(&line))?;
        }
        Ok(())
    }

    fn place(&self, stack: StackId) -> String {
        place(self.snapshot, stack)
    }

    fn events(&self, out: &mut dyn Write, summary: &Summary<'_>) -> io::Result<()> {
        let Some((first, last)) = summary.span() else { return writeln!(out, "no events") };
        let seconds = share(last.abs_diff(first), 1_000_000);
        writeln!(out, "{} events over {seconds:.3} s", summary.events.len())?;
        for (action, count) in summary.actions() {
            writeln!(out, "  {count:>12}  {}", action.name())?;
        }
        let shortages = summary.events.iter().filter(|event| event.action == TraceAction::OutOfMemory);
        let count = shortages.clone().count();
        for event in shortages.take(MOST_SHORTAGES) {
            let after = share(event.time_us.abs_diff(first), 1_000_000);
            let (asked, free, place) = (Bytes(event.bytes), Bytes(event.address), self.place(event.stack));
            let line = format!(
                "out of memory after {after:.3} s: {asked} asked for with {free} free on the device, in {place}"
            );
            write!(out, "{}", stdout::sentence(&line))?;
        }
        if count > MOST_SHORTAGES {
            writeln!(out, "and {} times more", count - MOST_SHORTAGES)?;
        }
        Ok(())
    }

    fn settings(&self, out: &mut dyn Write) -> io::Result<()> {
        if self.snapshot.settings.is_empty() {
            return Ok(());
        }
        writeln!(out, "settings")?;
        for (key, setting) in &self.snapshot.settings {
            write!(out, "{}", stdout::sentence(&format!("  {}: {}", key.escape_debug(), text_of(setting))))?;
        }
        Ok(())
    }
}

fn write_memory(out: &mut dyn Write, memory: &Memory) -> io::Result<()> {
    let percent = |part: Option<f64>| part.map_or_else(|| "-".to_owned(), |part| format!("{:.1} %", 100.0 * part));
    let Memory { segments, elastic, .. } = memory;
    let noun = plural(*segments, "segment", "segments");
    writeln!(out, "  reserved       {:>12}  in {segments} {noun}, {elastic} of them elastic", Bytes(memory.reserved))?;
    if memory.asleep > 0 {
        writeln!(
            out,
            "  asleep         {:>12}  of pools that sleep, without memory of the device",
            Bytes(memory.asleep)
        )?;
    }
    for (name, bytes) in [
        ("allocated", memory.allocated),
        ("pending", memory.pending),
        ("free", memory.free),
        ("requested", memory.requested),
        ("largest free", memory.largest_free),
    ] {
        writeln!(out, "  {name:<14} {:>12}", Bytes(bytes))?;
    }
    for (name, part) in [("fragmentation", memory.fragmentation()), ("rounding", memory.rounding())] {
        writeln!(out, "  {name:<14} {:>12}", percent(part))?;
    }
    Ok(())
}

fn write_outside(out: &mut dyn Write, outside: &OutsideMemory) -> io::Result<()> {
    for (name, bytes, what) in [
        ("outside", outside.bytes, "of the device, by calls of the program past the cache"),
        ("managed", outside.managed, "past the cache, where the driver moves it"),
        ("pinned", outside.host, "past the cache, page-locked on the host"),
    ] {
        if bytes > 0 {
            writeln!(out, "  {name:<14} {:>12}  {what}", Bytes(bytes))?;
        }
    }
    Ok(())
}

fn write_pools(out: &mut dyn Write, summary: &Summary<'_>) -> io::Result<()> {
    if summary.pools.is_empty() {
        return Ok(());
    }
    let mut table = Table::new(["pool", "segments", "reserved", "allocated", "pending", "free"]);
    for (PoolId(first, second), memory) in &summary.pools {
        let name = match (first, second) {
            (0, 0) => "default".to_owned(),
            _ => format!("({first}, {second})"),
        };
        table.push([
            name,
            memory.segments.to_string(),
            Bytes(memory.reserved).to_string(),
            Bytes(memory.allocated).to_string(),
            Bytes(memory.pending).to_string(),
            Bytes(memory.free).to_string(),
        ]);
    }
    write!(out, "{}", stdout::table(&table))
}

fn text_of(setting: &Setting) -> String {
    match setting {
        Setting::None => "none".to_owned(),
        Setting::Switch(on) => on.to_string(),
        Setting::Integer(number) => number.to_string(),
        Setting::Number(number) => number.to_string(),
        Setting::Text(text) => format!("'{}'", text.escape_debug()),
        Setting::Table(table) => {
            let entries = table.iter();
            let entries: Vec<_> =
                entries.map(|(key, value)| format!("{}: {}", key.escape_debug(), text_of(value))).collect();
            format!("{{{}}}", entries.join(", "))
        }
    }
}
