//! Files that are cut short, damaged, foreign or hostile give an error that says where and what to do.

mod sample;

use std::fs;
use std::io::Write;

use cachette_snapshot::{Limits, Snapshot, SnapshotProblem};
use sample::{as_json, as_pickle, small};
use tempfile::NamedTempFile;

/// Asserts that a pickle is refused with `expected` in the message.
#[track_caller]
fn refused(bytes: &[u8], expected: &str) {
    let error = Snapshot::read_pickle(bytes).expect_err("it is refused").to_string();
    assert!(error.contains(expected), "{error}");
}

#[test]
fn a_file_that_is_cut_short_anywhere_is_an_error() {
    let (pickle, json) = (as_pickle(&small()), as_json(&small()));
    for length in 0..pickle.len() {
        let error = Snapshot::read_pickle(&pickle[..length]).unwrap_err();
        let text = error.to_string();
        let expected = if length == 0 {
            "the file is empty".to_owned()
        } else {
            format!("at byte {length}: the pickle ends too early; the file is cut short")
        };
        assert!(text.contains(&expected), "{length}: {text}");
    }
    // The last byte is the end of the line.
    for length in 0..json.len() - 1 {
        let error = Snapshot::read_json(&json[..length]).unwrap_err();
        assert!(error.to_string().contains("EOF"), "{length}: {error}");
    }
}

#[test]
fn nothing_in_a_pickle_is_run() {
    refused(
        b"\x80\x02cos\nsystem\nX\x02\x00\x00\x00ls\x85R.",
        "at byte 2: it asks for 'os.system', and nothing in a pickle is ever run; load it where you trust it",
    );
    refused(b"\x80\x04\x8c\x08builtins\x8c\x04eval\x93.", "at byte 18: it asks for 'builtins.eval', and nothing");
    refused(b"\x80\x04N)R.", "at byte 4: it asks for something to be called");
    refused(b"\x80\x02(ios\nsystem\n.", "'os.system'");
    refused(b"\x80\x04\x93.", "it asks for '?.?'");
}

#[test]
fn a_length_beyond_the_file_takes_no_memory() {
    for prefix in [
        &b"\x80\x04X\xff\xff\xff\xff"[..],
        b"\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\xff",
        b"\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\x7f",
        b"\x80\x04\x8b\xff\xff\xff\x7f",
    ] {
        refused(prefix, "the pickle ends too early");
    }
    refused(b"\x80\x02Nr\xff\xff\xff\xff.", "at byte 3: a memo is numbered beyond what was kept");
}

#[test]
fn values_that_do_not_fit_their_operation() {
    for (bytes, expected) in [
        (&b"\x80\x02."[..], "at byte 2: an operation has too few values"),
        (b"\x80\x02t.", "a container ends that did not begin"),
        (b"\x80\x02(.", "an operation has too few values"),
        (b"\x80\x02NN\x87.", "an operation has too few values"),
        (b"\x80\x02NNa.", "there is no container to fill"),
        (b"\x80\x02](NNu.", "there is no container to fill"),
        (b"\x80\x02}(Nu.", "a dict has a key without a value"),
        (b"\x80\x02(Nd.", "a dict has a key without a value"),
        (b"\x80\x02h\x05.", "a memo is asked for that was not kept"),
        (b"\x80\x02\xfe.", "at byte 2: 0xfe is no operation"),
        (b"\x80\x06N.", "a pickle of protocol 6; expected one of 2 to 5"),
        (b"N.", "at byte 0: 0x4e is no operation"),
        (b"\x80\x02((0000.", "an operation has too few values"),
    ] {
        refused(bytes, expected);
    }
}

#[test]
fn data_that_is_no_snapshot_says_what_is_missing() {
    for (bytes, expected) in [
        (&b"\x80\x02N."[..], "the pickle is None, no snapshot; expected what torch.cuda.memory._snapshot() gives"),
        (b"\x80\x02}.", "the pickle has no 'segments'"),
        (b"\x80\x04}\x8c\x08segments]}as.", "at byte 14: a segment has no 'address'"),
        (b"\x80\x04}(\x8c\x08segmentsK\x05u.", "'segments' is a whole number, no list"),
        (b"\x80\x04}(\x8c\x08segments]\x8c\x0ddevice_traces]]}aau.", "an event has no 'action'"),
        (
            b"\x80\x04}(\x8c\x08segments]\x8c\x0ddevice_traces]]}\x8c\x06action\x8c\x04fizzsaau.",
            "'action' 'fizz' is not known",
        ),
    ] {
        refused(bytes, expected);
    }
}

/// Lists of lists of lists, each ten times in the next: ten to the ninth events in a few hundred bytes.
#[test]
fn sharing_does_not_multiply() {
    let mut bytes = b"\x80\x04}(\x8c\x08segments]\x8c\x0ddevice_traces](".to_vec();
    // One list of a thousand events, and a million devices that share it.
    bytes.extend(b"](");
    let event = b"}(\x8c\x06action\x8c\x05alloc\x8c\x04addrK\x01\x8c\x04sizeK\x01uq\x01";
    bytes.extend(event);
    bytes.extend([b'h', 1].repeat(9_999));
    bytes.extend(b"eq\x02");
    bytes.extend([b'h', 2].repeat(100_000));
    bytes.extend(b"eu.");
    refused(&bytes, "bytes of memory; record a shorter history");
    let limits = Limits { items: 50_000, ..Limits::DEFAULT };
    let error = Snapshot::read_pickle_within(&*bytes, &limits).unwrap_err();
    assert!(
        error.to_string().contains("there are more events, blocks, segments and annotations than 50000"),
        "{error}"
    );
}

#[test]
fn settings_that_hold_themselves_come_to_an_end() {
    // Each of thirty dicts has the one before twice.
    let mut bytes = b"\x80\x04}(\x8c\x08segments]\x8c\x12allocator_settings}q\x00".to_vec();
    for level in 1..=12_u8 {
        let before = level - 1;
        bytes.extend([b'0', b'}', b'(', 0x8c, 1, b'a', b'h', before]);
        bytes.extend([0x8c, 1, b'b', b'h', before, b'u', b'q', level]);
    }
    bytes.extend(b"u.");
    refused(&bytes, "more settings, or deeper ones, than 4096");
    refused(
        b"\x80\x04}(\x8c\x08segments]\x8c\x12allocator_settings}q\x00\x8c\x01ah\x00su.",
        "more settings, or deeper ones,",
    );
}

#[test]
fn a_text_that_is_shared_is_paid_for_each_time_it_is_copied() {
    let mut bytes = b"\x80\x04}(\x8c\x08segments]\x8c\x14external_annotations](".to_vec();
    bytes.extend(b"}(\x8c\x04nameq\x05X\xa0\x86\x01\x00");
    bytes.extend(b"x".repeat(100_000));
    bytes.extend(b"q\x06u");
    bytes.extend(b"}(h\x05h\x06u".repeat(10_000));
    bytes.extend(b"eu.");
    refused(&bytes, "bytes of memory; record a shorter history");
}

#[test]
fn nesting_has_an_end() {
    let bytes = [&b"\x80\x02"[..], &b"(".repeat(1 << 20)].concat();
    refused(&bytes, "containers inside of each other than 128");
    let lists = [&b"\x80\x02"[..], &b"]q\x00"[..], &b"h\x00a"[..], b"."].concat();
    refused(&lists, "an entry of 'segments' is a list, no dict");
    let deep =
        [&b"{\"format\":\"cachette-snapshot\",\"version\":1,\"settings\":"[..], &b"{\"a\":".repeat(1 << 16)].concat();
    let error = Snapshot::read_json(&*deep).unwrap_err().to_string();
    assert!(error.contains("recursion limit exceeded"), "{error}");
}

#[test]
fn a_file_beyond_the_limit_is_refused_by_its_size() {
    let limits = Limits { bytes: 100, ..Limits::DEFAULT };
    let pickle = Snapshot::read_pickle_within(&*as_pickle(&small()), &limits);
    for error in [pickle.unwrap_err(), Snapshot::read_json_within(&*as_json(&small()), &limits).unwrap_err()] {
        assert!(error.to_string().contains("larger than 100 bytes"), "{error}");
    }
    let limits = Limits { memory: 1000, ..Limits::DEFAULT };
    let error = Snapshot::read_pickle_within(&*as_pickle(&small()), &limits).unwrap_err();
    assert!(error.to_string().contains("more than 1000 bytes of memory"), "{error}");
}

#[test]
fn json_that_is_no_snapshot_or_names_what_is_not_there() {
    for (text, expected) in [
        ("{}", "missing field `format`"),
        ("{\"format\":\"x\"}", "the format is not 'cachette-snapshot'"),
        (
            "{\"format\":\"cachette-snapshot\",\"version\":2,\"new\":1}",
            "version 2 is not known here, only 1; use a newer cachette",
        ),
        (
            "{\"format\":\"cachette-snapshot\",\"version\":1,\"traces\":[{\"device\":0,\"events\":[[0,1,2,3]]}]}",
            "a row of 5 to 10 whole numbers",
        ),
        (
            "{\"format\":\"cachette-snapshot\",\"version\":1,\"traces\":[{\"device\":0,\"events\":[[10,1,2,3,4]]}]}",
            "10 is no action",
        ),
        (
            "{\"format\":\"cachette-snapshot\",\"version\":1,\"traces\":[{\"device\":0,\"events\":[[0,1,2,3,4,7]]}]}",
            "an event names stack 7, but there are only 1",
        ),
        (
            "{\"format\":\"cachette-snapshot\",\"version\":1,\"stacks\":[[3]]}",
            "a stack names frame 3, but there are only 0",
        ),
    ] {
        let error = Snapshot::read_json(text.as_bytes()).unwrap_err().to_string();
        assert!(error.contains(expected), "{text}: {error}");
    }
}

fn file_of(content: &[u8]) -> NamedTempFile {
    let file = NamedTempFile::new().expect("there is room for a file");
    fs::write(&file, content).expect("the file is written");
    file
}

fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    packer.write_all(bytes).expect("a vector takes all");
    packer.finish().expect("a vector takes all")
}

#[test]
fn a_packed_file_that_expands_like_no_snapshot_is_not_read() {
    // A pickle of nothing but markers, and JSON of nothing but spaces: 32 MiB of either are packed into 32 KiB.
    for (start, filler) in [(&b"\x80\x02"[..], b'('), (b"{", b' ')] {
        let mut bomb = vec![filler; 32 << 20];
        bomb[..start.len()].copy_from_slice(start);
        let file = file_of(&packed(&bomb));
        let error = Snapshot::read(file.path()).unwrap_err();
        assert!(matches!(error.problem, SnapshotProblem::Expands { fold: 256 }), "{error}");
        assert!(error.to_string().ends_with("gunzip it first"), "{error}");
    }
}

#[test]
fn a_file_says_by_itself_what_it_is() {
    let (pickle, json) = (as_pickle(&small()), as_json(&small()));
    for content in [packed(&pickle), packed(&json), pickle.clone(), json] {
        let file = file_of(&content);
        assert_eq!(Snapshot::read(file.path()).unwrap().segments, small().segments);
        assert!(Snapshot::is_likely(file.path()));
    }
    let whole = packed(&pickle);
    for (content, expected) in [
        (&b""[..], "the file is empty; write the snapshot again"),
        (b"a 0 512 0\n", "it begins with 'a 0 512 ', which is neither JSON nor a pickle"),
        (b"PK\x03\x04rest", "a zip archive, as torch.save writes"),
        (b"\x7fELF", "it begins with '\\x7fELF'"),
        (&whole[..whole.len() / 2], "the packed data end too early"),
    ] {
        let file = file_of(content);
        let error = Snapshot::read(file.path()).unwrap_err().to_string();
        let start = format!("snapshot '{}': ", file.path().display());
        assert!(error.starts_with(&start) && error.contains(expected), "{error}");
    }
    let missing = Snapshot::read("/nonexistent/x.pickle".as_ref()).unwrap_err();
    assert!(missing.to_string().contains("cannot be read: "), "{missing}");
}

#[test]
fn a_full_disk_is_an_error() {
    let Ok(full) = fs::OpenOptions::new().write(true).open("/dev/full") else {
        println!("skipped: there is no /dev/full here");
        return;
    };
    for written in [small().write_json(&full), small().write_pickle(&full)] {
        assert_eq!(written.unwrap_err().kind(), std::io::ErrorKind::StorageFull);
    }
}

#[test]
fn a_device_beyond_all_lists_is_refused_before_they_are_written() {
    let mut snapshot = small();
    snapshot.traces[0].device = u32::MAX;
    let error = snapshot.write_pickle(std::io::sink()).unwrap_err().to_string();
    assert!(error.contains("device 4294967295 is not below 1024; write it as JSON"), "{error}");
}
