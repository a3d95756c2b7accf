//! A bar that shows the progress of long work.

use indicatif::{ProgressBar, ProgressStyle};

/// A progress bar of `length` steps with an estimate, on the standard error; hidden if that is not a terminal.
pub(super) fn bar(length: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:30} {percent:>3} % {eta:>4} left  {msg}")
        .unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(length).with_style(style)
}
