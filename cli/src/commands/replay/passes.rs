//! The memory and time of traces.

use std::io::{self, Write};

use cachette::human::Bytes;
use cachette_replay::replay::{Outcome, PASSES, replay};
use cachette_replay::table::Table;
use cachette_replay::{Target, Trace};

use super::named::Named;
use super::row::{Row, missing};
use crate::stdout;

/// Replays every trace with every configuration.
pub(super) fn replay_all(
    target: &Target,
    traces: &[Trace],
    configs: &[Named],
    limit: Option<u64>,
) -> Vec<Row<Outcome>> {
    let operations: usize = traces.iter().map(|trace| trace.operations().len()).sum();
    let steps = PASSES * operations * configs.len();
    Row::of_each(target, traces, configs, steps, |trace, config, bar| {
        replay(trace, &target.device, config, limit, &mut |more: usize| bar.inc(more as u64))
    })
}

pub(super) fn write(out: &mut dyn Write, rows: &[Row<Outcome>]) -> io::Result<()> {
    let mut table = Table::new([
        "trace",
        "config",
        "requested",
        "reserved",
        "ratio",
        "cold ns",
        "warm ns",
        "steady ns",
        "cold calls",
        "steady calls",
    ]);
    for row in rows {
        table.push(cells(row));
    }
    write!(out, "{}", stdout::table(&table))
}

fn cells(row: &Row<Outcome>) -> [String; 10] {
    let outcome = &row.found;
    // The reason replaces the first missing figure.
    let mut reason = Some(missing(outcome));
    let mut or_reason = |figure: Option<String>| figure.unwrap_or_else(|| reason.take().unwrap_or("-").to_owned());
    [
        row.trace.clone(),
        row.label().to_owned(),
        Bytes(outcome.peak_requested).to_string(),
        Bytes(outcome.peak_reserved).to_string(),
        // A trace that requests nothing has no ratio.
        if outcome.ratio.is_finite() { format!("{:.3}", outcome.ratio) } else { "-".to_owned() },
        or_reason(outcome.cold_ns_per_op.map(tenths)),
        or_reason(outcome.warm_ns_per_op.map(tenths)),
        or_reason(outcome.steady_ns_per_op.map(tenths)),
        outcome.driver_calls.to_string(),
        or_reason(outcome.steady_driver_calls.map(|calls| calls.to_string())),
    ]
}

fn tenths(ns: f64) -> String {
    format!("{ns:.1}")
}
