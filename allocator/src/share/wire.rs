//! What importer and exporter say to each other, as values and as bytes.
//!
//! The importer asks and the exporter answers, one message each: so the exporter never has to wait for anybody. The
//! importer asks for more as soon as it has an answer, and works on that answer afterwards: so both work at once.
//!
//! ```text
//! importer                      exporter
//! Open(offer, key)      ->
//!                       <-      Token | Local | Chunks(count), each with a span | Refused(why)
//! Next(first chunk,     ->                                      only of chunks, until all came
//!      how many at most)
//!                       <-      Batch(sizes and names) with descriptors | Refused(why)
//! …                             the connection stays open for as long as the memory is mapped
//! ```
//!
//! A connection is made by name, or by a knock at the exporter's [`door`](super::door): one byte, beside which one end of
//! the importer's own pair of sockets travels. What is said then is the same.
//!
//! How many at most is the importer's to say, since it alone knows for how many descriptors it has room: see
//! [`descriptors`](super::descriptors).

#![forbid(unsafe_code)]

use cachette_hal::{FabricHandle, IpcToken};

use super::handle::{Key, Span, take};

/// Chunks in one batch at most.
///
/// A message could carry 253 descriptors, but nobody asks for so many: small batches are quicker.
pub(super) const BATCH: usize = 64;
/// No message is longer.
pub(super) const LONGEST: usize = 4 + BATCH * (8 + 64);

/// All that is said at a door; a connection comes with it.
pub(super) const KNOCK: &[u8] = b"K";

/// What an importer asks.
#[derive(Clone, Copy, Debug)]
pub(super) enum Request {
    /// For an offer; `process` tells whether both are the same process.
    Open { offer: u64, key: Key, process: [u8; 16] },
    /// For chunks, from one on; `most` is not zero and not above [`BATCH`].
    Next { first: u32, most: u8 },
}

impl Request {
    pub(super) fn encode(&self) -> Vec<u8> {
        match self {
            Self::Open { offer, key, process } => [&b"O"[..], &offer.to_le_bytes(), &key.0, process].concat(),
            Self::Next { first, most } => [&b"N"[..], &first.to_le_bytes(), &[*most]].concat(),
        }
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut rest = bytes;
        let request = match take(&mut rest)? {
            [b'O'] => Self::Open {
                offer: u64::from_le_bytes(take(&mut rest)?),
                key: Key(take(&mut rest)?),
                process: take(&mut rest)?,
            },
            [b'N'] => Self::Next {
                first: u32::from_le_bytes(take(&mut rest)?),
                most: take(&mut rest).and_then(|[most]| fits(most).then_some(most))?,
            },
            _ => return None,
        };
        rest.is_empty().then_some(request)
    }
}

/// Why an exporter refuses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// It offers nothing of the kind.
    Withdrawn,
    /// The importer is another user's.
    OtherUser,
    /// It has no descriptors left for another importer.
    Full,
    /// Its driver failed.
    Driver(String),
}

/// What names the chunks of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Names {
    /// Descriptors, which travel beside the message.
    Descriptors,
    /// Names of the fabric, one for each.
    Fabric(Vec<FabricHandle>),
}

/// What an exporter answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    /// The segment's token, and where in it the memory lies.
    Token(IpcToken, Span),
    /// Both are the same process, which knows the segment's address; and where in it the memory lies.
    Local(Span),
    /// So many chunks are to be asked for; and where in them the memory lies.
    ChunkTable(u32, Span),
    /// Chunks of these sizes.
    Batch { sizes: Vec<u64>, names: Names },
    /// No.
    Refused(Refusal),
}

impl Reply {
    pub(super) fn encode(&self) -> Vec<u8> {
        match self {
            Self::Token(token, span) => [&b"T"[..], &token.0, &span.encode()].concat(),
            Self::Local(span) => [&b"L"[..], &span.encode()].concat(),
            Self::ChunkTable(count, span) => [&b"C"[..], &count.to_le_bytes(), &span.encode()].concat(),
            Self::Batch { sizes, names } => {
                let kind = match names {
                    Names::Descriptors => b"D",
                    Names::Fabric(_) => b"F",
                };
                let mut bytes = kind.to_vec();
                bytes.push(u8::try_from(sizes.len()).unwrap_or(0));
                bytes.extend(sizes.iter().flat_map(|size| size.to_le_bytes()));
                if let Names::Fabric(names) = names {
                    bytes.extend(names.iter().flat_map(|name| name.0));
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

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut rest = bytes;
        let [kind] = take(&mut rest)?;
        let reply = match kind {
            b'T' => Self::Token(IpcToken(take(&mut rest)?), Span::decode(&mut rest)?),
            b'L' => Self::Local(Span::decode(&mut rest)?),
            b'C' => {
                let count = u32::from_le_bytes(take(&mut rest)?);
                Self::ChunkTable(count, Span::decode(&mut rest)?)
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

/// Whether a batch can have so many chunks.
fn fits(count: u8) -> bool {
    (1..=BATCH).contains(&usize::from(count))
}

fn decode_batch(kind: u8, rest: &mut &[u8]) -> Option<Reply> {
    let [count] = take(rest).filter(|[count]| fits(*count))?;
    let sizes: Option<Vec<u64>> = (0..count).map(|_| take(rest).map(u64::from_le_bytes)).collect();
    let names = if kind == b'D' {
        Names::Descriptors
    } else {
        let names: Option<Vec<_>> = (0..count).map(|_| take(rest).map(FabricHandle)).collect();
        Names::Fabric(names?)
    };
    let sizes = sizes?;
    Some(Reply::Batch { sizes, names })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replies() -> Vec<Reply> {
        let span = Span { bytes: 512, offset: 1024, extent: 2 << 20 };
        let names = (0..BATCH).map(|name| FabricHandle([u8::try_from(name).unwrap(); 64]));
        vec![
            Reply::Token(IpcToken([7; 64]), span),
            Reply::Local(span),
            Reply::ChunkTable(1000, span),
            Reply::Batch { sizes: vec![2 << 20, 16 << 20], names: Names::Descriptors },
            Reply::Batch { sizes: vec![2 << 20; BATCH], names: Names::Fabric(names.collect()) },
            Reply::Refused(Refusal::Withdrawn),
            Reply::Refused(Refusal::OtherUser),
            Reply::Refused(Refusal::Full),
            Reply::Refused(Refusal::Driver("out of memory".to_owned())),
        ]
    }

    #[test]
    fn replies_arrive_as_they_were_sent() {
        for reply in replies() {
            let bytes = reply.encode();
            assert!(bytes.len() <= LONGEST);
            assert_eq!(Reply::decode(&bytes), Some(reply));
        }
    }

    #[test]
    fn a_reply_that_was_cut_is_none() {
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
    fn requests_arrive_as_they_were_sent_and_nothing_else_does() {
        let open = Request::Open { offer: 3, key: Key([1; 16]), process: [2; 16] };
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
    fn nobody_asks_for_no_chunks_or_for_more_than_a_batch_has() {
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
    fn a_batch_of_no_chunks_or_of_too_many_is_none() {
        for count in [0, BATCH + 1, 255] {
            let batch = Reply::Batch { sizes: vec![2 << 20; count], names: Names::Descriptors };
            assert_eq!(Reply::decode(&batch.encode()), None, "{count}");
        }
    }
}
