//! The memory and time of traces.

use std::io::{self, Write};

use cachette::human::Bytes;
use cachette_replay::replay::{Outcome, PASSES, replay};
use cachette_replay::table::Table;
use cachette_replay::{Target, Trace};
use serde::Serialize;

use super::mean::{geometric, means};
use super::named::Named;
use super::row::{Row, missing};
use crate::commands::progress;
use crate::stdout;

/// The means in the output.
#[derive(Debug, Serialize)]
pub(super) struct Means {
    ratio: Option<f64>,
    cold_ns_per_op: Option<f64>,
    steady_ns_per_op: Option<f64>,
}

/// Replays every trace with every configuration.
pub(super) fn replay_all(
    target: &Target,
    traces: &[Trace],
    configs: &[Named],
    limit: Option<u64>,
) -> Vec<Row<Outcome>> {
    let operations: usize = traces.iter().map(|trace| trace.operations().len()).sum();
    let bar = progress::bar((PASSES * operations * configs.len()) as u64);
    let mut rows = Vec::new();
    for trace in traces {
        bar.set_message(trace.name().to_owned());
        for named in configs {
            let mut progress = |more: usize| bar.inc(more as u64);
            let device = &target.device;
            let outcome = replay(trace, device, &named.config, limit, &mut progress);
            rows.push(Row::new(target, trace, named, outcome));
        }
    }
    bar.finish_and_clear();
    rows
}

/// The means of all rows of each configuration.
pub(super) fn means_of(rows: &[Row<Outcome>], configs: usize) -> Vec<Row<Means>> {
    means(rows, configs, |found| Means {
        ratio: geometric(found.iter().map(|outcome| outcome.error.is_none().then_some(outcome.ratio))),
        cold_ns_per_op: geometric(found.iter().map(|outcome| outcome.cold_ns_per_op)),
        steady_ns_per_op: geometric(found.iter().map(|outcome| outcome.steady_ns_per_op)),
    })
}

pub(super) fn write(out: &mut dyn Write, rows: &[Row<Outcome>], means: &[Row<Means>]) -> io::Result<()> {
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
    for mean in means {
        table.push(mean_cells(mean));
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

fn mean_cells(mean: &Row<Means>) -> [String; 10] {
    let Means { ratio, cold_ns_per_op, steady_ns_per_op } = mean.found;
    let ns = |figure: Option<f64>| figure.map_or_else(|| "-".to_owned(), tenths);
    [
        mean.trace.clone(),
        mean.label().to_owned(),
        String::new(),
        String::new(),
        ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.3}")),
        ns(cold_ns_per_op),
        String::new(),
        ns(steady_ns_per_op),
        String::new(),
        String::new(),
    ]
}

fn tenths(ns: f64) -> String {
    format!("{ns:.1}")
}
