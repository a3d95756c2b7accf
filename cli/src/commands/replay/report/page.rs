//! The page around the charts.

use std::fmt::{self, Display, Write};

use cachette::human::Bytes;
use serde_json::json;

use super::axis::grouped;
use super::{Chart, Look, chart};

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// Returns the whole page. It is self-contained.
pub(super) fn html(device: &str, charts: &[Chart]) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let _ = write_page(&mut out, device, charts);
    out
}

fn write_page(out: &mut String, device: &str, charts: &[Chart]) -> fmt::Result {
    write!(
        out,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; \
         script-src 'unsafe-inline'\">\n\
         <title>Replayed memory</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n\
         <h1>Memory over the course of a replay</h1>\n\
         <p class=\"device\">Replayed by cachette on {}. Lines are what was held from the device, one for each \
         configuration; the area is what the program asked for.</p>\n",
        Escaped(device)
    )?;
    for chart in charts {
        write_section(out, chart)?;
    }
    write!(out, "</main>\n<script>\n{SCRIPT}</script>\n</body>\n</html>\n")
}

fn write_section(out: &mut String, chart: &Chart) -> fmt::Result {
    let operations = grouped(&chart.operations.to_string());
    write!(
        out,
        "<section>\n<h2>{}</h2>\n<p class=\"count\">{operations} operations</p>\n<figure>\n",
        Escaped(&chart.name)
    )?;
    chart::write(out, chart)?;
    out.push_str("\n<output class=\"values\" hidden></output>\n</figure>\n");
    write_legend(out, chart)?;
    write_data(out, chart)?;
    out.write_str("</section>\n")
}

/// Writes the peak of each line, and the meaning of its colour.
fn write_legend(out: &mut String, chart: &Chart) -> fmt::Result {
    let peak_of = |look| {
        let mut series = chart.series.iter();
        series.find(|series| series.look == look).map(super::Series::peak)
    };
    let (requested, recorded) = (peak_of(Look::Requested), peak_of(Look::Recorded));
    out.push_str("<table>\n<tr><th></th><th>peak</th><th>× requested</th>");
    if recorded.is_some() {
        out.push_str("<th>× recorded run</th>");
    }
    out.push_str("<th></th></tr>\n");
    for series in &chart.series {
        let peak = series.peak();
        write!(
            out,
            "<tr><th><svg class=\"key\" viewBox=\"0 0 28 12\" aria-hidden=\"true\"><path class=\"line {}\" \
             d=\"M1 6H27\"/></svg>{}</th><td>{}</td><td>{}</td>",
            series.look.class(),
            Escaped(&series.label),
            Bytes(peak),
            part(peak, requested)
        )?;
        if recorded.is_some() {
            write!(out, "<td>{}</td>", part(peak, recorded))?;
        }
        let failed = series
            .failed
            .map_or_else(String::new, |operation| format!("fails at operation {}", grouped(&operation.to_string())));
        writeln!(out, "<td class=\"note\">{failed}</td></tr>")?;
    }
    writeln!(out, "</table>")
}

#[expect(clippy::cast_precision_loss, reason = "a ratio needs far fewer digits than are kept")]
fn part(peak: u64, whole: Option<u64>) -> String {
    match whole {
        Some(whole) if whole > 0 => format!("{:.3}", peak as f64 / whole as f64),
        _ => "-".to_owned(),
    }
}

/// Writes the data that the script shows under the pointer.
fn write_data(out: &mut String, chart: &Chart) -> fmt::Result {
    let series: Vec<_> =
        chart.series.iter().map(|series| json!([series.label, series.look.class(), series.values])).collect();
    let data = json!({
        "operations": chart.operations,
        "step": chart.step,
        "series": series,
    });
    // A text from the user must not close the element that contains it.
    let data = data.to_string().replace('<', "\\u003c");
    writeln!(out, "<script type=\"application/json\" class=\"data\">{data}</script>")
}

/// A text that needs HTML escapes.
pub(super) struct Escaped<'a>(pub(super) &'a str);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for character in self.0.chars() {
            match character {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                other => f.write_char(other)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::Series;
    use super::*;

    #[test]
    fn names_of_users_stay_text() {
        let name = "</script><b>\"&".to_owned();
        let chart = Chart {
            name: name.clone(),
            operations: 2,
            step: 1,
            series: vec![Series {
                label: name,
                look: Look::Config(7),
                values: vec![1 << 20, 2 << 20],
                failed: Some(2),
            }],
        };
        let page = html("host:0", &[chart]);
        assert!(page.contains("<h2>&lt;/script&gt;&lt;b&gt;&quot;&amp;</h2>"));
        assert!(!page.contains("<b>"));
        assert_eq!(page.matches("</script>").count(), 2);
        assert!(page.contains("fails at operation 2"));
        assert!(page.contains("config c2 again"));
    }
}
