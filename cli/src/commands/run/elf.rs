//! Libraries as files: what one says to the loader, and one without code that leads to others.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

const HEADER: usize = 64;
const PROGRAM_HEADER: usize = 56;
const DYNAMIC_ENTRY: usize = 16;
const SYMBOL: usize = 24;

const PT_LOAD: u32 = 1;
const PT_DYNAMIC: u32 = 2;
const PT_GNU_STACK: u32 = 0x6474_e551;
const READ_WRITE: u32 = 6;

const DT_NULL: u64 = 0;
const DT_NEEDED: u64 = 1;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
const DT_STRSZ: u64 = 10;
const DT_SYMENT: u64 = 11;
const DT_SONAME: u64 = 14;
const DT_VERSYM: u64 = 0x6fff_fff0;
const DT_VERDEF: u64 = 0x6fff_fffc;
const DT_VERDEFNUM: u64 = 0x6fff_fffd;

/// What a library says to the loader.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Described {
    /// Its own name.
    pub(super) soname: Option<String>,
    /// The versions of its symbols, without the one that names the library.
    pub(super) versions: Vec<String>,
    /// Every name in it, each ended by a zero.
    strings: Vec<u8>,
}

impl Described {
    /// Whether it mentions a symbol, library or version.
    pub(super) fn names(&self, name: &str) -> bool {
        self.strings.split(|byte| *byte == 0).any(|known| known == name.as_bytes())
    }
}

/// Whether a file is a program or a library of this system.
pub(super) fn is_program(bytes: &[u8]) -> bool {
    // 64 bits, least significant byte first.
    bytes.starts_with(b"\x7fELF\x02\x01")
}

/// What a library or program says to the loader; `None` if it is another file, or needs no loader.
pub(super) fn describe(bytes: &[u8]) -> Option<Described> {
    let file = File(bytes);
    let segments = file.segments().filter(|_| is_program(bytes))?;
    let dynamic = segments.iter().find(|segment| segment.kind == PT_DYNAMIC)?;
    let place = |address: u64| {
        let segment = segments.iter().find(|it| it.kind == PT_LOAD && address.wrapping_sub(it.address) < it.bytes)?;
        usize::try_from(address - segment.address + segment.offset).ok()
    };
    let start = usize::try_from(dynamic.offset).ok()?;
    let entries = (start..).step_by(DYNAMIC_ENTRY).map_while(|at| Some((file.long(at)?, file.long(at + 8)?)));
    let entries: Vec<_> = entries.take_while(|(tag, _)| *tag != DT_NULL).collect();
    let value = |tag| entries.iter().find(|(it, _)| *it == tag).map(|(_, value)| *value);
    let (from, size) = (place(value(DT_STRTAB)?)?, usize::try_from(value(DT_STRSZ)?).ok()?);
    let strings = bytes.get(from..from.checked_add(size)?)?;
    let text = |at: u64| {
        let rest = strings.get(usize::try_from(at).ok()?..)?;
        String::from_utf8(rest.split(|byte| *byte == 0).next()?.to_vec()).ok()
    };
    let mut versions = Vec::new();
    let mut at = value(DT_VERDEF).and_then(place);
    while let Some((is_base, name, next)) = at.and_then(|at| file.version(at)) {
        versions.extend(text(name).filter(|_| !is_base));
        // The last one has no next.
        at = at.and_then(|at| at.checked_add(next)).filter(|_| next > 0);
    }
    Some(Described { soname: value(DT_SONAME).and_then(text), versions, strings: strings.to_vec() })
}

/// The bytes of a file; what lies beyond its end is `None`.
#[derive(Clone, Copy)]
struct File<'a>(&'a [u8]);

/// A part of a file and where it is loaded.
struct Segment {
    kind: u32,
    offset: u64,
    address: u64,
    bytes: u64,
}

impl File<'_> {
    fn short(self, at: usize) -> Option<u16> {
        Some(u16::from_le_bytes(self.0.get(at..at.checked_add(2)?)?.try_into().ok()?))
    }

    fn word(self, at: usize) -> Option<u32> {
        Some(u32::from_le_bytes(self.0.get(at..at.checked_add(4)?)?.try_into().ok()?))
    }

    fn long(self, at: usize) -> Option<u64> {
        Some(u64::from_le_bytes(self.0.get(at..at.checked_add(8)?)?.try_into().ok()?))
    }

    fn segments(self) -> Option<Vec<Segment>> {
        let first = usize::try_from(self.long(32)?).ok()?;
        let segment = |number: u16| {
            let at = first.checked_add(usize::from(number) * PROGRAM_HEADER)?;
            let (offset, address) = (self.long(at + 8)?, self.long(at + 16)?);
            Some(Segment { kind: self.word(at)?, offset, address, bytes: self.long(at + 32)? })
        };
        (0..self.short(56)?).map(segment).collect()
    }

    /// A version: whether it names the library, the place of its name, and the distance to the next.
    fn version(self, at: usize) -> Option<(bool, u64, usize)> {
        let name = self.word(at.checked_add(self.word(at + 12)? as usize)?)?;
        Some((self.short(at + 2)? & 1 == 1, name.into(), self.word(at + 16)? as usize))
    }
}

/// A library without code, called `soname`, that needs others in this order.
///
/// The loader searches it for a symbol, then the others. It has the versions that programs expect of `soname`.
pub(super) fn forwarding(soname: &str, needed: &[&Path], versions: &[String]) -> Vec<u8> {
    let mut strings = Strings(vec![0]);
    let own = strings.add(soname.as_bytes());
    let mut entries: Vec<(u64, u64)> =
        needed.iter().map(|path| (DT_NEEDED, strings.add(path.as_os_str().as_bytes()).into())).collect();
    entries.push((DT_SONAME, own.into()));
    let mut defined = vec![(soname, own)];
    defined.extend(versions.iter().map(|version| (version.as_str(), strings.add(version.as_bytes()))));
    let definitions = define(&defined);

    // Everything lies in one segment, in this order.
    let more = 5 + usize::from(!versions.is_empty()) * 3;
    let dynamic = HEADER + 3 * PROGRAM_HEADER;
    let symbols = dynamic + (entries.len() + more) * DYNAMIC_ENTRY;
    let symbol_versions = symbols + SYMBOL;
    let version_table = symbol_versions + 8;
    let text = version_table + definitions.len();
    entries.extend([
        (DT_STRTAB, text as u64),
        (DT_STRSZ, strings.0.len() as u64),
        (DT_SYMTAB, symbols as u64),
        (DT_SYMENT, SYMBOL as u64),
    ]);
    if !versions.is_empty() {
        entries.extend([
            (DT_VERSYM, symbol_versions as u64),
            (DT_VERDEF, version_table as u64),
            (DT_VERDEFNUM, defined.len() as u64),
        ]);
    }
    entries.push((DT_NULL, 0));

    let mut out = header();
    let all = (text + strings.0.len()) as u64;
    // The loader writes into the dynamic section, and the stack needs no code.
    segment(&mut out, PT_LOAD, 0, all, 0x1000);
    segment(&mut out, PT_DYNAMIC, dynamic as u64, (symbols - dynamic) as u64, 8);
    segment(&mut out, PT_GNU_STACK, 0, 0, 16);
    for (tag, value) in entries {
        out.extend(tag.to_le_bytes());
        out.extend(value.to_le_bytes());
    }
    // The first symbol is none, and has no version.
    out.resize(version_table, 0);
    out.extend(definitions);
    out.extend(strings.0);
    out
}

/// Names, each ended by a zero.
struct Strings(Vec<u8>);

impl Strings {
    #[expect(clippy::cast_possible_truncation, reason = "a few names and paths are far below 4 GiB")]
    fn add(&mut self, text: &[u8]) -> u32 {
        let at = self.0.len() as u32;
        self.0.extend(text);
        self.0.push(0);
        at
    }
}

/// The header of a library for this machine.
fn header() -> Vec<u8> {
    const LIBRARY: u16 = 3;
    const MACHINE: u16 = if cfg!(target_arch = "aarch64") { 183 } else { 62 };
    let mut out = b"\x7fELF\x02\x01\x01".to_vec();
    out.resize(16, 0);
    out.extend([LIBRARY.to_le_bytes(), MACHINE.to_le_bytes()].concat());
    out.extend(1_u32.to_le_bytes());
    // No entry, program headers after this header, no sections.
    out.extend([0, HEADER as u64, 0].map(u64::to_le_bytes).concat());
    out.extend(0_u32.to_le_bytes());
    // Of this header and of three program headers.
    let sizes = [64, 56, 3, 0, 0, 0];
    out.extend(sizes.map(u16::to_le_bytes).concat());
    out
}

fn segment(out: &mut Vec<u8>, kind: u32, offset: u64, bytes: u64, alignment: u64) {
    out.extend([kind.to_le_bytes(), READ_WRITE.to_le_bytes()].concat());
    out.extend([offset, offset, offset, bytes, bytes, alignment].map(u64::to_le_bytes).concat());
}

/// The table of versions: each has a number, a hash and the place of its name. The first names the library.
fn define(versions: &[(&str, u32)]) -> Vec<u8> {
    const BYTES: u32 = 20;
    const NAME_BYTES: u32 = 8;
    let mut out = Vec::new();
    for (number, (version, name)) in (1_u16..).zip(versions) {
        let is_last = usize::from(number) == versions.len();
        out.extend([1, u16::from(number == 1), number, 1].map(u16::to_le_bytes).concat());
        let next = if is_last { 0 } else { BYTES + NAME_BYTES };
        out.extend([hash(version), BYTES, next, *name, 0].map(u32::to_le_bytes).concat());
    }
    out
}

/// The hash by which the loader compares names.
fn hash(name: &str) -> u32 {
    name.bytes().fold(0, |hash: u32, byte| {
        let sum = (hash << 4).wrapping_add(byte.into());
        let high = sum & 0xf000_0000;
        (sum ^ (high >> 24)) & !high
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn library() -> Vec<u8> {
        let needed = [Path::new("/a/front.so"), Path::new("/b/driver.so.1")];
        forwarding("libdriver.so.1", &needed, &["hip_4.2".to_owned(), "hip_6.0".to_owned()])
    }

    #[test]
    fn a_library_says_what_it_was_made_with() {
        let described = describe(&library()).unwrap();
        assert_eq!(described.soname.as_deref(), Some("libdriver.so.1"));
        assert_eq!(described.versions, ["hip_4.2", "hip_6.0"]);
        assert!(described.names("/a/front.so") && described.names("/b/driver.so.1"));
        assert!(!described.names("front.so"));
    }

    #[test]
    fn versions_are_hashed_as_the_loader_does() {
        assert_eq!(hash("GLIBC_2.2.5"), 0x0969_1a75);
        assert_eq!(hash(""), 0);
    }

    #[test]
    fn this_program_needs_a_loader_and_other_files_do_not() {
        let program = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        assert!(describe(&program).is_some_and(|program| program.names("libc.so.6")));
        for bytes in [&b""[..], b"#!/bin/sh\n", b"\x7fELF\x02\x01", b"\x7fELF\x01\x01\x01"] {
            assert_eq!(describe(bytes), None);
        }
    }

    #[test]
    fn a_damaged_library_is_read_without_a_panic() {
        let whole = library();
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 0xff;
            let _ = describe(&damaged);
            let _ = describe(&whole[..at]);
        }
    }
}
