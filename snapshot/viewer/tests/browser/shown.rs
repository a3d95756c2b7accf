//! A snapshot shown in a browser, and looks at what is shown.

use std::collections::BTreeMap;
use std::io::BufWriter;
use std::path::Path;

use cachette_snapshot::Snapshot;
use tempfile::{Builder, NamedTempFile};

use crate::chromium::Chromium;
use crate::training;

/// A page in a temporary file, deleted on drop.
pub(crate) struct Page(NamedTempFile);

impl Page {
    pub(crate) fn of(snapshot: &Snapshot, name: &str) -> Self {
        let mut file = Builder::new().prefix(name).suffix(".html").tempfile().expect("room for a file");
        cachette_viewer::page(snapshot, BufWriter::new(&mut file)).expect("room for the page");
        Self(file)
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }
}

/// A browser that shows a run of 30,000 events.
pub(crate) fn a_run(name: &str) -> (Snapshot, Chromium) {
    let snapshot = training::snapshot(30_000);
    let browser = shown(&snapshot, name);
    (snapshot, browser)
}

/// A browser that shows a snapshot; the page asks for nothing but itself.
pub(crate) fn shown(snapshot: &Snapshot, name: &str) -> Chromium {
    let page = Page::of(snapshot, name);
    let mut browser = Chromium::start(name);
    browser.open(page.path(), "light");
    assert_eq!(browser.requests(), 1, "the page asks for nothing but itself");
    browser
}

/// One of the figures at the head, in bytes.
pub(crate) fn figure(browser: &mut Chromium, name: &str) -> u64 {
    browser.count(&format!("Number(find('[data-figure={name}] dd').dataset.bytes)"))
}

/// The rows of the table: bytes and blocks by name.
pub(crate) fn rows(browser: &mut Chromium) -> BTreeMap<String, (u64, u64)> {
    let rows = browser.evaluate(
        "Array.from(document.querySelectorAll('tr.owner'), (row) => [
            row.querySelector('.name').textContent,
            Number(row.cells[1].title.replace(/\\D/g, '')),
            Number(row.cells[2].textContent.replace(/\\D/g, ''))])",
    );
    let rows: Vec<(String, u64, u64)> = serde_json::from_value(rows).expect("rows of three");
    rows.into_iter().map(|(name, bytes, blocks)| (name, (bytes, blocks))).collect()
}

/// Zooms to a few states around one, so that each has its own columns.
pub(crate) fn zoom_to(browser: &mut Chromium, state: usize) {
    let [from, to] = [state - 5, state + 5].map(|state| format!("view.axis.valueOf({state})"));
    browser.evaluate(&format!("view.axis.show({from}, {to}); redraw()"));
    browser.settle();
}

/// Where a state is in the picture, so many of its bytes up.
pub(crate) fn place(browser: &mut Chromium, state: usize, bytes: u64) -> (f64, f64) {
    let corner = "find('#timeline').getBoundingClientRect()";
    let x = format!("{corner}.x + timeline.x(view.axis, view.axis.valueOf({state})) + 2");
    let y = format!("{corner}.y + timeline.y({bytes})");
    (browser.number(&x), browser.number(&y))
}

/// The functions of the stack in the details.
pub(crate) fn stack(browser: &mut Chromium) -> Vec<String> {
    let items = "find('#details ol.stack')?.children ?? []";
    let names = browser.evaluate(&format!("Array.from({items}, (item) => item.firstChild.textContent)"));
    serde_json::from_value(names).expect("a list of names")
}

/// The words on a part of the page.
pub(crate) fn words(browser: &mut Chromium, selector: &str) -> String {
    browser.text(&format!("find('{selector}').textContent"))
}

/// Fails if the browser has complained of anything.
pub(crate) fn assert_calm(browser: &mut Chromium) {
    assert_eq!(browser.complaints(), Vec::<String>::new());
}
