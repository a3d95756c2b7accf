//! The bytes say what the snapshot said.

use std::io::Read;

use cachette_snapshot::{Event, Frame, StackId, Trace};
use flate2::read::ZlibDecoder;
use serde_json::{Value, json};

use super::*;

fn event(action: TraceAction, address: u64, bytes: u64, stack: StackId) -> Event {
    Event { address, bytes, stream: u64::MAX, time_us: 1_700_000_000_000_000, stack, action, ..Event::default() }
}

fn snapshot() -> Snapshot {
    let mut snapshot = Snapshot { pools: vec![PoolId(0, 0), PoolId(0, 3)], ..Snapshot::default() };
    let frame = |name: &str| Frame { name: name.to_owned(), file: "<b>\u{1F980}</b>".to_owned(), line: 7 };
    let stack = snapshot.stacks.add([frame("inner"), frame("outer")]);
    snapshot.texts.add("</script>");
    snapshot.settings.push(("table".to_owned(), Setting::Table(vec![("1".to_owned(), Setting::Integer(4))])));
    let events =
        vec![event(TraceAction::Alloc, 1 << 60, 300, stack), event(TraceAction::OutOfMemory, 5, u64::MAX, stack)];
    snapshot.traces.push(Trace { device: 3, events });
    snapshot
}

/// The head and the columns.
fn unpacked(snapshot: &Snapshot) -> (Value, Vec<u8>) {
    let bytes = compressed(snapshot).unwrap();
    let mut plain = Vec::new();
    ZlibDecoder::new(bytes.as_slice()).read_to_end(&mut plain).unwrap();
    let columns = plain.split_off(4);
    let length = u32::from_le_bytes(plain.try_into().unwrap()) as usize;
    (serde_json::from_slice(&columns[..length]).unwrap(), columns[length..].to_vec())
}

/// The bytes of one column.
fn column<'b>(bytes: &'b [u8], column: &Value) -> &'b [u8] {
    let number = |key: &str| usize::try_from(column[key].as_u64().unwrap()).unwrap();
    &bytes[number("offset")..][..number("bytes")]
}

#[test]
fn words_travel_as_they_are() {
    let (head, _) = unpacked(&snapshot());
    assert_eq!(head["frames"], json!([["inner", "<b>\u{1F980}</b>", 7], ["outer", "<b>\u{1F980}</b>", 7]]));
    assert_eq!(head["texts"], json!(["</script>"]));
    assert_eq!(head["pools"], json!(["default pool", "pool 0.3"]));
    assert_eq!(head["streams"], json!([u64::MAX.to_string()]), "no digit is lost");
    assert_eq!(head["settings"], json!([["table", { "1": 4 }]]));
}

#[test]
fn numbers_travel_in_columns() {
    let (head, bytes) = unpacked(&snapshot());
    let device = &head["devices"][0];
    assert_eq!((&device["number"], &device["events"]), (&json!(3), &json!(2)));
    assert_eq!(device["start_us"], json!(1_700_000_000_000_000_u64));
    assert_eq!(column(&bytes, &head["stack_lengths"]), [2]);
    assert_eq!(column(&bytes, &head["stack_frames"]), [0, 1]);
    assert_eq!(column(&bytes, &device["allocations"]["address"]), (1_u64 << 60).to_le_bytes());
    assert_eq!(column(&bytes, &device["allocations"]["bytes"]), [0xAC, 2]);
    assert_eq!(column(&bytes, &device["steps"]["op"]), [0, 5]);
    assert_eq!(column(&bytes, &device["steps"]["time"]), [0, 0]);
    assert_eq!(column(&bytes, &device["others"]["bytes"]).len(), 8, "as much as a browser holds");
}

#[test]
fn a_snapshot_of_nothing_has_one_device_with_nothing() {
    let (head, bytes) = unpacked(&Snapshot::default());
    assert_eq!(head["devices"].as_array().unwrap().len(), 1);
    assert!(bytes.is_empty());
}

/// Every letter of every word is inside the bytes, which are text that HTML leaves alone.
#[test]
fn no_word_of_a_user_reaches_the_html() {
    let mut page = Vec::new();
    crate::page(&snapshot(), &mut page).unwrap();
    let page = String::from_utf8(page).unwrap();
    let (before, rest) = page.split_once("id=\"data\">").unwrap();
    let (data, after) = rest.split_once("</script>").unwrap();
    assert!(data.bytes().all(|b| b.is_ascii_alphanumeric() || b"+/=".contains(&b)));
    let mut other = Vec::new();
    crate::page(&Snapshot::default(), &mut other).unwrap();
    let other = String::from_utf8(other).unwrap();
    let length = |part: &str| part.len();
    let (other_before, other_rest) = other.split_once("id=\"data\">").unwrap();
    let (_, other_after) = other_rest.split_once("</script>").unwrap();
    assert_eq!((length(before), length(after)), (length(other_before), length(other_after)));
}
