//! The questions and answers, as values and as bytes.
//!
//! ```text
//! asker                                  neighbour
//! HowAreYou                      ->
//!                                <-      Figures
//! Give(bytes, …)                 ->
//!                                <-      Working        at intervals, while it waits for its device or evicts
//!                                <-      Given(bytes)   at the end; or Busy at once, if another process asked first
//! WhoHolds                       ->
//!                                <-      Holders
//! WriteSnapshot                  ->
//!                                <-      Written(file)  after some Working; or Busy
//! ```
//!
//! A message has [`LENGTH`] bytes: the magic, the version, the kind and the number of the request, then its fields, all in
//! little-endian order. The rest is zero, and a reader ignores it. So later fields can follow in the same version, if zero
//! means that the sender does not know them.

#![forbid(unsafe_code)]

/// The bytes of every message.
pub const LENGTH: usize = 384;
/// The version of this protocol. It is also a part of socket names, so versions do not meet.
pub const VERSION: u16 = 1;
/// The most bytes of a program's name.
pub const NAME: usize = 48;
/// The most bytes of the name of a label or a pool.
pub const HOLDER: usize = 32;
/// The most holders in an answer.
pub const MOST_HOLDERS: usize = 9;
/// The most bytes of a path.
pub const PATH: usize = 256;

const MAGIC: [u8; 4] = *b"CRCL";

/// A message with the number of its request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// A random number, which an answer repeats.
    pub request: u64,
    /// The question or the answer.
    pub body: Body,
}

/// A question or an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// Asks for the figures.
    HowAreYou,
    /// The figures of an allocator.
    Figures(Box<Figures>),
    /// Asks for memory.
    Give(Give),
    /// The neighbour waits for queued work, or evicts pools, which takes as long as their copies.
    Working,
    /// The neighbour has released so many bytes.
    Given(u64),
    /// The neighbour serves another asker.
    Busy,
    /// Asks who holds the memory of the process.
    WhoHolds,
    /// The labels and pools that hold most, the largest first.
    Holders(Vec<Holder>),
    /// Asks for a snapshot in a file, which the neighbour chooses.
    WriteSnapshot,
    /// The file of the snapshot; empty if it could not be written.
    Written(String),
}

/// A label or a pool with the bytes that it holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Holder {
    /// Its name.
    pub name: String,
    /// Whether it is a pool.
    pub is_pool: bool,
    /// Its bytes.
    pub bytes: u64,
}

/// What an asker wants to have released.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Give {
    /// The bytes; the neighbour releases whole chunks and segments, so it may be more.
    pub bytes: u64,
    /// Whether it evicts pools if its idle memory is less.
    pub evict: bool,
    /// Only pools of a lower priority are evicted; `None` for pools of any priority.
    pub below: Option<u32>,
}

/// The figures of one allocator.
///
/// Counts are since the start of the allocator, or since the last reset of its totals.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Figures {
    /// The process, by its number in its own namespace.
    pub pid: u32,
    /// The program and its first argument, without folders.
    pub program: String,
    /// Bytes held from the device.
    pub reserved: u64,
    /// Bytes of blocks in use.
    pub allocated: u64,
    /// Bytes that can be released without moving anything in use.
    pub idle: u64,
    /// Bytes of evictable pools that are awake and have no guard.
    pub evictable: u64,
    /// The most bytes held at once.
    pub peak: u64,
    /// The hard limit.
    pub limit: Option<u64>,
    /// The soft share.
    pub share: Option<u64>,
    /// Requests that were served.
    pub requests: u64,
    /// Device allocations retried after memory was released.
    pub retries: u64,
    /// Requests that failed.
    pub ooms: u64,
    /// Pools that were evicted.
    pub evictions: u64,
    /// How often neighbours were asked for memory.
    pub asks: u64,
    /// Bytes received from neighbours.
    pub received: u64,
    /// Bytes released for neighbours.
    pub given: u64,
    /// Milliseconds since memory was last received from neighbours.
    pub received_ago: Option<u64>,
    /// Whether a release is in progress, whose bytes are no longer idle and not yet free.
    pub is_releasing: bool,
    /// Bytes of the device that the program took past the allocator; `None` if that is not counted.
    pub outside: Option<u64>,
    /// Such bytes of memory that the driver moves.
    pub outside_managed: u64,
    /// Such bytes of page-locked memory of the host.
    pub outside_host: u64,
    /// Whether the driver is shutting down: the process can release nothing, and the system frees its memory soon.
    pub is_ending: bool,
}

impl Figures {
    /// Bytes above the share. Without a share, the idle bytes: who uses all that it holds is above no share.
    #[must_use]
    pub fn above_share(&self) -> u64 {
        let held = self.reserved.saturating_add(self.outside.unwrap_or(0));
        self.share.map_or(self.idle, |share| held.saturating_sub(share))
    }
}

impl Message {
    /// The message as bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; LENGTH] {
        let mut out = Writer { bytes: [0; LENGTH], at: 0 };
        out.put(&MAGIC);
        out.put(&VERSION.to_le_bytes());
        out.put(&self.body.kind().to_le_bytes());
        out.number(self.request);
        match &self.body {
            Body::HowAreYou | Body::Working | Body::Busy | Body::WhoHolds | Body::WriteSnapshot => {}
            Body::Written(path) => out.text::<PATH>(path),
            Body::Holders(holders) => {
                for holder in holders.iter().take(MOST_HOLDERS) {
                    out.text::<HOLDER>(&holder.name);
                    // One more, so that zero ends the list.
                    out.put(&[1 + u8::from(holder.is_pool)]);
                    out.put(&holder.bytes.to_le_bytes()[..7]);
                }
            }
            Body::Given(bytes) => out.number(*bytes),
            Body::Give(Give { bytes, evict, below }) => {
                out.number(*bytes);
                out.number(u64::from(*evict));
                out.optional(below.map(u64::from));
            }
            Body::Figures(figures) => figures.encode(&mut out),
        }
        out.bytes
    }

    /// Reads a message; `None` for anything else.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut rest = Reader(<&[u8; LENGTH]>::try_from(bytes).ok()?);
        if rest.take::<4>()? != MAGIC || rest.take().map(u16::from_le_bytes)? != VERSION {
            return None;
        }
        let kind = rest.take().map(u16::from_le_bytes)?;
        let request = rest.number()?;
        let body = match kind {
            1 => Body::HowAreYou,
            2 => Body::Figures(Box::new(Figures::decode(&mut rest)?)),
            3 => Body::Give(Give {
                bytes: rest.number()?,
                evict: match rest.number()? {
                    0 => false,
                    1 => true,
                    _ => return None,
                },
                below: rest.number()?.checked_sub(1).map(u32::try_from).transpose().ok()?,
            }),
            4 => Body::Working,
            5 => Body::Given(rest.number()?),
            6 => Body::Busy,
            7 => Body::WhoHolds,
            8 => Body::Holders(holders(&mut rest)?),
            9 => Body::WriteSnapshot,
            10 => Body::Written(rest.text::<PATH>()?),
            _ => return None,
        };
        Some(Self { request, body })
    }
}

impl Body {
    const fn kind(&self) -> u16 {
        match self {
            Self::HowAreYou => 1,
            Self::Figures(_) => 2,
            Self::Give(_) => 3,
            Self::Working => 4,
            Self::Given(_) => 5,
            Self::Busy => 6,
            Self::WhoHolds => 7,
            Self::Holders(_) => 8,
            Self::WriteSnapshot => 9,
            Self::Written(_) => 10,
        }
    }
}

impl Figures {
    fn encode(&self, out: &mut Writer) {
        out.number(self.pid.into());
        out.text::<NAME>(&self.program);
        for number in [self.reserved, self.allocated, self.idle, self.evictable, self.peak] {
            out.number(number);
        }
        out.optional(self.limit);
        out.optional(self.share);
        for number in [self.requests, self.retries, self.ooms, self.evictions, self.asks, self.received, self.given] {
            out.number(number);
        }
        out.optional(self.received_ago);
        out.number(self.is_releasing.into());
        out.optional(self.outside);
        out.number(self.outside_managed);
        out.number(self.outside_host);
        out.number(self.is_ending.into());
    }

    fn decode(rest: &mut Reader<'_>) -> Option<Self> {
        let pid = u32::try_from(rest.number()?).ok()?;
        Some(Self {
            pid,
            program: rest.text::<NAME>()?,
            reserved: rest.number()?,
            allocated: rest.number()?,
            idle: rest.number()?,
            evictable: rest.number()?,
            peak: rest.number()?,
            limit: rest.number()?.checked_sub(1),
            share: rest.number()?.checked_sub(1),
            requests: rest.number()?,
            retries: rest.number()?,
            ooms: rest.number()?,
            evictions: rest.number()?,
            asks: rest.number()?,
            received: rest.number()?,
            given: rest.number()?,
            received_ago: rest.number()?.checked_sub(1),
            is_releasing: rest.number()? != 0,
            outside: rest.number()?.checked_sub(1),
            outside_managed: rest.number()?,
            outside_host: rest.number()?,
            is_ending: rest.number()? != 0,
        })
    }
}

/// The holders of an answer.
fn holders(rest: &mut Reader<'_>) -> Option<Vec<Holder>> {
    let mut holders = Vec::new();
    while holders.len() < MOST_HOLDERS {
        let name = rest.text::<HOLDER>()?;
        let [kind, number @ ..]: [u8; 8] = rest.take()?;
        let is_pool = match kind {
            0 => break,
            1 => false,
            2 => true,
            _ => return None,
        };
        let mut bytes = [0; 8];
        bytes[..7].copy_from_slice(&number);
        holders.push(Holder { name, is_pool, bytes: u64::from_le_bytes(bytes) });
    }
    Some(holders)
}

/// The fields of a message that is written.
struct Writer {
    bytes: [u8; LENGTH],
    at: usize,
}

impl Writer {
    fn put(&mut self, field: &[u8]) {
        self.bytes[self.at..self.at + field.len()].copy_from_slice(field);
        self.at += field.len();
    }

    /// The beginning of a text, in so many bytes.
    fn text<const N: usize>(&mut self, text: &str) {
        let end = (0..=text.len().min(N)).rev().find(|end| text.is_char_boundary(*end));
        let mut field = [0; N];
        let kept = &text.as_bytes()[..end.unwrap_or(0)];
        field[..kept.len()].copy_from_slice(kept);
        self.put(&field);
    }

    fn number(&mut self, number: u64) {
        self.put(&number.to_le_bytes());
    }

    /// A number plus one, so that zero is none. The largest number has no successor, and is none.
    fn optional(&mut self, number: Option<u64>) {
        self.number(number.map_or(0, |number| number.wrapping_add(1)));
    }
}

/// The fields of a message that is read.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (field, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*field)
    }

    fn number(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    /// A text of at most so many bytes. It is shown in terminals, which control characters could change.
    fn text<const N: usize>(&mut self) -> Option<String> {
        let field: [u8; N] = self.take()?;
        let text = String::from_utf8_lossy(field.split(|byte| *byte == 0).next().unwrap_or_default()).into_owned();
        Some(text.chars().map(|c| if c.is_control() { '?' } else { c }).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures() -> Figures {
        Figures {
            pid: 4242,
            program: "python3 train.py".to_owned(),
            reserved: 1,
            allocated: 2,
            idle: 3,
            evictable: 4,
            peak: 5,
            limit: Some(6),
            share: None,
            requests: 7,
            retries: 8,
            ooms: 9,
            evictions: 10,
            asks: 11,
            received: 12,
            given: 13,
            received_ago: Some(0),
            is_releasing: true,
            outside: Some(14),
            outside_managed: 15,
            outside_host: 16,
            is_ending: true,
        }
    }

    fn holder(name: &str, is_pool: bool) -> Holder {
        Holder { name: name.to_owned(), is_pool, bytes: (1 << 56) - 1 }
    }

    fn bodies() -> Vec<Body> {
        vec![
            Body::HowAreYou,
            Body::Figures(Box::new(figures())),
            Body::Give(Give { bytes: 10 << 30, evict: true, below: Some(0) }),
            Body::Give(Give { bytes: u64::MAX, evict: false, below: None }),
            Body::Working,
            Body::Given(5),
            Body::Busy,
            Body::WhoHolds,
            Body::Holders(Vec::new()),
            Body::Holders(vec![holder("kv_cache", false), holder("(0, 3) weights", true)]),
            Body::Holders(vec![holder("", true); MOST_HOLDERS]),
            Body::WriteSnapshot,
            Body::Written("/tmp/x.json".to_owned()),
        ]
    }

    #[test]
    fn messages_round_trip_and_no_other_length_is_accepted() {
        for body in bodies() {
            let message = Message { request: 0x0123_4567_89ab_cdef, body };
            let bytes = message.encode();
            assert_eq!(Message::decode(&bytes), Some(message));
            assert_eq!(Message::decode(&bytes[..LENGTH - 1]), None);
            assert_eq!(Message::decode(&[&bytes[..], &[0]].concat()), None);
        }
    }

    #[test]
    fn another_magic_version_or_kind_is_no_message() {
        for at in 0..8 {
            let mut bytes = Message { request: 1, body: Body::Busy }.encode();
            bytes[at] ^= 0x40;
            assert_eq!(Message::decode(&bytes), None, "byte {at}");
        }
    }

    #[test]
    fn a_long_name_is_cut_between_characters_and_controls_nothing() {
        let long = Figures { program: "é".repeat(40), ..figures() };
        let bell = Figures { program: "a\u{1b}[2Jb".to_owned(), ..figures() };
        let read =
            |figures| match Message::decode(&Message { request: 1, body: Body::Figures(Box::new(figures)) }.encode()) {
                Some(Message { body: Body::Figures(figures), .. }) => figures.program,
                other => panic!("{other:?}"),
            };
        assert_eq!(read(long), "é".repeat(24));
        assert_eq!(read(bell), "a?[2Jb");
    }

    #[test]
    fn later_fields_do_not_disturb_a_reader_of_today() {
        let message = Message { request: 1, body: Body::Figures(Box::new(figures())) };
        let mut bytes = message.encode();
        bytes[LENGTH - 1] = 7;
        assert_eq!(Message::decode(&bytes), Some(message));
    }

    #[test]
    fn without_a_share_the_idle_bytes_count() {
        let own = |share| Figures { reserved: 100, idle: 30, share, outside: None, ..figures() }.above_share();
        assert_eq!([own(None), own(Some(40)), own(Some(200))], [30, 60, 0]);
        let outside = Figures { reserved: 100, outside: Some(150), share: Some(200), ..figures() };
        assert_eq!(outside.above_share(), 50, "what was taken past the allocator counts");
    }
}
