//! Parts of buffers.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Bound, Deref, Range, RangeBounds};
use std::sync::Arc;

use bytemuck::Pod;
use cachette_hal::{AnyDevice, Device, DevicePtr};

use super::Buffer;
use crate::error::Error;

/// A part of a [`Buffer`], to be read or copied from.
pub struct BufferSlice<'a, T: Pod, D: Device = AnyDevice> {
    buffer: &'a Buffer<T, D>,
    /// Lies inside the buffer.
    range: Range<usize>,
}

/// A part of a [`Buffer`], to be written. It can also be read, as a [`BufferSlice`].
pub struct BufferSliceMut<'a, T: Pod, D: Device = AnyDevice> {
    slice: BufferSlice<'a, T, D>,
    /// Nothing else uses the buffer meanwhile.
    alone: PhantomData<&'a mut Buffer<T, D>>,
}

impl<T: Pod, D: Device> Buffer<T, D> {
    /// The elements in `range`, to be read or copied from.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<BufferSlice<'_, T, D>, Error> {
        let range = self.inside(&range)?;
        Ok(BufferSlice { buffer: self, range })
    }

    /// The elements in `range`, to be written.
    pub fn slice_mut(&mut self, range: impl RangeBounds<usize>) -> Result<BufferSliceMut<'_, T, D>, Error> {
        Ok(BufferSliceMut { slice: self.slice(range)?, alone: PhantomData })
    }

    pub(super) const fn whole(&self) -> BufferSlice<'_, T, D> {
        BufferSlice { range: 0..self.len, buffer: self }
    }

    pub(super) const fn whole_mut(&mut self) -> BufferSliceMut<'_, T, D> {
        BufferSliceMut { slice: self.whole(), alone: PhantomData }
    }

    /// The range as numbers, if it lies inside the buffer.
    fn inside(&self, range: &impl RangeBounds<usize>) -> Result<Range<usize>, Error> {
        let first = match range.start_bound() {
            Bound::Included(first) => Some(*first),
            Bound::Excluded(before) => before.checked_add(1),
            Bound::Unbounded => Some(0),
        };
        let end = match range.end_bound() {
            Bound::Included(last) => last.checked_add(1),
            Bound::Excluded(end) => Some(*end),
            Bound::Unbounded => Some(self.len),
        };
        match (first, end) {
            (Some(first), Some(end)) if first <= end && end <= self.len => Ok(first..end),
            _ => Err(Error::RangeOutside {
                first: first.unwrap_or(usize::MAX),
                end: end.unwrap_or(usize::MAX),
                len: self.len,
            }),
        }
    }

    /// The first element of `range`; `None` if it has no bytes.
    pub(super) fn ptr_of(&self, range: &Range<usize>) -> Option<DevicePtr> {
        let first = self.ptr()?.address() + bytes::<T>(range.start);
        if range.is_empty() { None } else { DevicePtr::new(first) }
    }
}

/// The bytes of elements that are in memory, so that they fit.
const fn bytes<T>(elements: usize) -> u64 {
    (elements * size_of::<T>()) as u64
}

const fn check_len(range: &Range<usize>, given: usize) -> Result<(), Error> {
    let len = range.end - range.start;
    if given == len { Ok(()) } else { Err(Error::LengthMismatch { len, given }) }
}

impl<T: Pod, D: Device> BufferSlice<'_, T, D> {
    /// The number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.range.len()
    }

    /// Returns whether there are no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }

    /// The first element, for work that the caller queues; `None` if there are no bytes.
    #[must_use]
    pub fn ptr(&self) -> Option<DevicePtr> {
        self.buffer.ptr_of(&self.range)
    }

    /// Reads the elements. See [`Buffer::read`].
    pub fn read(&self) -> Result<Vec<T>, Error> {
        self.buffer.check_uncaptured()?;
        let mut to = vec![T::zeroed(); self.len()];
        // SAFETY: 1. `to` is not accessed before the work has ended, in the next line; never, if that is not certain.
        unsafe { self.read_async(&mut to) }?;
        match self.buffer.finish() {
            Ok(()) => Ok(to),
            Err(failed) => {
                if !failed.is_over {
                    // The device may still write to it.
                    to.leak();
                }
                Err(failed.error.into())
            }
        }
    }

    /// Reads the elements into `to`, which has the same length. See [`Buffer::read_into`].
    pub fn read_into(&self, to: &mut [T]) -> Result<(), Error> {
        check_len(&self.range, to.len())?;
        self.buffer.check_uncaptured()?;
        // SAFETY: 1. `to` is borrowed until the work has ended, in the next line.
        unsafe { self.read_async(to) }?;
        self.buffer.finish_borrowed()
    }

    /// Queues a read of the elements into `to`, which has the same length.
    ///
    /// # Safety
    ///
    /// 1. `to` stays valid and is neither read nor written until the work has finished: promise 4 of
    ///    [`hal`](crate::hal).
    pub unsafe fn read_async(&self, to: &mut [T]) -> Result<(), Error> {
        check_len(&self.range, to.len())?;
        let Some((transfer, at, _awake)) = self.buffer.begin_read(&self.range)? else { return Ok(()) };
        let (first, bytes) = (to.as_mut_ptr().cast(), size_of_val(to));
        // SAFETY: 1. the buffer's stream is live. 3. the memory is allocated for that stream, and its segment is not
        // released before the stream has passed this point; the lengths are equal. 4. the caller's promise 1.
        Ok(unsafe { transfer.download(first, at, bytes, self.buffer.stream.handle()) }?)
    }
}

impl<'a, T: Pod, D: Device> Deref for BufferSliceMut<'a, T, D> {
    type Target = BufferSlice<'a, T, D>;

    fn deref(&self) -> &BufferSlice<'a, T, D> {
        &self.slice
    }
}

impl<T: Pod, D: Device> BufferSliceMut<'_, T, D> {
    /// Writes the elements. See [`Buffer::write`].
    pub fn write(&mut self, from: &[T]) -> Result<(), Error> {
        check_len(&self.range, from.len())?;
        self.buffer.check_uncaptured()?;
        // SAFETY: 1. `from` is borrowed until the work has ended, in the next line.
        unsafe { self.write_async(from) }?;
        self.buffer.finish_borrowed()
    }

    /// Queues work that sets every byte of the elements to `byte`.
    pub fn fill(&mut self, byte: u8) -> Result<(), Error> {
        let Some((transfer, at, _awake)) = self.buffer.begin_write(&self.range)? else { return Ok(()) };
        let bytes = bytes::<T>(self.len());
        // SAFETY: 1. the buffer's stream is live. 3. as in `read_async`.
        Ok(unsafe { transfer.fill(at, byte, bytes, self.buffer.stream.handle()) }?)
    }

    /// Queues a copy of the elements of `from`, which are as many. See [`Buffer::copy_from`].
    pub fn copy_from(&mut self, from: &BufferSlice<'_, T, D>) -> Result<(), Error> {
        check_len(&self.range, from.len())?;
        let (own, source) = (self.buffer, from.buffer);
        if !Arc::ptr_eq(&own.stream.heap.shared, &source.stream.heap.shared) {
            return Err(Error::ForeignBuffer);
        }
        let Some((transfer, at, _awake)) = own.begin_write(&self.range)? else { return Ok(()) };
        let Some((_, first, _source_awake)) = source.begin_read(&from.range)? else { return Ok(()) };
        source.admit(&own.stream)?;
        let bytes = bytes::<T>(self.len());
        // SAFETY: 1. the buffer's stream is live. 3. both ranges are allocated, and are not reused before the stream
        // has passed this point: one belongs to this stream, the other has it recorded. They are parts of two
        // allocations, since this buffer is borrowed alone, so they do not overlap.
        Ok(unsafe { transfer.copy(at, first, bytes, own.stream.handle()) }?)
    }

    /// Queues a write of the elements from `from`, which has the same length.
    ///
    /// # Safety
    ///
    /// 1. `from` stays valid and is not written until the work has finished: promise 4 of [`hal`](crate::hal).
    pub unsafe fn write_async(&mut self, from: &[T]) -> Result<(), Error> {
        check_len(&self.range, from.len())?;
        let Some((transfer, at, _awake)) = self.buffer.begin_write(&self.range)? else { return Ok(()) };
        let (first, bytes) = (from.as_ptr().cast(), size_of_val(from));
        // SAFETY: 1. the buffer's stream is live. 3. as in `read_async`; the lengths are equal. 4. the caller's promise
        // 1.
        Ok(unsafe { transfer.upload(at, first, bytes, self.buffer.stream.handle()) }?)
    }
}

impl<T: Pod, D: Device> fmt::Debug for BufferSlice<'_, T, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BufferSlice").field("buffer", self.buffer).field("range", &self.range).finish()
    }
}

impl<T: Pod, D: Device> fmt::Debug for BufferSliceMut<'_, T, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("BufferSliceMut").field(&self.slice).finish()
    }
}
