//! The small value by which another process is told of shared memory.

#![forbid(unsafe_code)]

use cachette_hal::{DeviceInfo, Vendor};

use super::problem::ShareProblem;

/// What every handle begins with.
const MAGIC: [u8; 8] = *b"cachshar";
/// The version, of its layout and of what is said over the socket that it names.
const VERSION: u8 = 3;
/// Bytes of a handle of this version: 100 of fields, and the checksum.
const LENGTH: usize = 108;

/// What proves that an importer was told of the memory; 128 random bits.
#[derive(Clone, Copy)]
pub(super) struct Key(pub(super) [u8; 16]);

impl Key {
    /// Whether both are the same, in a time that does not tell where they differ.
    pub(super) fn matches(&self, other: &Self) -> bool {
        let differ = self.0.iter().zip(&other.0);
        let differ = differ.fold(0, |all, (one, two)| all | (one ^ two));
        std::hint::black_box(differ) == 0
    }
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key(secret)")
    }
}

/// How the memory was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HandleKind {
    /// By the device in one piece.
    Direct,
    /// In chunks, as part of an elastic segment.
    Elastic,
}

impl HandleKind {
    pub(super) const fn byte(self) -> u8 {
        match self {
            Self::Direct => b'c',
            Self::Elastic => b'e',
        }
    }

    const fn of_byte(byte: u8) -> Option<Self> {
        match byte {
            b'c' => Some(Self::Direct),
            b'e' => Some(Self::Elastic),
            _ => None,
        }
    }
}

/// Where an exporter is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// The process, as it knows itself.
    pub(super) pid: u32,
    /// The name of the socket at which it answers.
    pub(super) socket: [u8; 16],
    /// The number of its door, among its descriptors.
    pub(super) door: u32,
}

/// Where shared memory lies in its segment, or in its chunks.
///
/// A handle says it, and so does the exporter: what only a handle says could have been made up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    /// Bytes that may be used; not zero.
    pub(super) bytes: u64,
    /// Where they begin in the segment, or in the first chunk.
    pub(super) offset: u64,
    /// Bytes of the segment, or of all chunks: `offset + bytes ≤ extent`.
    pub(super) extent: u64,
}

impl Span {
    pub(super) fn encode(&self) -> [u8; 24] {
        let mut encoded = [0; 24];
        let numbers = [self.bytes, self.offset, self.extent];
        for (place, number) in encoded.chunks_exact_mut(8).zip(numbers) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        encoded
    }

    /// Reads a span; `None` for one that does not lie in itself.
    pub(super) fn decode(rest: &mut &[u8]) -> Option<Self> {
        let span = Self {
            bytes: u64::from_le_bytes(take(rest)?),
            offset: u64::from_le_bytes(take(rest)?),
            extent: u64::from_le_bytes(take(rest)?),
        };
        let end = span.offset.checked_add(span.bytes)?;
        (span.bytes > 0 && end <= span.extent).then_some(span)
    }

    /// The address of the first byte, in a segment or in chunks that lie at `start`; `None` if they cannot lie there.
    pub(super) fn address(&self, start: u64) -> Option<u64> {
        start.checked_add(self.extent)?;
        start.checked_add(self.offset)
    }
}

/// What a handle says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Handle {
    pub(super) kind: HandleKind,
    pub(super) vendor: u8,
    pub(super) place: Place,
    /// The device, stable across processes; all zero where the driver gives none.
    pub(super) device: [u8; 16],
    /// Which of its offers is meant.
    pub(super) offer: u64,
    pub(super) key: Key,
    pub(super) span: Span,
}

impl Handle {
    /// Says where memory of `device` is offered.
    pub(super) fn new(
        device: &DeviceInfo,
        place: Place,
        (offer, key): (u64, Key),
        (kind, span): (HandleKind, Span),
    ) -> Self {
        Self { kind, vendor: vendor_byte(device.vendor), place, device: device.uuid, offer, key, span }
    }

    /// The handle as bytes.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(LENGTH);
        bytes.extend(MAGIC);
        bytes.extend([VERSION, self.kind.byte(), self.vendor, 0]);
        bytes.extend(self.place.pid.to_le_bytes());
        bytes.extend(self.device);
        bytes.extend(self.place.socket);
        bytes.extend(self.offer.to_le_bytes());
        bytes.extend(self.key.0);
        bytes.extend(self.span.encode());
        bytes.extend(self.place.door.to_le_bytes());
        bytes.extend(checksum(&bytes).to_le_bytes());
        bytes
    }

    /// Reads a handle.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, ShareProblem> {
        let short = ShareProblem::WrongLength { given: bytes.len(), whole: LENGTH };
        if !bytes.iter().zip(&MAGIC).all(|(one, two)| one == two) {
            return Err(ShareProblem::NotAHandle);
        }
        // Newer ones may have another length: their version comes first.
        if let Some(version) = bytes.get(MAGIC.len())
            && *version > VERSION
        {
            return Err(ShareProblem::FutureVersion { version: *version, known: VERSION });
        }
        if bytes.len() != LENGTH {
            return Err(short);
        }
        let (said, sum) = bytes.split_at(LENGTH - 8);
        if checksum(said).to_le_bytes() != *sum {
            return Err(ShareProblem::Damaged);
        }
        let mut rest = &said[MAGIC.len()..];
        let [version] = take(&mut rest).ok_or(ShareProblem::Damaged)?;
        // Who made it answers in a language that is not spoken here any more.
        if version < VERSION {
            return Err(ShareProblem::PastVersion { version, known: VERSION });
        }
        Self::decode_fields(&mut rest).ok_or(ShareProblem::Damaged)
    }

    fn decode_fields(rest: &mut &[u8]) -> Option<Self> {
        let [kind, vendor, _] = take(rest)?;
        let kind = HandleKind::of_byte(kind)?;
        let pid = u32::from_le_bytes(take(rest)?);
        let device = take(rest)?;
        let socket = take(rest)?;
        let mut handle = Self {
            kind,
            vendor,
            place: Place { pid, socket, door: 0 },
            device,
            offer: u64::from_le_bytes(take(rest)?),
            key: Key(take(rest)?),
            span: Span::decode(rest)?,
        };
        handle.place.door = u32::from_le_bytes(take(rest)?);
        // The kernel counts processes from one and descriptors from zero, both with a sign.
        let counts = |number: u32| i32::try_from(number).is_ok();
        (pid != 0 && counts(pid) && counts(handle.place.door)).then_some(handle)
    }

    /// Whether memory that it tells of can be opened on `device`.
    pub(super) fn check_device(&self, device: &DeviceInfo) -> Result<(), ShareProblem> {
        if self.vendor != vendor_byte(device.vendor) {
            let here = device.vendor;
            return Err(ShareProblem::OtherVendor { here });
        }
        let unknown = [0; 16];
        if self.device != device.uuid && self.device != unknown && device.uuid != unknown {
            return Err(ShareProblem::OtherDevice);
        }
        Ok(())
    }
}

/// A vendor as one byte, the same in every version.
const fn vendor_byte(vendor: Vendor) -> u8 {
    match vendor {
        Vendor::Host => b'h',
        Vendor::Nvidia => b'n',
        Vendor::Amd => b'a',
        _ => b'?',
    }
}

/// Takes the first `N` bytes.
pub(super) fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (first, others) = rest.split_first_chunk()?;
    *rest = others;
    Some(*first)
}

/// FNV-1a over all bytes: it notices accidents, and the key notices intent.
fn checksum(bytes: &[u8]) -> u64 {
    let add = |sum: u64, byte: &u8| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, add)
}

#[cfg(test)]
mod tests {
    use cachette_hal::Ordinal;

    use super::*;

    fn device(vendor: Vendor, uuid: u8) -> DeviceInfo {
        let mut info = DeviceInfo::new(Ordinal(0), vendor, "one".to_owned(), 1 << 30, 512);
        info.uuid = [uuid; 16];
        info
    }

    fn place() -> Place {
        Place { pid: 4711, socket: [3; 16], door: 12 }
    }

    fn handle() -> Handle {
        let span = Span { bytes: 5 << 20, offset: 512, extent: 6 << 20 };
        let offer = (42, Key([9; 16]));
        let device = device(Vendor::Host, 7);
        Handle::new(&device, place(), offer, (HandleKind::Elastic, span))
    }

    /// I1.
    #[test]
    fn a_handle_means_what_it_was_made_from() {
        let read = Handle::decode(&handle().encode()).unwrap();
        assert_eq!(format!("{read:?}"), format!("{:?}", handle()));
        assert!(read.key.matches(&handle().key));
        assert_eq!((read.place, handle().encode().len()), (place(), LENGTH));
    }

    /// I1.
    #[test]
    fn numbers_that_no_process_or_descriptor_has_are_refused() {
        let large = 1 << 31;
        for (pid, door, right) in [
            (1, 0, true),
            (large - 1, large - 1, true),
            (0, 12, false),
            (large, 12, false),
            (4711, large, false),
            (4711, u32::MAX, false),
        ] {
            let mut given = handle();
            given.place = Place { pid, door, ..place() };
            let read = Handle::decode(&given.encode()).map(|read| read.place);
            let promised = Some(given.place).filter(|_| right);
            assert_eq!(read, promised.ok_or(ShareProblem::Damaged));
        }
    }

    /// I1.
    #[test]
    fn a_handle_cut_anywhere_is_refused() {
        let whole = handle().encode();
        for length in 0..whole.len() {
            let problem = Handle::decode(&whole[..length]).unwrap_err();
            let promised = ShareProblem::WrongLength { given: length, whole: LENGTH };
            assert_eq!(problem, promised);
        }
        let long = [whole, vec![0]].concat();
        assert!(matches!(Handle::decode(&long), Err(ShareProblem::WrongLength { .. })));
    }

    #[test]
    fn a_byte_that_was_changed_is_noticed_wherever_it_is() {
        for place in 0..LENGTH {
            let mut bytes = handle().encode();
            bytes[place] ^= 0x40;
            let problem = Handle::decode(&bytes).unwrap_err();
            let promised = match place {
                0..8 => ShareProblem::NotAHandle,
                8 => ShareProblem::FutureVersion { version: VERSION ^ 0x40, known: VERSION },
                _ => ShareProblem::Damaged,
            };
            assert_eq!(problem, promised, "byte {place}");
        }
    }

    /// I1: the text speaks of a future version.
    #[test]
    fn a_newer_handle_of_any_length_is_told_from_a_broken_one() {
        let mut bytes = handle().encode();
        bytes[8] = VERSION + 1;
        for length in [9, 50, LENGTH] {
            let problem = Handle::decode(&bytes[..length]).unwrap_err();
            assert!(problem.to_string().contains("future version 4"));
        }
    }

    /// I1: its exporter speaks another language, so it is not asked.
    #[test]
    fn an_older_handle_is_refused_by_its_version() {
        let mut bytes = handle().encode();
        bytes[8] = VERSION - 1;
        let (said, sum) = bytes.split_at_mut(LENGTH - 8);
        sum.copy_from_slice(&checksum(said).to_le_bytes());
        let problem = Handle::decode(&bytes).unwrap_err();
        assert!(problem.to_string().contains("past version 2"), "{problem}");
    }

    #[test]
    fn memory_beyond_its_extent_is_no_memory() {
        for (offset, bytes) in [(u64::MAX, 2), (2 << 20, 5 << 20), (0, 0)] {
            let mut wrong = handle();
            (wrong.span.offset, wrong.span.bytes) = (offset, bytes);
            assert_eq!(Handle::decode(&wrong.encode()).unwrap_err(), ShareProblem::Damaged);
        }
    }

    #[test]
    fn a_span_has_an_address_only_where_all_of_it_has_one() {
        let span = handle().span;
        assert_eq!(span.address(4096), Some(4096 + 512));
        let highest = u64::MAX - span.extent;
        assert_eq!(span.address(highest), Some(highest + 512));
        assert_eq!(span.address(highest + 1), None);
    }

    #[test]
    fn another_device_is_noticed_where_devices_have_names() {
        let check = |vendor, uuid| handle().check_device(&device(vendor, uuid));
        assert_eq!(check(Vendor::Host, 7), Ok(()));
        assert_eq!(check(Vendor::Host, 0), Ok(()));
        assert_eq!(check(Vendor::Host, 8), Err(ShareProblem::OtherDevice));
        let here = Vendor::Amd;
        assert_eq!(check(here, 7), Err(ShareProblem::OtherVendor { here }));
    }

    #[test]
    fn a_key_is_told_from_every_neighbour() {
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
