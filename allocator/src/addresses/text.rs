//! Saved addresses as text, and in files.
//!
//! ```text
//! cachette addresses 1
//! vendor NVIDIA
//! card NVIDIA H200
//! architecture sm_90
//! driver 13.0
//! page 2097152
//! segment 0x302000000 4194304                 first address, bytes
//! block 0x302000000 1048576 1000000 0         first address, bytes, requested bytes, stream
//! checksum 8d2c41aa                           of all lines before
//! ```

use std::fmt;
use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::str::FromStr;

use tempfile::NamedTempFile;

use super::{AddressRange, Addresses, AddressesProblem, SavedCard, SavedPlace};
use crate::error::Error;
use crate::size::UNIT;

const FIRST_WORDS: &str = "cachette addresses ";
const FORMAT: &str = "1";
/// The longest file that is read. A line of it is a segment or a block of at least 20 bytes.
const LONGEST: u64 = 1 << 30;
/// No driver has higher addresses.
const HIGHEST: u64 = 1 << 62;

impl fmt::Display for Addresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let body = Body(self).to_string();
        writeln!(f, "{body}checksum {:08x}", crc32fast::hash(body.as_bytes()))
    }
}

/// All lines but the last.
struct Body<'a>(&'a Addresses);

impl fmt::Display for Body<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Addresses { card: SavedCard { vendor, name, architecture, driver, page }, segments, blocks } = self.0;
        writeln!(f, "{FIRST_WORDS}{FORMAT}\nvendor {vendor}\ncard {name}\narchitecture {architecture}")?;
        writeln!(f, "driver {driver}\npage {page}")?;
        for AddressRange { base, bytes } in segments {
            writeln!(f, "segment {base:#x} {bytes}")?;
        }
        for SavedPlace { address, bytes, requested, stream } in blocks {
            writeln!(f, "block {address:#x} {bytes} {requested} {stream}")?;
        }
        Ok(())
    }
}

impl Addresses {
    /// Writes the addresses to a file, which has its old contents or all of the new ones at any moment.
    pub fn write_to(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        let path = path.as_ref();
        let write = || -> io::Result<()> {
            let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
            let mut file = NamedTempFile::new_in(folder.unwrap_or(Path::new(".")))?;
            file.write_all(self.to_string().as_bytes())?;
            file.persist(path)?;
            Ok(())
        };
        write().map_err(|error| failed(path, error.kind()))
    }

    /// Reads addresses from a file.
    pub fn read_from(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let read = || -> io::Result<String> {
            if fs::metadata(path)?.len() > LONGEST {
                return Err(io::ErrorKind::FileTooLarge.into());
            }
            fs::read_to_string(path)
        };
        match read() {
            Ok(text) => text.parse(),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => Err(AddressesProblem::NotAddresses.into()),
            Err(error) => Err(failed(path, error.kind())),
        }
    }
}

fn failed(path: &Path, kind: io::ErrorKind) -> Error {
    AddressesProblem::File { path: path.display().to_string(), kind }.into()
}

impl FromStr for Addresses {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Ok(read(text)?)
    }
}

fn read(text: &str) -> Result<Addresses, AddressesProblem> {
    let first = text.lines().next().unwrap_or_default();
    let format = first.strip_prefix(FIRST_WORDS).ok_or(AddressesProblem::NotAddresses)?;
    if format != FORMAT {
        return Err(AddressesProblem::OtherFormat(format.chars().take(16).collect()));
    }
    let body = text.strip_suffix('\n').and_then(|text| Some(text.rsplit_once('\n')?.0.len() + 1));
    let (body, last) = text.split_at(body.ok_or(AddressesProblem::Damaged)?);
    let sum = last.trim_end().strip_prefix("checksum ").and_then(|sum| u32::from_str_radix(sum, 16).ok());
    if sum != Some(crc32fast::hash(body.as_bytes())) {
        return Err(AddressesProblem::Damaged);
    }
    let mut lines = Lines { lines: body.lines(), line: 0 };
    lines.next();
    let card = SavedCard {
        vendor: lines.fact("vendor ")?,
        name: lines.fact("card ")?,
        architecture: lines.fact("architecture ")?,
        driver: lines.fact("driver ")?,
        page: lines.page()?,
    };
    lines.places(card)
}

/// The lines of a text, which have numbers.
struct Lines<'a> {
    lines: std::str::Lines<'a>,
    line: usize,
}

impl<'a> Lines<'a> {
    fn next(&mut self) -> Option<&'a str> {
        self.line += 1;
        self.lines.next()
    }

    const fn wrong<T>(&self, why: &'static str) -> Result<T, AddressesProblem> {
        Err(AddressesProblem::Malformed { line: self.line, why })
    }

    /// The rest of a line that begins with a word.
    fn fact(&mut self, word: &str) -> Result<String, AddressesProblem> {
        match self.next().and_then(|line| line.strip_prefix(word)) {
            Some(fact) => Ok(fact.to_owned()),
            None => self.wrong("a fact of the device is missing"),
        }
    }

    fn page(&mut self) -> Result<u64, AddressesProblem> {
        let page = self.fact("page ")?.parse().ok();
        match page.filter(|page: &u64| page.is_power_of_two() && (UNIT..=1 << 40).contains(page)) {
            Some(page) => Ok(page),
            None => self.wrong("the page is no power of two"),
        }
    }

    /// The segments and the blocks, which must be in order.
    fn places(mut self, card: SavedCard) -> Result<Addresses, AddressesProblem> {
        let (mut segments, mut blocks): (Vec<AddressRange>, Vec<SavedPlace>) = (Vec::new(), Vec::new());
        // The first segment that may contain the next block.
        let mut around = 0;
        while let Some(line) = self.next() {
            let mut words = line.split(' ');
            let word = words.next();
            let numbers: Vec<Option<u64>> = words.take(5).map(number).collect();
            match (word, &numbers[..]) {
                (Some("segment"), &[Some(base), Some(bytes)]) if blocks.is_empty() => {
                    let after = segments.last().map_or(card.page, AddressRange::end);
                    let whole = base.is_multiple_of(card.page) && bytes.is_multiple_of(card.page) && bytes > 0;
                    if !whole || base < after || base >= HIGHEST || bytes >= HIGHEST {
                        return self.wrong("a segment is no range of whole pages after the one before it");
                    }
                    segments.push(AddressRange { base, bytes });
                }
                (Some("block"), &[Some(address), Some(bytes), Some(requested), Some(stream)]) => {
                    let after = blocks.last().map_or(0, SavedPlace::end);
                    let whole = address.is_multiple_of(UNIT) && bytes.is_multiple_of(UNIT);
                    let Some(stream) = u32::try_from(stream).ok().filter(|_| whole && address >= after) else {
                        return self.wrong("a block is no range of whole units after the one before it");
                    };
                    if requested == 0 || requested > bytes || bytes >= HIGHEST {
                        return self.wrong("a block is smaller than what was requested, or empty");
                    }
                    let block = SavedPlace { address, bytes, requested, stream };
                    around += segments[around..].iter().take_while(|segment| segment.end() <= address).count();
                    if !segments.get(around).is_some_and(|it| it.base <= address && block.end() <= it.end()) {
                        return self.wrong("a block lies in no segment");
                    }
                    blocks.push(block);
                }
                _ => return self.wrong("it is no segment or block"),
            }
        }
        Ok(Addresses { card, segments, blocks })
    }
}

/// A number, with `0x` before sixteen digits.
fn number(text: &str) -> Option<u64> {
    let digits = |text: &str| text.starts_with(|digit: char| digit.is_ascii_hexdigit());
    match text.strip_prefix("0x") {
        Some(hexadecimal) if digits(hexadecimal) => u64::from_str_radix(hexadecimal, 16).ok(),
        Some(_) => None,
        None => text.parse().ok().filter(|_| digits(text)),
    }
}
