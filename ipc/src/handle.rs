//! The handle: the bytes that name exported memory to another process.

#![forbid(unsafe_code)]

use std::fmt;
use std::io;

use crate::error::OpenError;
use crate::socket;

/// The first bytes of every handle.
const MAGIC: [u8; 8] = *b"cachshar";
/// The version of the layout and of the protocol.
const VERSION: u8 = 4;
/// Bytes of a handle of this version: 100 of fields, and the checksum.
const LENGTH: usize = 104;
/// Bytes of the checksum, which ends a handle.
const CHECKSUM: usize = 4;

/// The secret that proves knowledge of the handle: 128 random bits.
#[derive(Clone, Copy)]
pub struct Key(pub [u8; 16]);

impl Key {
    pub(crate) fn random() -> io::Result<Self> {
        socket::random().map(Self)
    }

    /// Compares in constant time.
    #[must_use]
    pub fn matches(&self, other: &Self) -> bool {
        let differ = self.0.iter().zip(&other.0);
        let differ = differ.fold(0, |all, (one, two)| all | (one ^ two));
        std::hint::black_box(differ) == 0
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(secret)")
    }
}

/// How the memory is handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandleKind {
    /// By one token for a whole segment.
    Token,
    /// By a descriptor or a fabric name for each chunk.
    Chunks,
}

impl HandleKind {
    const fn byte(self) -> u8 {
        match self {
            Self::Token => b'c',
            Self::Chunks => b'e',
        }
    }

    const fn from_byte(byte: u8) -> Option<Self> {
        match byte {
            b'c' => Some(Self::Token),
            b'e' => Some(Self::Chunks),
            _ => None,
        }
    }
}

/// Where importers find an exporter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExporterAddress {
    /// The process, as numbered in its own PID namespace.
    pub pid: u32,
    /// The name of its socket.
    pub socket: [u8; 16],
    /// The descriptor of its pidfd socket, in that process.
    pub descriptor: u32,
}

/// The device of the memory. This crate carries it and does not interpret it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceTag {
    /// The vendor, the same byte in every version.
    pub vendor: u8,
    /// Stable across processes; all zero where the driver gives none.
    pub uuid: [u8; 16],
}

/// Where the memory lies in its segment, or in its chunks.
///
/// Both the handle and the exporter state it. An importer compares the two, because a handle can be forged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Bytes that may be used; not zero.
    pub bytes: u64,
    /// Offset of the first byte in the segment, or in the first chunk.
    pub offset: u64,
    /// Bytes of the segment, or of all chunks: `offset + bytes ≤ extent`.
    pub extent: u64,
}

impl Span {
    pub(crate) fn encode(&self) -> [u8; 24] {
        let mut encoded = [0; 24];
        let numbers = [self.bytes, self.offset, self.extent];
        for (field, number) in encoded.chunks_exact_mut(8).zip(numbers) {
            field.copy_from_slice(&number.to_le_bytes());
        }
        encoded
    }

    /// Reads a span; `None` if it does not lie within its extent.
    pub(crate) fn decode(rest: &mut &[u8]) -> Option<Self> {
        let span = Self {
            bytes: u64::from_le_bytes(split_array(rest)?),
            offset: u64::from_le_bytes(split_array(rest)?),
            extent: u64::from_le_bytes(split_array(rest)?),
        };
        let end = span.offset.checked_add(span.bytes)?;
        (span.bytes > 0 && end <= span.extent).then_some(span)
    }

    /// The address of the first byte if the segment or the chunks begin at `start`; `None` if the end would overflow.
    #[must_use]
    pub fn address(&self, start: u64) -> Option<u64> {
        start.checked_add(self.extent)?;
        start.checked_add(self.offset)
    }
}

/// The content of a handle.
#[derive(Clone, Copy, Debug)]
pub struct Handle {
    /// How the memory is handed over.
    pub kind: HandleKind,
    /// The device of the memory.
    pub device: DeviceTag,
    /// Where the exporter listens.
    pub exporter: ExporterAddress,
    /// The number of the export in the exporter's table.
    pub export: u64,
    /// The secret of the export.
    pub key: Key,
    /// Where the memory lies.
    pub span: Span,
}

impl Handle {
    /// The handle as bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(LENGTH);
        bytes.extend(MAGIC);
        bytes.extend([VERSION, self.kind.byte(), self.device.vendor, 0]);
        bytes.extend(self.exporter.pid.to_le_bytes());
        bytes.extend(self.device.uuid);
        bytes.extend(self.exporter.socket);
        bytes.extend(self.export.to_le_bytes());
        bytes.extend(self.key.0);
        bytes.extend(self.span.encode());
        bytes.extend(self.exporter.descriptor.to_le_bytes());
        bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
        bytes
    }

    /// Reads a handle.
    pub fn decode(bytes: &[u8]) -> Result<Self, OpenError> {
        if !bytes.iter().zip(&MAGIC).all(|(one, two)| one == two) {
            return Err(OpenError::NotAHandle);
        }
        // Other versions may have another length and another checksum, so the version is checked first.
        match bytes.get(MAGIC.len()) {
            Some(&version) if version > VERSION => {
                return Err(OpenError::FutureVersion { version, known: VERSION });
            }
            Some(&version) if version < VERSION => return Err(OpenError::PastVersion { version, known: VERSION }),
            _ => {}
        }
        if bytes.len() != LENGTH {
            return Err(OpenError::WrongLength { given: bytes.len(), whole: LENGTH });
        }
        let (fields, sum) = bytes.split_at(LENGTH - CHECKSUM);
        if crc32fast::hash(fields).to_le_bytes() != *sum {
            return Err(OpenError::Damaged);
        }
        let mut rest = &fields[MAGIC.len() + 1..];
        Self::decode_fields(&mut rest).ok_or(OpenError::Damaged)
    }

    fn decode_fields(rest: &mut &[u8]) -> Option<Self> {
        let [kind, vendor, _] = split_array(rest)?;
        let kind = HandleKind::from_byte(kind)?;
        let pid = u32::from_le_bytes(split_array(rest)?);
        let device = DeviceTag { vendor, uuid: split_array(rest)? };
        let socket = split_array(rest)?;
        let export = u64::from_le_bytes(split_array(rest)?);
        let key = Key(split_array(rest)?);
        let span = Span::decode(rest)?;
        let descriptor = u32::from_le_bytes(split_array(rest)?);
        // The kernel numbers processes from one and descriptors from zero, both as signed integers.
        let is_valid = |number: u32| i32::try_from(number).is_ok();
        let exporter = ExporterAddress { pid, socket, descriptor };
        let handle = Self { kind, device, exporter, export, key, span };
        (pid != 0 && is_valid(pid) && is_valid(descriptor)).then_some(handle)
    }
}

/// Splits off the first `N` bytes.
pub(crate) fn split_array<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (first, others) = rest.split_first_chunk()?;
    *rest = others;
    Some(*first)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address() -> ExporterAddress {
        ExporterAddress { pid: 4711, socket: [3; 16], descriptor: 12 }
    }

    fn handle() -> Handle {
        Handle {
            kind: HandleKind::Chunks,
            device: DeviceTag { vendor: b'h', uuid: [7; 16] },
            exporter: address(),
            export: 42,
            key: Key([9; 16]),
            span: Span { bytes: 5 << 20, offset: 512, extent: 6 << 20 },
        }
    }

    /// I1.
    #[test]
    fn a_decoded_handle_equals_the_encoded_one() {
        let read = Handle::decode(&handle().encode()).unwrap();
        assert_eq!(format!("{read:?}"), format!("{:?}", handle()));
        assert!(read.key.matches(&handle().key));
        assert_eq!((read.exporter, handle().encode().len()), (address(), LENGTH));
    }

    /// I1.
    #[test]
    fn invalid_pids_and_descriptors_are_rejected() {
        let large = 1 << 31;
        for (pid, descriptor, is_valid) in [
            (1, 0, true),
            (large - 1, large - 1, true),
            (0, 12, false),
            (large, 12, false),
            (4711, large, false),
            (4711, u32::MAX, false),
        ] {
            let mut given = handle();
            given.exporter = ExporterAddress { pid, descriptor, ..address() };
            let read = Handle::decode(&given.encode()).map(|read| read.exporter);
            let expected = Some(given.exporter).filter(|_| is_valid);
            assert_eq!(read, expected.ok_or(OpenError::Damaged));
        }
    }

    /// I1.
    #[test]
    fn a_truncated_handle_is_rejected() {
        let whole = handle().encode();
        for length in 0..whole.len() {
            let problem = Handle::decode(&whole[..length]).unwrap_err();
            let expected = OpenError::WrongLength { given: length, whole: LENGTH };
            assert_eq!(problem, expected);
        }
        let long = [whole, vec![0]].concat();
        assert!(matches!(Handle::decode(&long), Err(OpenError::WrongLength { .. })));
    }

    #[test]
    fn every_changed_byte_is_detected() {
        for at in 0..LENGTH {
            let mut bytes = handle().encode();
            bytes[at] ^= 0x40;
            let problem = Handle::decode(&bytes).unwrap_err();
            let expected = match at {
                0..8 => OpenError::NotAHandle,
                8 => OpenError::FutureVersion { version: VERSION ^ 0x40, known: VERSION },
                _ => OpenError::Damaged,
            };
            assert_eq!(problem, expected, "byte {at}");
        }
    }

    /// I1: the text names the version. The exporter of an older handle uses another protocol, so the importer does not
    /// connect.
    #[test]
    fn a_newer_or_older_handle_of_any_length_is_rejected_by_its_version() {
        for (version, said) in [(VERSION + 1, "future version 5"), (VERSION - 1, "past version 3")] {
            let mut bytes = handle().encode();
            bytes[8] = version;
            for length in [9, 50, LENGTH] {
                let problem = Handle::decode(&bytes[..length]).unwrap_err();
                assert!(problem.to_string().contains(said), "{problem}");
            }
        }
    }

    #[test]
    fn a_span_outside_its_extent_is_rejected() {
        for (offset, bytes) in [(u64::MAX, 2), (2 << 20, 5 << 20), (0, 0)] {
            let mut wrong = handle();
            (wrong.span.offset, wrong.span.bytes) = (offset, bytes);
            assert_eq!(Handle::decode(&wrong.encode()).unwrap_err(), OpenError::Damaged);
        }
    }

    #[test]
    fn a_span_that_overflows_has_no_address() {
        let span = handle().span;
        assert_eq!(span.address(4096), Some(4096 + 512));
        let highest = u64::MAX - span.extent;
        assert_eq!(span.address(highest), Some(highest + 512));
        assert_eq!(span.address(highest + 1), None);
    }

    #[test]
    fn a_key_differs_from_every_key_one_bit_away() {
        let key = Key([0x5a; 16]);
        assert!(key.matches(&Key([0x5a; 16])));
        for bit in 0..128 {
            let mut other = key;
            other.0[bit / 8] ^= 1 << (bit % 8);
            assert!(!key.matches(&other), "bit {bit}");
        }
        assert_eq!(format!("{key:?}"), "Key(secret)");
    }
}
