//! Words are found, stay words, and say what is not there.

use cachette_snapshot::{
    Annotation, BlockState, Event, Frame, Segment, Setting, Snapshot, StackId, Stacks, Stage, TraceAction,
};

use crate::shown::{a_run, assert_calm, figure, place, rows, shown, stack, words};
use crate::{expected, training};

pub(crate) const PROMISES: &[(&str, fn())] = &[
    ("searching_finds_what_has_the_text_in_its_stack", search),
    ("words_of_users_stay_words", hostile_words),
    ("a_finding_of_the_sanitizer_is_shown_with_the_stacks_of_its_memory", finding),
    ("nothing_at_all_is_a_page_too", nothing),
    ("a_snapshot_without_history_shows_what_is_held", no_history),
    ("a_history_without_stacks_is_grouped_by_what_is_known", no_stacks),
];

fn search() {
    let (snapshot, mut browser) = a_run("search");
    let events = expected::events(&snapshot, 0);
    for text in ["attention.py", "layer_7", "nowhere at all"] {
        browser.key("/");
        browser.write(text);
        assert_eq!(browser.text("document.activeElement.id"), "search");
        let (allocations, owners) = expected::hits(&snapshot, events, text);
        if allocations == 0 {
            assert_eq!(words(&mut browser, "#hits"), "no stack has this");
        } else {
            let dataset = browser.evaluate("({ ...find('#hits').dataset })");
            assert_eq!(dataset["allocations"], allocations.to_string(), "{text}");
            assert_eq!(dataset["owners"], owners.to_string(), "{text}");
        }
        browser.key("Escape");
        assert_eq!(browser.text("find('#search').value"), "");
    }
    assert_calm(&mut browser);
}

fn finding() {
    let mut snapshot = training::snapshot(2000);
    let mut browser = shown(&snapshot, "no-finding");
    assert_eq!(browser.evaluate("find('[data-figure=findings]')"), serde_json::Value::Null);
    // An address that a second allocation got after the first was freed.
    let events = expected::events(&snapshot, 0);
    let is_alloc = |event: &&Event| event.action == TraceAction::Alloc;
    let reused = |second: &&Event| events.iter().filter(is_alloc).any(|first| is_before(first, second));
    let second = *events.iter().filter(is_alloc).find(reused).expect("a run reuses memory");
    let earlier = events.iter().filter(is_alloc).rfind(|first| is_before(first, &second)).expect("found above");
    let [now, before] = [second.stack, earlier.stack].map(|stack| {
        let frames = snapshot.stacks.frames_of(stack);
        frames.map(|frame| frame.name.clone()).collect::<Vec<_>>()
    });
    // A use that follows the last request is after the last event.
    let late = events.last().expect("events").time_us + 1_000_000;
    let name = format!("sanitizer: memory was reused, <b>by hand</b>, at {:#x}", second.address);
    for (stage, time_us) in [(Stage::Start, second.time_us), (Stage::End, second.time_us)] {
        snapshot.annotations.push(Annotation { name: name.clone(), stage, device: 0, time_us });
    }
    let name = "sanitizer: late".to_owned();
    snapshot.annotations.push(Annotation { name, stage: Stage::Start, device: 0, time_us: late });

    let mut browser = shown(&snapshot, "finding");
    assert!(words(&mut browser, "[data-figure=findings]").starts_with("Sanitizer2 findings"));
    let without = browser.text("timeline.canvas.toDataURL()");
    browser.evaluate("find('#next-finding').click()");
    browser.settle();
    assert_ne!(browser.text("timeline.canvas.toDataURL()"), without);
    let details = words(&mut browser, "#details");
    assert!(details.contains("Memory was reused, <b>by hand</b>"), "{details}");
    assert!(details.contains(&format!("Address0x{:012x}", second.address)), "{details}");
    let lists = "Array.from(document.querySelectorAll('#details ol.stack'), (list) =>
        Array.from(list.children, (item) => item.firstChild.textContent))";
    assert_eq!(browser.evaluate(lists), serde_json::json!([now, before]));
    let (x, y) = (browser.number(&at_finding(0)), 200.0);
    browser.move_to(x, y);
    assert!(words(&mut browser, "#tip").contains("Memory was reused"));
    browser.key("s");
    assert!(words(&mut browser, "#details").contains("Late"));
    assert!(browser.number(&at_finding(1)) < browser.number("innerWidth"), "it is in the picture");
    assert_calm(&mut browser);
}

/// Whether a request got its address before another request for it.
fn is_before(first: &Event, second: &Event) -> bool {
    first.address == second.address && first.time_us < second.time_us
}

/// Where a finding is in the window.
fn at_finding(number: usize) -> String {
    format!("find('#timeline').getBoundingClientRect().x + timeline.findingX(view, view.device.findings[{number}])")
}

fn hostile_words() {
    let hostile = "</script><img src=x onerror=\"hacked=1\"><!--<script>hacked=1</script>";
    let mut snapshot = training::snapshot(2000);
    let frame = Frame { name: hostile.to_owned(), file: format!("/home/{hostile}"), line: 1 };
    let stack_id = snapshot.stacks.add([frame]);
    let metadata = snapshot.texts.add(hostile);
    for event in &mut snapshot.traces[0].events {
        (event.stack, event.metadata, event.context) = (stack_id, metadata, metadata);
    }
    for annotation in &mut snapshot.annotations {
        hostile.clone_into(&mut annotation.name);
    }
    snapshot.settings.push((hostile.to_owned(), Setting::Text(hostile.to_owned())));
    let mut browser = shown(&snapshot, "hostile");
    assert_eq!(words(&mut browser, "tr.owner .name"), hostile);
    let (x, y) = place(&mut browser, 1500, 1 << 30);
    browser.click(x, y);
    assert_eq!(stack(&mut browser), [hostile]);
    assert!(words(&mut browser, "#details").contains(&format!("Metadata{hostile}")));
    assert!(words(&mut browser, "#settings").contains(hostile));
    assert_eq!(browser.count("document.querySelectorAll('img').length"), 0);
    assert_calm(&mut browser);

    browser.evaluate("globalThis.refused = 0; addEventListener('securitypolicyviolation', () => refused++)");
    browser.evaluate("fetch('data:,x').catch(() => 0)");
    browser.evaluate("document.body.setAttribute('onclick', 'hacked = 1'); document.body.click()");
    browser.settle();
    assert_eq!(browser.count("refused"), 2, "it can neither connect nor run what is not its own");
    assert_eq!(browser.text("typeof globalThis.hacked"), "undefined");
}

fn nothing() {
    let mut browser = shown(&Snapshot::default(), "nothing");
    assert!(words(&mut browser, "#history-note").starts_with("No history was recorded"));
    assert!(words(&mut browser, "#segments-note").starts_with("No segments were held"));
    assert_eq!(words(&mut browser, "#holders-note"), "Nothing is held here.");
    for key in ["+", "-", "0", "o", "ArrowLeft", "t", "Escape"] {
        browser.key(key);
    }
    assert_calm(&mut browser);
}

fn no_history() {
    let full = training::snapshot(3000);
    let snapshot = Snapshot { traces: Vec::new(), annotations: Vec::new(), ..full };
    let mut browser = shown(&snapshot, "no-history");
    let held = |segment: &Segment| -> u64 {
        let blocks = segment.blocks.iter().filter(|block| block.state == BlockState::Allocated);
        blocks.map(|block| block.requested).sum()
    };
    let held: u64 = snapshot.segments.iter().filter(|s| s.device == 0).map(held).sum();
    assert_eq!(figure(&mut browser, "end-allocated"), held);
    assert_eq!(rows(&mut browser).values().map(|row| row.0).sum::<u64>(), held);
    assert!(words(&mut browser, "#history-note").starts_with("No history was recorded"));
    assert_calm(&mut browser);
}

fn no_stacks() {
    let full = training::snapshot(3000);
    let mut snapshot = Snapshot { stacks: Stacks::new(), segments: Vec::new(), ..full };
    for event in &mut snapshot.traces[0].events {
        event.stack = StackId::NONE;
    }
    let mut browser = shown(&snapshot, "no-stacks");
    assert!(words(&mut browser, "#history-note").starts_with("No stacks were recorded"));
    assert_eq!(browser.text("find('#mode').value"), "metadata");
    assert!(rows(&mut browser).contains_key("load"));
    assert_calm(&mut browser);
}
