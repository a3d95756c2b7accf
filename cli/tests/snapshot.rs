//! `cachette snapshot` shows, converts and draws snapshots, and leaves no half of a file behind.

mod program;
mod recording;
mod scratch;

use std::fs;

use cachette_snapshot::{Frame, Snapshot, StackId};
use program::run;
use recording::{MIB, pickled, run_of_three};
use scratch::Scratch;

/// Asserts that the request is refused, with `expected` in the message.
#[track_caller]
fn refused(arguments: &[&str], expected: &str) {
    let ran = run(&[&["snapshot"], arguments].concat());
    assert_eq!(ran.code, Some(2), "{arguments:?}: {ran:?}");
    assert!(ran.stderr.contains(expected), "{arguments:?}: {ran:?}");
}

#[test]
fn the_figures_of_a_snapshot() {
    let file = pickled(&run_of_three());
    let ran = run(&["snapshot", "info", file.path()]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    for line in [
        "device 0\n",
        "  reserved          64.00 MiB  in 4 segments, 0 of them elastic\n",
        "  allocated         34.00 MiB\n",
        "  pending             0 bytes\n",
        "  free              30.00 MiB\n",
        "  largest free      20.00 MiB\n",
        "  fragmentation        33.3 %\n",
        "  rounding              0.0 %\n",
        "default         3  60.00 MiB  30.00 MiB  0 bytes  30.00 MiB\n",
        "(0, 3)          1   4.00 MiB   4.00 MiB  0 bytes    0 bytes\n",
        "largest holders (1 of 1)\n",
        "     34.00 MiB  100.0 %       2 blocks  step train.py:10 < main train.py:3\n",
        "11 events over 5.000 s\n",
        "             3  alloc\n",
        "             2  free_completed\n",
        "             1  oom\n",
        "out of memory after 5.000 s: 1.00 GiB asked for with 5.00 MiB free on the device, in step",
    ] {
        assert!(ran.stdout.contains(line), "{line}\n{}", ran.stdout);
    }
}

#[test]
fn the_figures_of_a_snapshot_for_programs() {
    let file = pickled(&run_of_three());
    let ran = run(&["snapshot", "info", file.path(), "--json"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let found: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    let device = &found["devices"][0];
    assert_eq!(device["device"], 0);
    assert_eq!(device["memory"]["reserved"], 64 * MIB);
    assert_eq!(device["memory"]["allocated"], 34 * MIB);
    assert_eq!(device["pools"][1], serde_json::json!({ "pool": [0, 3], "memory": device["pools"][1]["memory"] }));
    assert_eq!(device["holders"][0]["bytes"], 34 * MIB);
    assert_eq!(device["holders"][0]["stack"][0], serde_json::json!({ "name": "step", "file": "train.py", "line": 10 }));
    assert_eq!(device["events"]["alloc"], 3);
}

#[test]
fn a_snapshot_of_nothing_says_so() {
    let file = pickled(&Snapshot::default());
    let ran = run(&["snapshot", "info", file.path()]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stdout.starts_with("the snapshot is empty"), "{ran:?}");
}

#[test]
fn formats_turn_into_each_other() {
    let snapshot = run_of_three();
    let (pickle, json, again) = (pickled(&snapshot), Scratch::new(".json"), Scratch::new(".pickle"));
    for (from, to) in [(&pickle, &json), (&json, &again)] {
        let ran = run(&["snapshot", "convert", from.path(), to.path()]);
        assert_eq!(ran.code, Some(0), "{ran:?}");
    }
    assert_eq!(json.json()["format"], "cachette-snapshot");
    let (first, last) = (fs::read(pickle.path()), fs::read(again.path()));
    assert_eq!(first.unwrap(), last.unwrap());
    let read = Snapshot::read(json.path().as_ref()).unwrap();
    assert_eq!(read.traces[0].events.len(), 11);
    assert_eq!(read.segments[3].bytes, 30 * MIB);
}

#[test]
fn a_page_stands_by_itself() {
    let (file, page) = (pickled(&run_of_three()), Scratch::new(".html"));
    let ran = run(&["snapshot", "view", file.path(), "-o", page.path()]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let html = fs::read_to_string(page.path()).unwrap();
    assert!(html.to_lowercase().starts_with("<!doctype html>"));
    assert!(html.trim_end().ends_with("</html>"));
    assert!(!html.contains("src=\"http") && !html.contains("href=\"http"));
}

#[test]
fn a_page_lies_beside_the_snapshot_by_default() {
    let file = pickled(&run_of_three());
    let page = format!("{}.html", file.path());
    let ran = run(&["snapshot", "view", file.path()]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let html = fs::read_to_string(&page).unwrap();
    fs::remove_file(&page).unwrap();
    assert!(html.trim_end().ends_with("</html>"));
    assert!(ran.stdout.starts_with(&format!("wrote {page} (")) && ran.stdout.lines().count() == 1, "{ran:?}");
}

#[test]
fn memory_of_pools_that_sleep_is_not_reserved() {
    let mut snapshot = run_of_three();
    let mut large = snapshot.segments.iter_mut().filter(|segment| segment.bytes == 20 * MIB);
    large.next().expect("it has such segments").asleep = true;
    let ran = run(&["snapshot", "info", pickled(&snapshot).path()]);
    for line in [
        "  reserved          44.00 MiB  in 3 segments, 0 of them elastic\n",
        "  asleep            20.00 MiB  of pools that sleep, without memory of the device\n",
    ] {
        assert!(ran.stdout.contains(line), "{ran:?}");
    }
}

/// Two snapshots: one owner has 34 MiB more, another has come, and memory without callers has gone.
fn two_steps() -> [Scratch; 2] {
    let before = run_of_three();
    let mut after = run_of_three();
    let frame = |name: &str, line| Frame { name: name.to_owned(), file: "train.py".to_owned(), line };
    let new = after.stacks.add([frame("cache", 20)]);
    let mut segments = after.segments.clone();
    for (order, segment) in (4..).zip(&mut segments) {
        segment.order = order;
        segment.address += 1000 * MIB;
        segment.blocks[0].address += 1000 * MIB;
    }
    segments[0].blocks[0].stack = new;
    after.segments.extend(segments);
    let mut lost = before.clone();
    lost.segments[0].blocks[0].stack = StackId::default();
    [pickled(&lost), pickled(&after)]
}

#[test]
fn a_difference_names_what_grew_came_and_went() {
    let [before, after] = two_steps();
    let ran = run(&["snapshot", "diff", before.path(), after.path()]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(
        ran.stdout,
        "device 0: 34.00 MiB in use, then 68.00 MiB: 34.00 MiB more\n\
         grew (1 of 1)\n     \
         +34.00 MiB  to 64.00 MiB in 3 blocks  step train.py:10 < main train.py:3\n\
         came (1 of 1)\n      \
         +4.00 MiB  to 4.00 MiB in 1 block  cache train.py:20\n\
         went (1 of 1)\n      \
         -4.00 MiB  to 0 bytes in 0 blocks  no stack recorded\n"
    );
    let ran = run(&["snapshot", "diff", after.path(), after.path()]);
    assert!(ran.stdout.ends_with(": 0 bytes more\nno owner has more or less\n"), "{ran:?}");
}

#[test]
fn a_difference_for_programs() {
    let [before, after] = two_steps();
    let ran = run(&["snapshot", "diff", before.path(), after.path(), "--json"]);
    let found: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    let owner = &found["devices"][0]["owners"][0];
    assert_eq!(owner["owner"], "step train.py:10 < main train.py:3");
    assert_eq!(owner["change"], "grew");
    assert_eq!(owner["after"], serde_json::json!({ "bytes": 64 * MIB, "blocks": 3 }));
    assert_eq!(found["devices"][0]["before"]["bytes"], 34 * MIB);
}

#[test]
fn a_difference_needs_two_snapshots() {
    let file = pickled(&run_of_three());
    refused(&["diff", file.path()], "<B>");
    refused(&["diff", file.path(), "/nonexistent/x.pickle"], "cannot be read: ");
}

#[test]
fn files_that_are_no_snapshots() {
    refused(&["info", "/nonexistent/x.pickle"], "cannot be read: ");
    let foreign = Scratch::holding("a 0 512 0\n", ".pickle");
    refused(&["info", foreign.path()], &format!("error: snapshot '{}': it begins with", foreign.path()));
    let code = Scratch::holding(b"\x80\x02cos\nsystem\n.", ".pickle");
    refused(&["info", code.path()], "it asks for 'os.system'");
    refused(&["info"], "<FILE>");
    refused(&["view", foreign.path()], "it begins with");
}

#[test]
fn an_ending_that_names_no_format() {
    let file = pickled(&run_of_three());
    refused(
        &["convert", file.path(), "/tmp/x.html"],
        "unknown format of '/tmp/x.html'; use a name that ends in .json or .pickle",
    );
}

#[test]
fn a_file_that_cannot_be_written_leaves_the_older_one() {
    let file = pickled(&run_of_three());
    refused(&["convert", file.path(), "/nonexistent/x.json"], "error: cannot write to '/nonexistent/x.json': ");
    let older = Scratch::holding("older", ".json");
    let damaged = Scratch::holding(b"\x80\x02", ".pickle");
    refused(&["convert", damaged.path(), older.path()], "the pickle ends too early");
    assert_eq!(fs::read_to_string(older.path()).unwrap(), "older");
}

#[test]
fn a_dash_is_a_standard_stream() {
    let file = pickled(&run_of_three());
    let ran = run(&["snapshot", "view", file.path(), "-o", "-"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stdout.starts_with("<!"), "{}", &ran.stdout[..40.min(ran.stdout.len())]);
    let input = fs::File::open(file.path()).unwrap();
    let output = program::cachette(&["snapshot", "info", "-"]).stdin(input).output().unwrap();
    assert_eq!(program::Ran::of(&output).stdout, run(&["snapshot", "info", file.path()]).stdout);
    assert!(!fs::exists("-").unwrap(), "no file has that name");
}

#[test]
fn a_full_disk_says_so() {
    if !fs::exists("/dev/full").unwrap_or(false) {
        println!("skipped: there is no /dev/full here");
        return;
    }
    let file = pickled(&run_of_three());
    let ran = run(&["snapshot", "view", file.path(), "-o", "/dev/full"]);
    // The request was right, and the work failed.
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.stderr.contains("No space left on device (os error 28); free space there"), "{ran:?}");
    assert!(fs::exists("/dev/full").unwrap(), "it is still a device");
}
