//! Compares a replay with the recorded run.

use std::io::{self, Write};

use cachette::human::Bytes;
use cachette_replay::Trace;
use cachette_replay::replay::Outcome;

use super::row::Row;

/// Writes a line for each row whose trace contains the memory of its program.
///
/// `rows` contains all configurations of the first trace, then those of the next.
pub(super) fn write(out: &mut dyn Write, traces: &[Trace], rows: &[Row<Outcome>]) -> io::Result<()> {
    for trace in traces {
        let earlier = trace.recorded().map_or(0, |recorded| recorded.earlier);
        if earlier > 0 {
            let name = trace.name();
            writeln!(out, "{name}: allocations older than the history, made first: {earlier}")?;
        }
    }
    let configs = rows.len() / traces.len().max(1);
    for row in rows {
        let outcome = &row.found;
        let (Some(recorded), Some(_)) = (row.recorded_peak_reserved, outcome.cold_ns_per_op) else { continue };
        if traces.len() > 1 {
            write!(out, "{}: ", row.trace)?;
        }
        let with = match configs {
            1 => String::new(),
            _ => format!(" with '{}'", row.label()),
        };
        let (needed, recorded) = (Bytes(outcome.peak_reserved), Bytes(recorded));
        writeln!(out, "this run would have needed {needed}{with} instead of {recorded}")?;
    }
    Ok(())
}
