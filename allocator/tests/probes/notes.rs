//! The ELF notes of the probes in this program's executable, as a tool reads them.

use std::fs;

/// The location of a probe in the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Note {
    pub(crate) provider: String,
    pub(crate) name: String,
    /// Where each argument is, such as `-8@%rax`: a signed word, in that register.
    pub(crate) arguments: Vec<String>,
    /// The address of the instruction, counted from where the program is loaded.
    pub(crate) location: usize,
    /// The address of the count of tools that listen, counted likewise.
    pub(crate) semaphore: usize,
}

/// All of them.
pub(crate) fn read() -> Vec<Note> {
    let path = std::env::current_exe().expect("the program has a file");
    let file = fs::read(path).expect("the file of a program that runs can be read");
    let mut rest = section(&file, ".note.stapsdt");
    let mut notes = Vec::new();
    while !rest.is_empty() {
        let (owner, bytes) = (word(rest, 0), word(rest, 4));
        assert_eq!(word(rest, 8), 3, "the kind of note");
        let first = 12 + owner.next_multiple_of(4);
        assert_eq!(&rest[12..12 + owner], b"stapsdt\0");
        notes.push(note(&rest[first..first + bytes]));
        let next = first + bytes.next_multiple_of(4);
        rest = &rest[next.min(rest.len())..];
    }
    notes
}

/// One, without its head: three addresses, the second of them for files that were linked anew, and three texts.
fn note(bytes: &[u8]) -> Note {
    let mut texts =
        bytes[24..].split(|byte| *byte == 0).map(|text| String::from_utf8(text.to_vec()).expect("names are text"));
    let mut text = || texts.next().expect("a note has three texts");
    Note {
        provider: text(),
        name: text(),
        arguments: text().split_whitespace().map(str::to_owned).collect(),
        location: place(bytes, 0),
        semaphore: place(bytes, 16),
    }
}

/// What a section of an ELF file of 64 bits holds.
fn section<'a>(file: &'a [u8], name: &str) -> &'a [u8] {
    assert_eq!(&file[..5], b"\x7fELF\x02");
    let (headers, bytes) = (place(file, 40), usize::from(short(file, 58)));
    let header = |number: u16| &file[headers + bytes * usize::from(number)..][..bytes];
    let content = |header: &[u8]| &file[place(header, 24)..][..place(header, 32)];
    let names = content(header(short(file, 62)));
    let is_named = |header: &&[u8]| {
        let found = names[word(header, 0)..].split(|byte| *byte == 0).next();
        found == Some(name.as_bytes())
    };
    let found = (0..short(file, 60)).map(header).find(is_named);
    content(found.unwrap_or_else(|| panic!("there is no section {name}")))
}

fn short(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes[at..at + 2].try_into().expect("two bytes"))
}

fn word(bytes: &[u8], at: usize) -> usize {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes")) as usize
}

fn place(bytes: &[u8], at: usize) -> usize {
    usize::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}
