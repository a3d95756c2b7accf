//! Transfers between owners, and content that the host writes and reads.

use std::slice;
use std::sync::PoisonError;

use cachette_hal::{AnyDevice, Device, Result};

use super::{AsStream, Event, Memory, Place, Span, Stream, Subject, pattern};
use crate::failure::{Stop, Verdict};

impl Subject {
    pub(crate) fn fill(&self, at: Span<'_>, byte: u8, stream: &impl AsStream) -> Result<()> {
        let transfer = self.device.transfer()?;
        // SAFETY: 1. the stream lives. 3. The span's owner lives, and waits before it frees.
        unsafe { transfer.fill(at.start(), byte, at.bytes(), stream.handle()) }
    }

    pub(crate) fn copy(&self, to: Span<'_>, from: Span<'_>, stream: &impl AsStream) -> Result<()> {
        copy_by(&self.device, to, from, stream)
    }

    pub(crate) fn record(&self, event: &Event, stream: &impl AsStream) -> Result<()> {
        // SAFETY: 1. the stream lives, and so does the event's owner.
        unsafe { self.device.record(event.get(), stream.handle()) }
    }

    pub(crate) fn stream_wait(&self, stream: &impl AsStream, event: &Event) -> Result<()> {
        // SAFETY: 1. the stream lives, and so does the event's owner.
        unsafe { self.device.stream_wait(stream.handle(), event.get()) }
    }

    pub(crate) fn synchronize(&self, stream: &impl AsStream) -> Result<()> {
        // SAFETY: 1. the stream lives.
        unsafe { self.device.synchronize(stream.handle()) }
    }

    /// Writes bytes from the host, and waits.
    pub(crate) fn put(&self, to: Span<'_>, content: &[u8]) -> Verdict {
        assert_eq!(to.bytes(), content.len() as u64, "sizes agree");
        let source = self.stage(content.to_vec()).cast_const();
        let transfer = self.device.transfer()?;
        // SAFETY: 1. the side stream lives as long as the subject. 3. The span's owner lives. 4. Staged memory outlives
        // the backend and is not accessed again.
        unsafe { transfer.upload(to.start(), source, content.len(), self.side.get()) }?;
        self.side.synchronize()?;
        Ok(())
    }

    /// Reads bytes to the host, and waits.
    pub(crate) fn get(&self, from: Span<'_>) -> Verdict<Vec<u8>> {
        let bytes = usize::try_from(from.bytes()).map_err(|_| Stop::failed("too large to read"))?;
        let target = self.stage(vec![0; bytes]);
        let transfer = self.device.transfer()?;
        // SAFETY: 1. the side stream lives as long as the subject. 3. The span's owner lives. 4. Staged
        // memory outlives the backend and is read only after the stream is done.
        unsafe { transfer.download(target, from.start(), bytes, self.side.get()) }?;
        self.side.synchronize()?;
        // SAFETY: the staged memory has `bytes` initialised bytes, and the device no longer uses it.
        Ok(unsafe { slice::from_raw_parts(target, bytes) }.to_vec())
    }

    /// Writes the pattern of `seed` over the whole of a place.
    pub(crate) fn put_pattern(&self, to: Span<'_>, seed: u64) -> Verdict {
        self.put(to, &pattern(seed, to.bytes()))
    }

    #[track_caller]
    pub(crate) fn expect_pattern(&self, at: Span<'_>, seed: u64, what: &str) -> Verdict {
        same(&self.get(at)?, &pattern(seed, at.bytes()), what).map_err(Stop::failed)
    }

    #[track_caller]
    pub(crate) fn expect_byte(&self, at: Span<'_>, byte: u8, what: &str) -> Verdict {
        let found = self.get(at)?;
        same(&found, &vec![byte; found.len()], what).map_err(Stop::failed)
    }

    /// Writes the pattern of `seed` over a range, and checks it.
    #[track_caller]
    pub(crate) fn round_trip(&self, at: Span<'_>, seed: u64, what: &str) -> Verdict {
        self.put_pattern(at, seed)?;
        self.expect_pattern(at, seed, what)
    }

    /// Checks that the parts of a range, each of `bytes` bytes, contain `first`, the next byte, and so on.
    #[track_caller]
    pub(crate) fn expect_parts(&self, all: Span<'_>, bytes: u64, first: u8, what: &str) -> Verdict {
        for (position, byte) in (0..all.bytes() / bytes).zip(first..) {
            self.expect_byte(all.nth(position, bytes), byte, what)?;
        }
        Ok(())
    }

    /// Allocates memory of `bytes` bytes, each of them `byte`.
    pub(crate) fn filled(&self, bytes: u64, byte: u8) -> Verdict<Memory> {
        let memory = self.memory(bytes)?;
        self.fill(memory.span(), byte, &self.side)?;
        self.side.synchronize()?;
        Ok(memory)
    }

    /// Keeps host memory for a transfer. Returns its address.
    fn stage(&self, mut memory: Vec<u8>) -> *mut u8 {
        let start = memory.as_mut_ptr();
        let mut staging = self.staging.lock().unwrap_or_else(PoisonError::into_inner);
        staging.push(memory);
        start
    }
}

pub(crate) fn link(event: &Event, from: &Stream, to: &Stream) -> Result<()> {
    event.record(from)?;
    event.hold_back(to)
}

/// Queues a copy of the whole of `from`, by the given device.
pub(crate) fn copy_by(device: &AnyDevice, to: Span<'_>, from: Span<'_>, stream: &impl AsStream) -> Result<()> {
    assert_eq!(to.bytes(), from.bytes(), "sizes agree");
    let transfer = device.transfer()?;
    // SAFETY: 1. the stream lives. 3. Both owners live, and wait before they free.
    unsafe { transfer.copy(to.start(), from.start(), from.bytes(), stream.handle()) }
}

/// Compares contents. The error contains the first byte that differs.
pub(crate) fn same(found: &[u8], promised: &[u8], what: &str) -> Result<(), String> {
    if found == promised {
        return Ok(());
    }
    let differs = found.iter().zip(promised).position(|(f, p)| f != p);
    Err(match differs {
        Some(at) => {
            format!("{what}: byte {at} of {} is {:#04x}, promised {:#04x}", found.len(), found[at], promised[at])
        }
        None => format!("{what}: {} bytes, promised {}", found.len(), promised.len()),
    })
}
