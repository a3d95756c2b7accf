//! Reports which configuration runs out of memory first.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Write};

use cachette_replay::replay::{Outcome, Pass};

use super::row::{Row, write_failures};

/// Writes the operation at which each trace ran out of memory, and other failures.
///
/// `rows` contains all `configs` configurations of the first trace, then those of the next.
pub(super) fn write(out: &mut dyn Write, rows: &[Row<Outcome>], configs: usize) -> io::Result<()> {
    for shortage in rows.chunks(configs).filter_map(Shortage::of) {
        writeln!(out, "{shortage}")?;
    }
    write_failures(out, rows, |failure| !failure.is_out_of_memory())
}

/// The operations at which one trace ran out of memory, with their configurations, in order.
#[derive(Debug, Default)]
struct Shortage<'a> {
    trace: &'a str,
    places: BTreeMap<(Pass, usize), Vec<&'a str>>,
    /// The configurations that did not run out of memory.
    enough: Vec<&'a str>,
}

impl<'a> Shortage<'a> {
    /// Returns the summary of one trace's rows; `None` if none ran out of memory.
    fn of(rows: &'a [Row<Outcome>]) -> Option<Self> {
        let mut shortage = Self::default();
        for row in rows {
            shortage.trace = &row.trace;
            match &row.found.error {
                Some(failure) if failure.is_out_of_memory() => {
                    let place = (failure.pass, failure.operation);
                    shortage.places.entry(place).or_default().push(row.label());
                }
                Some(_) => (),
                None => shortage.enough.push(row.label()),
            }
        }
        (!shortage.places.is_empty()).then_some(shortage)
    }
}

impl fmt::Display for Shortage<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} runs out of memory", self.trace)?;
        let mut order = " first";
        for ((pass, operation), labels) in &self.places {
            let labels = quoted(labels);
            write!(f, "{order} with {labels} (operation {operation} of the {pass} pass)")?;
            order = ", then";
        }
        if !self.enough.is_empty() {
            write!(f, "; it fits with {}", quoted(&self.enough))?;
        }
        Ok(())
    }
}

/// Joins names that may contain commas.
fn quoted(labels: &[&str]) -> String {
    format!("'{}'", labels.join("' and '"))
}
