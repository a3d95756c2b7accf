//! The smallest limits under which traces fit.

use std::io::{self, Write};

use cachette::human::Bytes;
use cachette_replay::replay::{FIT_STEP, Fit, fit};
use cachette_replay::table::Table;
use cachette_replay::{Target, Trace};

use super::named::Named;
use super::row::{Row, missing, write_failures};
use crate::stdout;

/// Fits every trace with every configuration.
pub(super) fn fit_all(target: &Target, traces: &[Trace], configs: &[Named]) -> Vec<Row<Fit>> {
    let steps = traces.len() * configs.len();
    Row::of_each(target, traces, configs, steps, |trace, config, bar| {
        let found = fit(trace, &target.device, config);
        bar.inc(1);
        found
    })
}

pub(super) fn write(out: &mut dyn Write, rows: &[Row<Fit>]) -> io::Result<()> {
    let mut table = Table::new(["trace", "config", "requested", "reserved", "fits in", "bytes", "ratio"]);
    for row in rows {
        table.push(cells(row));
    }
    write!(out, "{}", stdout::table(&table))?;
    for row in rows {
        if row.found.error.is_none() && !row.found.confirmed {
            let less = Bytes(FIT_STEP);
            writeln!(
                out,
                "{} with {}: not confirmed: a second run did not fit, or fitted in {less} less",
                row.trace,
                row.label()
            )?;
        }
    }
    write_failures(out, rows)
}

fn cells(row: &Row<Fit>) -> [String; 7] {
    let fit = &row.found;
    let or_dash = |figure: Option<String>| figure.unwrap_or_else(|| "-".to_owned());
    [
        row.trace.clone(),
        row.label().to_owned(),
        Bytes(fit.peak_requested).to_string(),
        Bytes(fit.peak_reserved).to_string(),
        fit.fit_bytes.map_or_else(|| missing(fit).to_owned(), |bytes| Bytes(bytes).to_string()),
        or_dash(fit.fit_bytes.map(|bytes| bytes.to_string())),
        or_dash(fit.fit_ratio.map(|ratio| format!("{ratio:.3}"))),
    ]
}
