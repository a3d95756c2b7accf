//! A bar that shows the progress of long work.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use indicatif::{ProgressBar, ProgressStyle};

/// Set once, before the work begins. Relaxed: nothing else depends on it.
static IS_HIDDEN: AtomicBool = AtomicBool::new(false);

/// Hides all later bars.
pub(crate) fn hide() {
    IS_HIDDEN.store(true, Relaxed);
}

/// Whether the user wants no more than was asked for.
pub(super) fn is_hidden() -> bool {
    IS_HIDDEN.load(Relaxed)
}

/// A progress bar of `length` steps with an estimate, on the standard error; hidden if that is not a terminal.
pub(super) fn bar(length: u64) -> ProgressBar {
    if is_hidden() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:30} {percent:>3} % {eta:>4} left  {msg}")
        .unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(length).with_style(style)
}
