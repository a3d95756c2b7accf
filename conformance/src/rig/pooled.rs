//! Stream-ordered memory with an owner.

use cachette_hal::{Device, DevicePtr, Result, StreamOrdered};

use super::{AsStream, Stream, Subject};

/// Stream-ordered memory with an owner, freed in the stream it was allocated on.
#[derive(Debug)]
pub(crate) struct Pooled<'s> {
    pool: &'s dyn StreamOrdered,
    stream: &'s Stream,
    ptr: DevicePtr,
    bytes: u64,
    freed: bool,
}

impl Pooled<'_> {
    pub(crate) const fn ptr(&self) -> DevicePtr {
        self.ptr
    }

    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Frees it at the current end of its stream.
    pub(crate) fn free(mut self) -> Result<()> {
        let stream = self.stream;
        self.free_once(stream)
    }

    /// Frees it at the current end of another stream, which waits for its last use.
    pub(crate) fn free_in(mut self, stream: &Stream) -> Result<()> {
        self.free_once(stream)
    }

    fn free_once(&mut self, stream: &Stream) -> Result<()> {
        if std::mem::replace(&mut self.freed, true) {
            return Ok(());
        }
        // SAFETY: 1. this owner has the memory and frees it once. 2. Cases use it in this stream only, or make this
        // stream wait for the others.
        unsafe { self.pool.free_on(self.ptr, stream.handle()) }
    }
}

impl Drop for Pooled<'_> {
    fn drop(&mut self) {
        // A destructor cannot return an error; `free` does.
        let stream = self.stream;
        let _ = self.free_once(stream);
    }
}

impl Subject {
    pub(crate) fn pooled<'s>(&'s self, bytes: u64, stream: &'s Stream) -> Result<Pooled<'s>> {
        let pool = self.device.stream_ordered()?;
        // SAFETY: 1. the stream's owner lives.
        let ptr = unsafe { pool.allocate_on(bytes, stream.get()) }?;
        Ok(Pooled { pool, stream, ptr, bytes, freed: false })
    }
}
