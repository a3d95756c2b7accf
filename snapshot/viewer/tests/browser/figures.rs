//! Figures on the page are those of the snapshot, for the whole and for every moment.

use cachette_snapshot::{Stage, TraceAction};

use crate::chromium::Chromium;
use crate::shown::{Page, a_run, assert_calm, figure, place, rows, words, zoom_to};
use crate::{expected, training};

pub(crate) const PROMISES: &[(&str, fn())] = &[
    ("the_figures_at_the_head_are_the_snapshots", head),
    ("the_table_shows_who_holds_what_at_the_peak_and_at_the_end", holders_at_both),
    ("pointing_at_the_peak_shows_who_held_what_there", holders_at_the_peak),
    ("no_peak_is_lost_between_two_columns", no_peak_is_lost),
    ("the_moment_memory_ran_out_is_a_key_away", out_of_memory),
    ("devices_are_shown_one_at_a_time", devices),
    ("a_million_events_are_shown", a_million),
];

fn head() {
    let (snapshot, mut browser) = a_run("head");
    let events = expected::events(&snapshot, 0);
    let held: u64 = expected::held_after(events).values().map(|event| event.bytes).sum();
    let reserved: u64 = snapshot.segments.iter().filter(|s| s.device == 0).map(|s| s.bytes).sum();
    assert_eq!(figure(&mut browser, "peak-allocated"), expected::peak(events).0);
    assert_eq!(figure(&mut browser, "end-allocated"), held);
    assert_eq!(figure(&mut browser, "end-reserved"), reserved);
    assert_eq!(figure(&mut browser, "peak-reserved"), reserved, "nothing was given back to the device");
    let count = "Number(find('[data-figure=events] dd').firstChild.textContent.replace(/\\D/g, ''))";
    assert_eq!(browser.count(count), events.len() as u64);
    assert_calm(&mut browser);
}

fn holders_at_both() {
    let (snapshot, mut browser) = a_run("end");
    let events = expected::events(&snapshot, 0);
    let at_peak = expected::held_after(&events[..expected::peak(events).1]);
    assert_eq!(words(&mut browser, "#moment"), "at the peak", "where the page begins");
    assert_eq!(rows(&mut browser), expected::holders(&snapshot, &at_peak));
    browser.evaluate("goTo({ state: view.device.last, number: null, block: null }); draw()");
    assert_eq!(words(&mut browser, "#moment"), "at the end");
    assert_eq!(rows(&mut browser), expected::holders(&snapshot, &expected::held_after(events)));
    browser.key("p");
    assert_eq!(rows(&mut browser), expected::holders(&snapshot, &at_peak));
}

fn holders_at_the_peak() {
    let (snapshot, mut browser) = a_run("peak");
    let events = expected::events(&snapshot, 0);
    let (bytes, state) = expected::peak(events);
    zoom_to(&mut browser, state);
    let (x, y) = place(&mut browser, state, bytes / 2);
    browser.move_to(x, y);
    assert_eq!(browser.count("view.hover.state"), state as u64);
    let held = expected::held_after(&events[..state]);
    assert_eq!(rows(&mut browser), expected::holders(&snapshot, &held));
    assert!(words(&mut browser, "#tip").contains("block of"));
}

fn out_of_memory() {
    let (snapshot, mut browser) = a_run("out");
    let events = expected::events(&snapshot, 0);
    let at = events.iter().position(|event| event.action == TraceAction::OutOfMemory);
    let at = at.expect("the run asks for too much");
    browser.key("o");
    let details = words(&mut browser, "#details");
    let asked = browser.text(&format!("bytesText({})", events[at].bytes));
    let free = browser.text(&format!("bytesText({})", events[at].address));
    assert!(details.contains(&format!("Out of memory: {asked} requested")), "{details}");
    assert!(details.contains(&format!("Free on device{free}")), "{details}");
    let held = expected::held_after(&events[..at]);
    assert_eq!(rows(&mut browser), expected::holders(&snapshot, &held));
    let share = browser.number("(view.axis.to - view.axis.from) / view.axis.length");
    assert!(share < 0.3, "it is zoomed to");
}

fn devices() {
    let snapshot = training::snapshot(100_000);
    let annotations = snapshot.annotations.iter();
    let begun = annotations.filter(|a| a.device == 1 && a.stage == Stage::Start).count();
    let mut browser = crate::shown::shown(&snapshot, "devices");
    browser.evaluate("Object.assign(find('#device'), { selectedIndex: 1 }).dispatchEvent(new Event('change'))");
    browser.settle();
    let (peak, _) = expected::peak(expected::events(&snapshot, 1));
    assert_eq!(figure(&mut browser, "peak-allocated"), peak);
    assert_eq!(browser.count("view.spans.list.length"), begun as u64);
    assert_calm(&mut browser);
}

/// The times are printed: that of the page's thread, and that until the page is drawn.
fn a_million() {
    let snapshot = training::snapshot(1_000_000);
    let blocks: usize = snapshot.segments.iter().map(|segment| segment.blocks.len()).sum();
    assert!(blocks > 100_000, "{blocks} blocks");
    let page = Page::of(&snapshot, "million");
    let mut browser = Chromium::start("million");
    let before = browser.work_s();
    let opened = browser.open(page.path(), "light");
    let work = browser.work_s() - before;
    eprintln!("a million events and {blocks} blocks: {work:.2} s of work, drawn after {opened:.0} ms");
    let (peak, _) = expected::peak(expected::events(&snapshot, 0));
    assert_eq!(figure(&mut browser, "peak-allocated"), peak);
    let before = browser.work_s();
    browser.evaluate("draw()");
    eprintln!("drawn again with {:.3} s of work", browser.work_s() - before);
    let (x, y) = place(&mut browser, 500_000, 4 << 30);
    browser.move_to(x, y);
    assert!(words(&mut browser, "#tip").contains("block of"));
}

/// However much a column stands for, it is as high as the highest state in it.
fn no_peak_is_lost() {
    let (_, mut browser) = a_run("columns");
    let lost = browser.count(
        "Array.from(timeline.picks).filter((pick, column) => {
            const value = (edge) => view.axis.from + edge / timeline.wide * (view.axis.to - view.axis.from);
            const states = [value(column), value(column + 1)].map((value) => view.axis.stateAt(value));
            return view.device.height.subarray(states[0], states[1] + 1).some((height) => height > view.device.height[pick]);
        }).length",
    );
    assert_eq!(lost, 0);
    let drawn = browser.number("Math.max(...timeline.edges)");
    let highest = browser.number("view.device.height.reduce((a, b) => Math.max(a, b))");
    assert!((drawn - highest).abs() < 1.0, "{drawn} of {highest}");
}
