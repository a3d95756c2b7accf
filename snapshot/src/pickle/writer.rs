//! Writes numbers, texts and containers as the opcodes of a pickle.

use std::io::{self, Write};

use super::opcode as op;

/// Entries that are added to a container at once, as in the pickle module. The readers of viewers fail with many more.
pub(super) const BATCH: usize = 1000;
/// The protocol of the output.
const PROTOCOL: u8 = 2;

/// A written value that can be referred to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Memo(u32);

/// Writes the opcodes of a pickle.
pub(super) struct Writer<W> {
    out: W,
    memos: u32,
}

impl<W: Write> Writer<W> {
    /// Begins a pickle.
    pub(super) fn begin(mut out: W) -> io::Result<Self> {
        out.write_all(&[op::PROTO, PROTOCOL])?;
        Ok(Self { out, memos: 0 })
    }

    /// Ends the pickle.
    pub(super) fn end(mut self) -> io::Result<()> {
        self.op(op::STOP)
    }

    pub(super) fn op(&mut self, code: u8) -> io::Result<()> {
        self.out.write_all(&[code])
    }

    pub(super) fn bool(&mut self, value: bool) -> io::Result<()> {
        self.op(if value { op::NEWTRUE } else { op::NEWFALSE })
    }

    pub(super) fn unsigned(&mut self, value: u64) -> io::Result<()> {
        if let Ok(value) = i64::try_from(value) {
            return self.signed(value);
        }
        self.out.write_all(&[op::LONG1, 9])?;
        self.out.write_all(&value.to_le_bytes())?;
        // The ninth byte marks the number as not negative.
        self.out.write_all(&[0])
    }

    pub(super) fn signed(&mut self, value: i64) -> io::Result<()> {
        if let Ok(value) = u8::try_from(value) {
            return self.out.write_all(&[op::BININT1, value]);
        }
        if let Ok(value) = u16::try_from(value) {
            let [low, high] = value.to_le_bytes();
            return self.out.write_all(&[op::BININT2, low, high]);
        }
        if let Ok(value) = i32::try_from(value) {
            let [a, b, c, d] = value.to_le_bytes();
            return self.out.write_all(&[op::BININT, a, b, c, d]);
        }
        let bytes = value.to_le_bytes();
        let length = shortest(value);
        self.out.write_all(&[op::LONG1, u8::try_from(length).unwrap_or(8)])?;
        self.out.write_all(&bytes[..length])
    }

    pub(super) fn float(&mut self, value: f64) -> io::Result<()> {
        self.op(op::BINFLOAT)?;
        self.out.write_all(&value.to_be_bytes())
    }

    pub(super) fn text(&mut self, text: &str) -> io::Result<()> {
        let length = u32::try_from(text.len()).map_err(|_| invalid("a text of 4 GiB or more"))?;
        self.op(op::BINUNICODE)?;
        self.out.write_all(&length.to_le_bytes())?;
        self.out.write_all(text.as_bytes())
    }

    /// Stores the last value, so that it can be referred to.
    pub(super) fn keep(&mut self) -> io::Result<Memo> {
        let memo = self.memos;
        self.memos = memo.checked_add(1).ok_or_else(|| invalid("too much"))?;
        self.index(op::BINPUT, op::LONG_BINPUT, memo)?;
        Ok(Memo(memo))
    }

    /// Refers to a stored value.
    pub(super) fn again(&mut self, memo: Memo) -> io::Result<()> {
        self.index(op::BINGET, op::LONG_BINGET, memo.0)
    }

    fn index(&mut self, short: u8, long: u8, index: u32) -> io::Result<()> {
        if let Ok(index) = u8::try_from(index) {
            return self.out.write_all(&[short, index]);
        }
        let [a, b, c, d] = index.to_le_bytes();
        self.out.write_all(&[long, a, b, c, d])
    }

    /// Begins a dict, whose keys and values follow.
    pub(super) fn open_dict(&mut self) -> io::Result<()> {
        self.out.write_all(&[op::EMPTY_DICT, op::MARK])
    }

    pub(super) fn close_dict(&mut self) -> io::Result<()> {
        self.op(op::SETITEMS)
    }
}

/// Returns the number of bytes that a number needs.
fn shortest(value: i64) -> usize {
    let unused = if value < 0 { value.leading_ones() } else { value.leading_zeros() };
    // One of the bits that repeat the sign must remain.
    8 - (unused as usize - 1) / 8
}

pub(super) fn invalid(what: &str) -> io::Error {
    let text = format!("the snapshot cannot be written as a pickle: {what}; write it as JSON");
    io::Error::new(io::ErrorKind::InvalidInput, text)
}
