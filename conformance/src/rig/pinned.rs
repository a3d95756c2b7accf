//! Content of page-locked host memory, written and read by the host.
//!
//! These functions uphold promise 4 only together with their callers: a case accesses page-locked memory only while no
//! queued work uses it.

use std::ptr;
use std::slice;

use cachette_hal::{Device, Result};

use super::{AsStream, Pinned, Span, Subject};

pub(crate) fn write_pinned(to: &Pinned, content: &[u8]) {
    assert_eq!(to.bytes(), content.len(), "sizes agree");
    // SAFETY: the owner lives, its memory is as long as the content, and does not overlap the content.
    unsafe { ptr::copy_nonoverlapping(content.as_ptr(), to.ptr().as_ptr(), content.len()) }
}

pub(crate) fn read_pinned(from: &Pinned) -> Vec<u8> {
    // SAFETY: the owner lives, its memory is this long, and every case writes it before it reads.
    unsafe { slice::from_raw_parts(from.ptr().as_ptr(), from.bytes()) }.to_vec()
}

pub(crate) fn read_pinned_byte(from: &Pinned, at: usize) -> u8 {
    assert!(at < from.bytes(), "the byte lies inside");
    // SAFETY: the byte lies inside the owner's memory.
    let byte = unsafe { from.ptr().add(at) };
    // SAFETY: the owner lives, and every case writes its memory before it reads.
    unsafe { byte.read_volatile() }
}

impl Subject {
    /// Queues a copy of the whole of `from` to the device.
    pub(crate) fn upload_pinned(&self, to: Span<'_>, from: &Pinned, stream: &impl AsStream) -> Result<()> {
        assert_eq!(to.bytes(), from.bytes() as u64, "sizes agree");
        let transfer = self.device.transfer()?;
        let source = from.ptr().as_ptr().cast_const();
        // SAFETY: 1. the stream lives. 3. The span's owner lives, and waits before it frees. 4. So does the pinned
        // memory's, and the case does not access it in the meantime.
        unsafe { transfer.upload(to.start(), source, from.bytes(), stream.handle()) }
    }

    /// Queues a copy from the device to `to`, `at` bytes from its start.
    pub(crate) fn download_into(&self, to: &Pinned, at: u64, from: Span<'_>, stream: &impl AsStream) -> Result<()> {
        assert!(at + from.bytes() <= to.bytes() as u64, "the range lies inside");
        let transfer = self.device.transfer()?;
        let target = to.ptr().as_ptr().wrapping_add(length(at));
        // SAFETY: 1. the stream lives. 3. The span's owner lives, and waits before it frees. 4. So does the pinned
        // memory's, and the case does not access it in the meantime.
        unsafe { transfer.download(target, from.start(), length(from.bytes()), stream.handle()) }
    }
}

fn length(bytes: u64) -> usize {
    usize::try_from(bytes).expect("sizes of cases fit the host")
}
