//! The protocol between importer and exporter, as values and as bytes.
//!
//! The importer sends requests and the exporter sends one reply to each, so the exporter never waits. An importer
//! requests the next batch before it processes the last one, so that both processes work at once.
//!
//! ```text
//! importer                      exporter
//! Open(export, key)     ->
//!                       <-      Token | Local | Chunks(count), each with a span | Refused(why)
//! Next(first chunk,     ->                                      only for chunks, until all have arrived
//!      how many at most)
//!                       <-      Batch(sizes and handles) with descriptors | Refused(why)
//! …                             the connection stays open while the memory is mapped
//! ```
//!
//! The importer connects by socket name, or sends [`CONNECT`] and one end of a socket pair through the exporter's pidfd
//! socket. The protocol is the same on both.
//!
//! The importer states how many descriptors it takes at once, because only it knows how many its table has room for.

#![forbid(unsafe_code)]

use crate::handle::{Key, Span, split_array};

/// The most chunks of one batch. A message could carry 253 descriptors, but small batches are faster.
pub const BATCH: usize = 64;
/// The most bytes of a message.
pub const LONGEST: usize = 4 + BATCH * (8 + 64);

/// The message through a pidfd socket; one end of a connection travels with it.
pub const CONNECT: &[u8] = b"K";

/// The driver's name of a segment.
pub type Token = [u8; 64];
/// The driver's name of a chunk that has no descriptor.
pub type FabricName = [u8; 64];

/// What an importer sends.
#[derive(Clone, Copy, Debug)]
pub enum Request {
    /// Opens an export.
    Open {
        /// Its number.
        export: u64,
        /// Its secret.
        key: Key,
        /// Identifies the importing process, which may be the exporter itself.
        process: [u8; 16],
    },
    /// Requests chunks.
    Next {
        /// The first one.
        first: u32,
        /// How many at most: 1 to [`BATCH`].
        most: u8,
    },
}

impl Request {
    /// The message as bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Open { export, key, process } => [&b"O"[..], &export.to_le_bytes(), &key.0, process].concat(),
            Self::Next { first, most } => [&b"N"[..], &first.to_le_bytes(), &[*most]].concat(),
        }
    }

    /// Reads a message; `None` for anything else.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut rest = bytes;
        let request = match split_array(&mut rest)? {
            [b'O'] => Self::Open {
                export: u64::from_le_bytes(split_array(&mut rest)?),
                key: Key(split_array(&mut rest)?),
                process: split_array(&mut rest)?,
            },
            [b'N'] => Self::Next {
                first: u32::from_le_bytes(split_array(&mut rest)?),
                most: split_array(&mut rest).and_then(|[most]| fits(most).then_some(most))?,
            },
            _ => return None,
        };
        rest.is_empty().then_some(request)
    }
}

/// Why an exporter refuses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It has no such export, or the key is wrong.
    Withdrawn,
    /// The importer belongs to another user.
    OtherUser,
    /// It has no descriptors left for another importer.
    Full,
    /// Its driver failed, with this text.
    Driver(String),
}

/// How the chunks of a batch are named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BatchHandles {
    /// By descriptors, which travel beside the message.
    Descriptors,
    /// By fabric names, one for each.
    Fabric(Vec<FabricName>),
}

/// What an exporter sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The token of the segment.
    Token(Token, Span),
    /// Both are the same process, which has the address of the segment.
    Local(Span),
    /// The number of chunks to request.
    Chunks(u32, Span),
    /// Some chunks.
    Batch {
        /// The bytes of each.
        sizes: Vec<u64>,
        /// The names of each.
        handles: BatchHandles,
    },
    /// The request is refused, and the connection closes.
    Refused(Refusal),
}

impl Reply {
    /// The message as bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Token(token, span) => [&b"T"[..], token, &span.encode()].concat(),
            Self::Local(span) => [&b"L"[..], &span.encode()].concat(),
            Self::Chunks(count, span) => [&b"C"[..], &count.to_le_bytes(), &span.encode()].concat(),
            Self::Batch { sizes, handles } => {
                let kind = match handles {
                    BatchHandles::Descriptors => b"D",
                    BatchHandles::Fabric(_) => b"F",
                };
                let mut bytes = kind.to_vec();
                bytes.push(u8::try_from(sizes.len()).unwrap_or(0));
                bytes.extend(sizes.iter().flat_map(|size| size.to_le_bytes()));
                if let BatchHandles::Fabric(names) = handles {
                    bytes.extend(names.iter().flatten());
                }
                bytes
            }
            Self::Refused(refusal) => match refusal {
                Refusal::Withdrawn => b"W".to_vec(),
                Refusal::OtherUser => b"U".to_vec(),
                Refusal::Full => b"B".to_vec(),
                Refusal::Driver(why) => {
                    let why = &why.as_bytes()[..why.len().min(LONGEST - 1)];
                    [&b"E"[..], why].concat()
                }
            },
        }
    }

    /// Reads a message; `None` for anything else.
    #[must_use]
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut rest = bytes;
        let [kind] = split_array(&mut rest)?;
        let reply = match kind {
            b'T' => Self::Token(split_array(&mut rest)?, Span::decode(&mut rest)?),
            b'L' => Self::Local(Span::decode(&mut rest)?),
            b'C' => {
                let count = u32::from_le_bytes(split_array(&mut rest)?);
                Self::Chunks(count, Span::decode(&mut rest)?)
            }
            b'D' | b'F' => decode_batch(kind, &mut rest)?,
            b'W' => Self::Refused(Refusal::Withdrawn),
            b'U' => Self::Refused(Refusal::OtherUser),
            b'B' => Self::Refused(Refusal::Full),
            b'E' => {
                let why = String::from_utf8_lossy(std::mem::take(&mut rest));
                Self::Refused(Refusal::Driver(why.into_owned()))
            }
            _ => return None,
        };
        rest.is_empty().then_some(reply)
    }
}

/// Whether a batch can have `count` chunks.
fn fits(count: u8) -> bool {
    (1..=BATCH).contains(&usize::from(count))
}

fn decode_batch(kind: u8, rest: &mut &[u8]) -> Option<Reply> {
    let [count] = split_array(rest).filter(|[count]| fits(*count))?;
    let sizes: Option<Vec<u64>> = (0..count).map(|_| split_array(rest).map(u64::from_le_bytes)).collect();
    let handles = if kind == b'D' {
        BatchHandles::Descriptors
    } else {
        let names: Option<Vec<_>> = (0..count).map(|_| split_array(rest)).collect();
        BatchHandles::Fabric(names?)
    };
    Some(Reply::Batch { sizes: sizes?, handles })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replies() -> Vec<Reply> {
        let span = Span { bytes: 512, offset: 1024, extent: 2 << 20 };
        let names = (0..BATCH).map(|name| [u8::try_from(name).unwrap(); 64]);
        vec![
            Reply::Token([7; 64], span),
            Reply::Local(span),
            Reply::Chunks(1000, span),
            Reply::Batch { sizes: vec![2 << 20, 16 << 20], handles: BatchHandles::Descriptors },
            Reply::Batch { sizes: vec![2 << 20; BATCH], handles: BatchHandles::Fabric(names.collect()) },
            Reply::Refused(Refusal::Withdrawn),
            Reply::Refused(Refusal::OtherUser),
            Reply::Refused(Refusal::Full),
            Reply::Refused(Refusal::Driver("out of memory".to_owned())),
        ]
    }

    #[test]
    fn replies_round_trip() {
        for reply in replies() {
            let bytes = reply.encode();
            assert!(bytes.len() <= LONGEST);
            assert_eq!(Reply::decode(&bytes), Some(reply));
        }
    }

    #[test]
    fn a_truncated_reply_is_rejected() {
        for reply in replies() {
            // The text of a failure may have any length.
            if matches!(reply, Reply::Refused(Refusal::Driver(_))) {
                continue;
            }
            let bytes = reply.encode();
            for length in 0..bytes.len() {
                assert_eq!(Reply::decode(&bytes[..length]), None, "{reply:?}");
            }
        }
    }

    #[test]
    fn requests_round_trip_and_nothing_else_is_accepted() {
        let open = Request::Open { export: 3, key: Key([1; 16]), process: [2; 16] };
        let next = Request::Next { first: 506, most: 16 };
        for request in [open, next] {
            let bytes = request.encode();
            let read = Request::decode(&bytes).unwrap();
            assert_eq!(read.encode(), bytes);
            for length in 0..bytes.len() {
                assert!(Request::decode(&bytes[..length]).is_none());
            }
            assert!(Request::decode(&[bytes, vec![0]].concat()).is_none());
        }
        assert!(Request::decode(b"X").is_none());
    }

    #[test]
    fn a_request_for_zero_or_too_many_chunks_is_rejected() {
        let largest = u8::try_from(BATCH).unwrap();
        for most in 0..=u8::MAX {
            let read = Request::decode(&Request::Next { first: 7, most }.encode());
            let expected = (1..=largest).contains(&most);
            assert_eq!(read.is_some(), expected, "{most}");
            if let Some(read) = read {
                assert!(matches!(read, Request::Next { first: 7, most: said } if said == most));
            }
        }
    }

    #[test]
    fn a_batch_of_zero_or_too_many_chunks_is_rejected() {
        for count in [0, BATCH + 1, 255] {
            let batch = Reply::Batch { sizes: vec![2 << 20; count], handles: BatchHandles::Descriptors };
            assert_eq!(Reply::decode(&batch.encode()), None, "{count}");
        }
    }
}
