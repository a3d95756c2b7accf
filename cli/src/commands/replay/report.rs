//! Memory during replays, as one page.

mod axis;
mod chart;
mod page;

use cachette_replay::replay::{Timeline, timeline};
use cachette_replay::trace::Recorded;
use cachette_replay::{Target, Trace};

use super::named::Named;
use crate::commands::bench::device_line;

/// One line of a chart.
#[derive(Clone, Debug)]
struct Series {
    label: String,
    look: Look,
    /// The highest bytes in each interval.
    values: Vec<u64>,
    /// The operation that failed, counted from 1.
    failed: Option<usize>,
}

/// The style of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    /// The bytes that the program requested.
    Requested,
    /// The bytes that the recorded program held.
    Recorded,
    /// The bytes that a configuration held, by its number.
    Config(usize),
}

impl Series {
    fn peak(&self) -> u64 {
        self.values.iter().copied().max().unwrap_or(0)
    }
}

/// The lines of one trace.
#[derive(Clone, Debug)]
struct Chart {
    name: String,
    operations: usize,
    /// Operations per interval.
    step: usize,
    series: Vec<Series>,
}

/// Replays every trace once more with every configuration, and draws the held memory.
pub(super) fn page(target: &Target, traces: &[Trace], configs: &[Named], limit: Option<u64>) -> String {
    let charts: Vec<Chart> = traces
        .iter()
        .map(|trace| {
            let play = |named: &Named| timeline(trace, &target.device, &named.config, limit);
            let lines: Vec<Timeline> = configs.iter().map(play).collect();
            Chart::of(trace, configs, &lines)
        })
        .collect();
    page::html(&device_line(target), &charts)
}

impl Chart {
    fn of(trace: &Trace, configs: &[Named], lines: &[Timeline]) -> Self {
        let operations = trace.operations().len();
        let step = lines.first().map_or(1, |line| line.step);
        let mut series = Vec::new();
        if let Some(line) = lines.first() {
            series.push(Series {
                label: "requested".to_owned(),
                look: Look::Requested,
                values: line.requested.clone(),
                failed: None,
            });
        }
        if let Some(recorded) = trace.recorded() {
            series.push(Series {
                label: "recorded run".to_owned(),
                look: Look::Recorded,
                values: moments(recorded, operations, step),
                failed: None,
            });
        }
        for (number, (named, line)) in configs.iter().zip(lines).enumerate() {
            series.push(Series {
                label: named.name.map_or_else(|| named.text(), str::to_owned),
                look: Look::Config(number),
                values: line.reserved.clone(),
                failed: line.failed,
            });
        }
        Self { name: trace.name().to_owned(), operations, step, series }
    }
}

/// Returns the highest bytes that the recorded program held in each interval.
fn moments(recorded: &Recorded, operations: usize, step: usize) -> Vec<u64> {
    let mut values = Vec::new();
    let mut changes = recorded.reserved.iter().peekable();
    let mut held = 0;
    for start in (0..operations).step_by(step) {
        while let Some((_, next)) = changes.next_if(|(at, _)| *at <= start) {
            held = *next;
        }
        let mut most = held;
        while let Some((_, next)) = changes.next_if(|(at, _)| *at < start + step) {
            held = *next;
            most = most.max(held);
        }
        values.push(most);
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_has_the_most_of_what_changed_in_it() {
        let recorded =
            Recorded { device: 0, peak_reserved: 9, earlier: 0, reserved: vec![(0, 4), (3, 9), (4, 2), (7, 5)] };
        assert_eq!(moments(&recorded, 8, 2), [4, 9, 2, 5]);
        assert_eq!(moments(&recorded, 8, 1), [4, 4, 4, 9, 2, 2, 2, 5]);
    }
}
