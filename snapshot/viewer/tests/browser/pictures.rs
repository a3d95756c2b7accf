//! Both pictures answer to wheel, drag, keys and clicks.

use cachette_snapshot::BlockState;
use serde_json::{Value, json};

use crate::chromium::Chromium;
use crate::expected;
use crate::shown::{Page, a_run, assert_calm, place, rows, stack, words, zoom_to};

pub(crate) const PROMISES: &[(&str, fn())] = &[
    ("clicking_the_picture_pins_the_block_that_lies_there", pinned_in_the_picture),
    ("clicking_a_block_of_a_segment_shows_its_stack", pinned_in_a_segment),
    ("keys_wheel_and_drag_zoom_and_move", zoom),
    ("clicking_an_owner_singles_it_out", single_owner),
    ("light_and_dark_are_a_key_apart", theme),
    ("nothing_at_the_head_is_cut_in_a_narrow_window", narrow),
];

/// What part of the whole the picture shows.
const SHARE: &str = "(view.axis.to - view.axis.from) / view.axis.length";

fn pinned_in_the_picture() {
    let (snapshot, mut browser) = a_run("pinned");
    let events = expected::events(&snapshot, 0);
    let (bytes, state) = expected::peak(events);
    zoom_to(&mut browser, state);
    let (x, y) = place(&mut browser, state, bytes / 3);
    browser.click(x, y);
    let address = browser.text(
        "Array.from(document.querySelectorAll('#details dt'))
            .find((word) => word.textContent === 'Address').nextSibling.textContent",
    );
    let address = u64::from_str_radix(address.trim_start_matches("0x"), 16).expect("a number");
    let held = expected::held_after(&events[..state]);
    let event = held.get(&address).expect("what is pinned was held then");
    let frames = snapshot.stacks.frames_of(event.stack);
    assert_eq!(stack(&mut browser), frames.map(|frame| frame.name.clone()).collect::<Vec<_>>());
    browser.move_to(5.0, 5.0);
    assert_eq!(rows(&mut browser), expected::holders(&snapshot, &held), "the moment stays too");
    browser.key("Escape");
    assert_eq!(browser.evaluate("view.pin"), Value::Null);
    assert_eq!(words(&mut browser, "#moment"), "at the peak");
}

fn pinned_in_a_segment() {
    let (snapshot, mut browser) = a_run("segment");
    let segment = &snapshot.segments[0];
    let block = segment.blocks.iter().find(|block| block.state == BlockState::Allocated);
    let block = block.expect("the first segment holds weights");
    let middle = block.address - segment.address + block.bytes / 2;
    let corner = "find('#strip-canvas').getBoundingClientRect()";
    let along = format!("{middle} / {} * strips.width(view, 0)", segment.bytes);
    let x = browser.number(&format!("{corner}.x + STRIP_LEFT + {along}"));
    let y = browser.number(&format!("{corner}.y + ROW / 2"));
    browser.move_to(x, y);
    let owner = &expected::owner(&snapshot, block.stack).name;
    assert!(words(&mut browser, "#tip").contains(owner));
    browser.click(x, y);
    let frames = snapshot.stacks.frames_of(block.stack);
    assert_eq!(stack(&mut browser), frames.map(|frame| frame.name.clone()).collect::<Vec<_>>());
    let details = words(&mut browser, "#details");
    assert!(details.contains(&format!("0x{:012x}", block.address)), "{details}");
    sorted(&mut browser, "size", "view.device.segments.bytes");
    sorted(&mut browser, "free", "view.fragments.free");
}

/// After this choice the strips are in descending order of these numbers.
fn sorted(browser: &mut Chromium, choice: &str, numbers: &str) {
    browser
        .evaluate(&format!("Object.assign(find('#sort'), {{ value: '{choice}' }}).dispatchEvent(new Event('change'))"));
    browser.settle();
    let falls = format!("strips.order.every((s, i, all) => !i || {numbers}[all[i - 1]] >= {numbers}[s])");
    assert_eq!(browser.evaluate(&falls), true, "{choice}");
}

fn zoom() {
    let (_, mut browser) = a_run("zoom");
    let (x, y) = (600.0, 300.0);
    let image = "timeline.canvas.toDataURL()";
    let whole = browser.text(image);
    browser.wheel(x, y, -200.0);
    assert!(browser.number(SHARE) < 0.9, "the wheel zooms in");
    assert_ne!(browser.text(image), whole);
    browser.key("0");
    assert_eq!(browser.evaluate("view.axis.isWhole"), true);
    browser.key("+");
    let from = browser.number("view.axis.from");
    browser.key("ArrowRight");
    assert!(browser.number("view.axis.from") > from);
    browser.key("ArrowLeft");
    browser.key("-");
    browser.key("-");
    assert_eq!(browser.evaluate("view.axis.isWhole"), true);
    browser.drag(x, x + 100.0, y);
    let drawn = browser.number("timeline.wide");
    assert!((browser.number(SHARE) - 100.0 / drawn).abs() < 0.01, "a drag shows what it selects");
    browser.evaluate("Object.assign(find('#axis'), { value: 'events' }).dispatchEvent(new Event('change'))");
    assert_eq!(browser.count("view.axis.length - 1"), browser.count("view.device.last"));
    assert_calm(&mut browser);
}

fn single_owner() {
    let (snapshot, mut browser) = a_run("owner");
    let held = expected::held_after(expected::events(&snapshot, 0));
    browser.evaluate("find('tr.owner').click()");
    browser.settle();
    let name = words(&mut browser, "tr.chosen .name");
    assert_eq!(browser.text("find('#filter').firstChild.textContent"), name);
    browser.evaluate("globalThis.values = new Float64Array(view.layers.count)");
    browser.evaluate("view.layers.read(view.device.last, values)");
    let (bytes, _) = expected::holders(&snapshot, &held)[&name];
    assert_eq!(browser.count("values[0]"), bytes, "the lowest layer is the owner's");
    assert_eq!(browser.count("view.layers.owners.length"), 1);
    browser.key("Escape");
    assert_eq!(browser.evaluate("find('#filter').hidden"), true);
}

fn narrow() {
    let (_, mut browser) = a_run("narrow");
    for width in [1440, 800, 500] {
        let size = json!({ "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false });
        browser.call("Emulation.setDeviceMetricsOverride", &size);
        let cut = "Array.from(document.querySelectorAll('header *, #figures *, .head *, .head, footer > *'))
            .filter((part) => part.getClientRects().length && !part.matches('.unseen, .quiet, option, dl *'))
            .filter((part) => part.getBoundingClientRect().right > innerWidth || part.parentElement.matches('#figures')
                && part.scrollWidth > part.clientWidth).map((part) => part.outerHTML)";
        assert_eq!(browser.evaluate(cut), json!([]), "at {width}");
    }
    assert_calm(&mut browser);
}

fn theme() {
    let page = Page::of(&crate::training::snapshot(3000), "theme");
    let mut browser = Chromium::start("theme");
    browser.open(page.path(), "dark");
    let is_dark = "document.documentElement.classList.contains('dark')";
    assert_eq!(browser.evaluate(is_dark), true);
    let image = browser.text("timeline.canvas.toDataURL()");
    browser.key("t");
    assert_eq!(browser.evaluate(is_dark), false);
    assert_ne!(browser.text("timeline.canvas.toDataURL()"), image);
}
