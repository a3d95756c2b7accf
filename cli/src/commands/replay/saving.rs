//! The memory that the default saves beside direct segments, in words.

use std::io::{self, Write};

use cachette::human::Bytes;
use cachette_hal::{Device, Feature};
use cachette_replay::Target;
use cachette_replay::replay::Outcome;

use super::row::Row;
use crate::stdout;

/// Sets the bytes that the default saves in its row of each trace.
///
/// `rows` contains a row for direct segments and one for the default, for each trace.
pub(super) fn set(rows: &mut [Row<Outcome>]) {
    for pair in rows.chunks_exact_mut(2) {
        let [direct, default] = pair else { continue };
        if direct.found.error.is_none() && default.found.error.is_none() {
            let saved = i128::from(direct.found.peak_reserved) - i128::from(default.found.peak_reserved);
            default.saved_bytes = i64::try_from(saved).ok();
        }
    }
}

/// Writes a line for each trace whose replays have both ended well.
pub(super) fn write(out: &mut dyn Write, target: &Target, rows: &[Row<Outcome>]) -> io::Result<()> {
    if let Some(missing) = target.device.missing(Feature::VirtualMemory) {
        let reason = missing.reason;
        let text = format!("Elastic segments need virtual memory ({reason}), so the default is direct segments too.");
        return write!(out, "{}", stdout::sentence(&text));
    }
    for pair in rows.chunks_exact(2) {
        let [direct, default] = pair else { continue };
        let Some(saved) = default.saved_bytes else { continue };
        let name = if rows.len() > 2 { format!("{}: ", default.trace) } else { String::new() };
        let words = words(direct.found.ratio, default.found.ratio, saved);
        write!(out, "{}", stdout::sentence(&format!("{name}{words}")))?;
    }
    Ok(())
}

/// One sentence on the ratios of held to requested memory, and on the difference in bytes.
fn words(direct: f64, default: f64, saved: i64) -> String {
    let difference = Bytes(saved.unsigned_abs());
    let result = match saved {
        0 => "nothing is saved".to_owned(),
        1.. => format!("{difference} are saved"),
        _ => format!("{difference} more are held"),
    };
    // A trace that requests nothing has no ratio.
    if !direct.is_finite() || !default.is_finite() {
        return format!("Elastic segments (the default) beside direct segments: {result}.");
    }
    format!(
        "Elastic segments (the default) hold {default:.3} times what is requested, direct segments {direct:.3} times: \
         {result}."
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_difference_is_named_for_what_it_is() {
        let hold = "Elastic segments (the default) hold";
        let less = words(1.1562, 1.0191, 2 << 30);
        assert_eq!(
            less,
            format!("{hold} 1.019 times what is requested, direct segments 1.156 times: 2.00 GiB are saved.")
        );
        assert!(words(1.2, 1.2, 0).ends_with("direct segments 1.200 times: nothing is saved."));
        assert!(words(1.2, 1.4, -(2 << 20)).ends_with("direct segments 1.200 times: 2.00 MiB more are held."));
        assert!(!words(f64::NAN, f64::NAN, 0).contains("NaN"));
    }
}
