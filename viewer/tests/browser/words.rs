//! Words are found, stay words, and say what is not there.

use cachette_snapshot::{BlockState, Frame, Segment, Setting, Snapshot, StackId, Stacks};

use crate::shown::{a_run, assert_calm, figure, place, rows, shown, stack, words};
use crate::{expected, training};

pub(crate) const PROMISES: &[(&str, fn())] = &[
    ("searching_finds_what_has_the_text_in_its_stack", search),
    ("words_of_users_stay_words", hostile_words),
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
