//! The chart of one trace.

use std::fmt::{self, Write};

use super::axis::{Axis, grouped};
use super::page::Escaped;
use super::{Chart, Look, Series};

/// The size of the chart, and the margins around the plot.
const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 380.0;
const LEFT: f64 = 84.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 48.0;
/// The number of configurations with a distinct colour.
const COLOURS: usize = 5;

impl Look {
    /// Returns the classes of the style sheet.
    pub(super) fn class(self) -> String {
        match self {
            Self::Requested => "requested".to_owned(),
            Self::Recorded => "recorded".to_owned(),
            Self::Config(number) if number < COLOURS => format!("config c{number}"),
            Self::Config(number) => format!("config c{} again", number % COLOURS),
        }
    }
}

/// The coordinates of the chart.
struct Plot {
    rows: Axis,
    columns: Axis,
    operations: f64,
}

#[expect(clippy::cast_precision_loss, reason = "a picture has a few thousand points")]
impl Plot {
    fn new(chart: &Chart) -> Self {
        let most = chart.series.iter().map(Series::peak).max().unwrap_or(0);
        Self {
            rows: Axis::bytes(most, 5),
            columns: Axis::count(chart.operations as u64, 8),
            operations: chart.operations.max(1) as f64,
        }
    }

    fn x(&self, operation: f64) -> f64 {
        LEFT + (WIDTH - LEFT - RIGHT) * operation / self.operations
    }

    fn y(&self, bytes: u64) -> f64 {
        HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * bytes as f64 / self.rows.length()
    }

    fn write_axes(&self, out: &mut String) -> fmt::Result {
        let (right, base) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        for (at, text) in self.rows.all() {
            let y = base - (base - TOP) * at;
            write!(
                out,
                "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
                 <text class=\"row\" x=\"{:.1}\" y=\"{:.1}\">{text}</text>",
                LEFT - 8.0,
                y + 4.0
            )?;
        }
        for (at, text) in self.columns.all() {
            let operation = at * self.columns.length();
            if operation > self.operations {
                break;
            }
            let x = self.x(operation);
            write!(
                out,
                "<line class=\"mark\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{base}\" y2=\"{:.1}\"/>\
                 <text class=\"column\" x=\"{x:.1}\" y=\"{:.1}\">{text}</text>",
                base + 5.0,
                base + 19.0
            )?;
        }
        let middle = LEFT.midpoint(right);
        write!(out, "<text class=\"column\" x=\"{middle:.1}\" y=\"{:.1}\">operations</text>", HEIGHT - 8.0)
    }

    fn write_series(&self, out: &mut String, series: &Series, step: usize) -> fmt::Result {
        let class = series.look.class();
        write!(out, "<path class=\"line {class}\" d=\"")?;
        let end = self.write_steps(out, series, step)?;
        if series.look == Look::Requested {
            let base = HEIGHT - BOTTOM;
            write!(out, "V{base}H{LEFT}Z")?;
        }
        out.push_str("\"/>");
        if let (Some(failed), Some((x, y))) = (series.failed, end) {
            write!(
                out,
                "<path class=\"cross {class}\" d=\"M{:.1} {:.1}l10 10m0 -10l-10 10\"><title>{} fails at \
                 operation {}</title></path>",
                x - 5.0,
                y - 5.0,
                Escaped(&series.label),
                grouped(&failed.to_string())
            )?;
        }
        Ok(())
    }

    /// Writes the values as steps. Returns the end point.
    fn write_steps(&self, out: &mut String, series: &Series, step: usize) -> Result<Option<(f64, f64)>, fmt::Error> {
        let mut end = None;
        let mut before = None;
        for (moment, value) in series.values.iter().enumerate() {
            let x = self.x((moment * step) as f64);
            let y = self.y(*value);
            match before {
                None => write!(out, "M{x:.1} {y:.1}")?,
                // The value is unchanged, so the next step draws this one too.
                Some(before) if before == *value => (),
                Some(_) => write!(out, "H{x:.1}V{y:.1}")?,
            }
            before = Some(*value);
            let right = ((moment + 1) * step) as f64;
            end = Some((self.x(right.min(self.operations)), y));
        }
        if let Some((x, _)) = end {
            write!(out, "H{x:.1}")?;
        }
        Ok(end)
    }
}

/// Writes the chart of a trace.
pub(super) fn write(out: &mut String, chart: &Chart) -> fmt::Result {
    let plot = Plot::new(chart);
    write!(
        out,
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"Memory of {} over its operations\" \
         data-left=\"{LEFT}\" data-right=\"{}\">",
        Escaped(&chart.name),
        WIDTH - RIGHT
    )?;
    plot.write_axes(out)?;
    for series in &chart.series {
        plot.write_series(out, series, chart.step)?;
    }
    write!(out, "<line class=\"cursor\" y1=\"{TOP}\" y2=\"{:.1}\" x1=\"0\" x2=\"0\"/></svg>", HEIGHT - BOTTOM)
}
