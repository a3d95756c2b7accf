//! No file makes its reader take more memory, or count more items, than the limits allow.

mod sample;

use cachette_mutation::{Counting, Usage, usage};
use cachette_snapshot::{Limits, Snapshot};
use sample::{as_json, as_pickle, small};

#[global_allocator]
static COUNTING: Counting = Counting;

/// Memory that a test allows.
const MEMORY: usize = 1 << 20;
/// Entries of a table that are longer than JSON of so much memory may be.
const MOST: usize = 1 << 15;
/// What a reader has besides: its buffers, and a text that it is reading.
const BESIDES: usize = 64 << 10;

/// A file in JSON with one table. In an entry `#` stands for its number, and `~` for its digits, as frames.
fn json(table: &str, entry: &str, count: usize) -> Vec<u8> {
    let numbered = |number: usize| match entry {
        "[~]" => format!("{:?}", number.to_string().into_bytes()).replace(' ', ""),
        _ => entry.replace('#', &number.to_string()),
    };
    let entries = (0..count).map(numbered).collect::<Vec<_>>().join(",");
    let (open, close) = match table {
        "settings" => ("{", "}"),
        _ => ("[", "]"),
    };
    let nested = |key: &str, entries: &str| match key {
        "blocks" => format!(
            "\"segments\":[{{\"device\":0,\"address\":0,\"bytes\":0,\"stream\":0,\"kind\":\"small\",\"pool\":0,\
             \"elastic\":false,\"order\":0,\"stack\":0,\"blocks\":[{entries}]}}]"
        ),
        "events" => format!("\"traces\":[{{\"device\":0,\"events\":[{entries}]}}]"),
        "stacks" => {
            let frames: Vec<String> = (0..64).map(|line| format!("[\"f\",\"\",{line}]")).collect();
            format!("\"frames\":[{}],\"stacks\":[{entries}]", frames.join(","))
        }
        "frames of a stack" => {
            format!("\"frames\":[[\"f\",\"\",0]],\"stacks\":[[{entries}]]")
        }
        _ => format!("\"{key}\":{open}{entries}{close}"),
    };
    let start = "{\"format\":\"cachette-snapshot\",\"version\":1,";
    format!("{start}{}}}", nested(table, &entries)).into_bytes()
}

/// Every table of a file, with a short entry.
const TABLES: [(&str, &str); 13] = [
    ("pools", "[0,0]"),
    ("texts", "\"\""),
    ("texts", "\"#\""),
    ("frames", "[\"\",\"\",0]"),
    ("frames", "[\"#\",\"\",0]"),
    ("stacks", "[]"),
    ("stacks", "[~]"),
    ("frames of a stack", "0"),
    ("annotations", "[\"\",0,0,0]"),
    (
        "segments",
        "{\"device\":0,\"address\":0,\"bytes\":0,\"stream\":0,\"kind\":\"small\",\"pool\":0,\"elastic\":false,\
         \"order\":0,\"stack\":0,\"blocks\":[]}",
    ),
    ("blocks", "[0,0,0,0]"),
    ("traces", "{\"device\":0,\"events\":[]}"),
    ("events", "[0,0,0,0,0]"),
];

fn read_json(file: &[u8], memory: usize) -> (Result<Snapshot, String>, Usage) {
    let limits = Limits { memory: memory as u64, ..Limits::DEFAULT };
    let read = || Snapshot::read_json_within(file, &limits).map_err(|error| error.to_string());
    usage(read)
}

#[test]
fn no_table_in_json_takes_more_memory_than_is_allowed() {
    for (table, entry) in TABLES {
        let (read, used) = read_json(&json(table, entry, MOST), MEMORY);
        let error = read.expect_err(table);
        assert!(error.contains(": it is larger than 26214 bytes; record"), "{table}: {error}");
        assert!(used.peak <= MEMORY + BESIDES, "{table}: {used:?}");
    }
}

#[test]
fn json_within_its_length_takes_no_more_memory_than_is_allowed() {
    for (table, entry) in TABLES {
        let (mut accepted, mut refused) = (0, MOST);
        while refused - accepted > 64 {
            let count = usize::midpoint(accepted, refused);
            let (read, used) = read_json(&json(table, entry, count), MEMORY);
            assert!(used.peak <= MEMORY + BESIDES, "{table}, {count}: {used:?}");
            if read.is_ok() {
                accepted = count;
            } else {
                refused = count;
            }
        }
        assert!(accepted > 100, "{table}: {accepted}");
    }
}

#[test]
fn items_in_json_are_counted_over_all_tables() {
    let limits = Limits { items: 5, ..Limits::DEFAULT };
    for (table, entry) in TABLES {
        // A segment is an item itself.
        let own = usize::from(table == "blocks");
        let counted = ["annotations", "segments", "blocks", "events"].contains(&table);
        let read = |count| Snapshot::read_json_within(&*json(table, entry, count), &limits);
        read(5 - own).expect(table);
        let more = read(6 - own).map_err(|error| error.to_string());
        let expected = "there are more events, blocks, segments and annotations than 5; record";
        match more {
            Ok(_) => assert!(!counted, "{table}"),
            Err(error) => assert!(counted && error.contains(expected), "{table}: {error}"),
        }
    }
    let file = as_json(&small());
    let items = |items| Limits { items, ..Limits::DEFAULT };
    assert!(Snapshot::read_json_within(&*file, &items(10)).is_ok());
    assert!(Snapshot::read_json_within(&*file, &items(9)).is_err());
    let file = as_pickle(&small());
    assert!(Snapshot::read_pickle_within(&*file, &items(10)).is_ok());
    assert!(Snapshot::read_pickle_within(&*file, &items(9)).is_err());
}

#[test]
fn settings_in_json_are_as_few_as_in_a_pickle() {
    let entry = |number: usize| format!("\"{number}\":1");
    let of = |count: usize| {
        let entries: Vec<String> = (0..count).map(entry).collect();
        json("settings", &entries.join(","), 1)
    };
    assert!(Snapshot::read_json(&*of(4096)).is_ok());
    let deep = |depth: usize| json("settings", &"\"a\":{".repeat(depth), 1);
    let closed = |depth: usize| [deep(depth), b"}".repeat(depth)].concat();
    // The file's own braces close too early, and the rest makes up for it.
    assert!(Snapshot::read_json(&*closed(16)).is_ok());
    for file in [of(4097), closed(18)] {
        let error = Snapshot::read_json(&*file).unwrap_err().to_string();
        assert!(error.contains("more settings, or deeper ones, than 4096"), "{error}");
    }
}

/// One long text, which every entry of a long dict names, would be copied each time.
#[test]
fn a_text_that_a_dict_names_many_times_is_copied_once() {
    let mut file = b"\x80\x04}(\x8c\x08segments](}(\x8c\x07addressK\x01\x8c\x0atotal_sizeK\x01".to_vec();
    file.extend(b"\x8c\x06frames](}(\x8c\x04nameq\x00X\x00\x00\x01\x00");
    file.extend(b"x".repeat(1 << 16));
    file.extend(b"q\x01");
    file.extend(b"h\x00h\x01".repeat(1 << 14));
    file.extend(b"ueueu.");
    let (read, used) = usage(|| Snapshot::read_pickle(&*file));
    assert_eq!(read.unwrap().stacks.frames()[0].name.len(), 1 << 16);
    assert!(used.total < 64 * file.len(), "{used:?} of {}", file.len());
}

/// A short file can refer to one long dict many times.
#[test]
fn a_dict_that_many_events_share_is_not_read_without_end() {
    const MANY: usize = 1 << 13;
    let event = b"\x8c\x06action\x8c\x05alloc\x8c\x04addrK\x01\x8c\x04sizeK\x01";
    let start = b"\x80\x04}(\x8c\x08segments]\x8c\x0ddevice_traces](](}(";
    let of = |entries: usize, events: usize| {
        let (entries, events) = (b"NN".repeat(entries), b"h\x00".repeat(events - 1));
        [&start[..], event, &entries, b"uq\x00", &events, b"eeu."].concat()
    };
    let read = |entries, events| Snapshot::read_pickle(&*of(entries, events));
    assert_eq!(read(1, MANY).unwrap().traces[0].events.len(), MANY);
    assert_eq!(read(MANY, 1).unwrap().traces[0].events.len(), 1);
    let error = read(MANY, MANY).unwrap_err().to_string();
    assert!(error.contains("there are more entries in shared dicts than "), "{error}");
}

#[test]
fn an_error_does_not_repeat_a_long_text_of_the_file() {
    let file = format!("{{\"format\":\"cachette-snapshot\",\"version\":\"{}\"}}", "é".repeat(1 << 16));
    let error = Snapshot::read_json(file.as_bytes()).unwrap_err().to_string();
    assert!(error.len() < 1000 && error.contains(" at line 1 column "), "{} bytes", error.len());
}
