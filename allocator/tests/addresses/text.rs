//! Files of saved addresses: damaged ones are errors, and never a panic.

use cachette::addresses::{Addresses, AddressesProblem};
use cachette::hal::Ordinal;
use cachette_mutation::{Outcome, Run};

use crate::{Bed, MIB, problem};

/// The text with the checksum of its lines.
pub(crate) fn with_checksum(text: &str) -> String {
    let body = text.rfind("checksum ").map_or(text, |end| &text[..end]);
    format!("{body}checksum {:08x}\n", crc32fast::hash(body.as_bytes()))
}

fn saved() -> Addresses {
    let bed = Bed::new();
    assert_eq!(bed.allocator.device_info().ordinal, Ordinal(0));
    bed.saved(&[3 * MIB, 512, 700, 41 * MIB, 5 * MIB + 1, 4096], &bed.stream())
}

fn read(text: &str) -> AddressesProblem {
    problem(text.parse::<Addresses>())
}

#[test]
fn a_text_is_read_as_it_was_written() {
    let saved = saved();
    assert_eq!(saved.to_string().parse(), Ok(saved.clone()));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("addresses");
    saved.write_to(&path).unwrap();
    saved.write_to(&path).unwrap();
    assert_eq!(Addresses::read_from(&path), Ok(saved));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "no other file is left");
}

#[test]
fn a_cut_or_changed_file_is_an_error_at_every_byte() {
    let text = saved().to_string();
    for end in 0..text.len() {
        let cut = read(&text[..end]);
        let known = matches!(cut, AddressesProblem::Damaged | AddressesProblem::NotAddresses);
        assert!(known || matches!(cut, AddressesProblem::OtherFormat(_)), "{end}: {cut}");
    }
    for at in 0..text.len() {
        let mut changed = text.clone().into_bytes();
        changed[at] ^= 1;
        let changed = String::from_utf8(changed).unwrap();
        assert!(changed.parse::<Addresses>().is_err(), "{at}");
    }
}

#[test]
fn damaged_texts_with_a_right_checksum_are_consistent_or_refused() {
    let files = [saved().to_string().into_bytes()];
    let words: [&[u8]; 6] =
        [b"segment 0x200000 2097152\n", b"block 0x200000 512 512 0\n", b"0x", b"18446744073709551615", b" ", b"\n"];
    Run { files: &files, words: &words, mutants: 20_000 }.try_all(|mutant| {
        let text = with_checksum(&String::from_utf8_lossy(mutant));
        let Ok(read) = text.parse::<Addresses>() else { return Outcome::Refused };
        assert!(read.segments().windows(2).all(|pair| pair[0].end() <= pair[1].base));
        assert!(read.blocks().windows(2).all(|pair| pair[0].address + pair[0].bytes <= pair[1].address));
        let inside = |address| read.segments().iter().any(|it| (it.base..it.end()).contains(&address));
        assert!(read.blocks().iter().all(|it| inside(it.address) && inside(it.address + it.bytes - 1)));
        assert_eq!(read.to_string().parse(), Ok(read));
        Outcome::Accepted
    });
}

#[test]
fn a_wrong_line_is_named() {
    let text = saved().to_string();
    let line = |text: &str, word: &str| text.lines().find(|line| line.starts_with(word)).unwrap().to_owned();
    let (segment, block) = (line(&text, "segment"), line(&text, "block"));
    for (old, new, number) in [
        (segment.as_str(), "segment 0x1 2097152", 7),
        (segment.as_str(), "segment 0x200000 0", 7),
        (segment.as_str(), "segment 0x200000", 7),
        (block.as_str(), "block 0x200000 512 512 0", 8),
        (block.as_str(), "block 0x200000 512 512 4294967296", 8),
        (block.as_str(), "block 0x200000 +512 512 0", 8),
        (block.as_str(), "block 0x200000 512 513 0", 8),
        (block.as_str(), "block 0x200000 512 0 0", 8),
        ("page 2097152", "page 3", 6),
        ("card ", "cards ", 3),
    ] {
        let problem = read(&with_checksum(&text.replacen(old, new, 1)));
        assert!(matches!(problem, AddressesProblem::Malformed { line, .. } if line == number), "{new}: {problem}");
        assert!(problem.to_string().ends_with("save the addresses again"));
    }
}

#[test]
fn other_files_are_refused_with_a_remedy() {
    assert_eq!(read(""), AddressesProblem::NotAddresses);
    assert_eq!(read("{\"segments\": []}"), AddressesProblem::NotAddresses);
    assert_eq!(read("cachette addresses 2\n"), AddressesProblem::OtherFormat("2".to_owned()));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("none");
    let missing = problem(Addresses::read_from(&path));
    assert!(missing.to_string().contains("none"), "{missing}");
    std::fs::write(&path, [0xff, 0xfe]).unwrap();
    assert_eq!(problem(Addresses::read_from(&path)), AddressesProblem::NotAddresses);
    let bed = saved();
    let nowhere = problem(bed.write_to(folder.path().join("no/folder/file")));
    assert!(matches!(nowhere, AddressesProblem::File { .. }), "{nowhere}");
}
