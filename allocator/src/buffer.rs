//! Typed device memory that can be written, read and copied without pointers.

use std::fmt;
use std::marker::PhantomData;
use std::mem::{self, ManuallyDrop};
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{process, thread};

use bytemuck::Pod;
use cachette_hal::{self as hal, AnyDevice, Device, DevicePtr, ErrorKind, Transfer};

use crate::allocation::{Allocation, Answer};
use crate::allocator::Allocator;
use crate::error::Error;
use crate::fence::Fence;
use crate::pool::pool_state::AwakeGuard;
use crate::stream::Stream;
use crate::stream_state::{StreamState, WaitFailure};
use crate::sync::Mutex;

/// How long waits may fail before [`Buffer::write`] aborts the process.
const PATIENCE: Duration = Duration::from_secs(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// Device memory for a fixed number of elements, bound to a stream.
///
/// All work goes into the buffer's stream, in order. A copy between streams is ordered too: it runs after the earlier
/// writes to its source, and before later ones. The caller must order work that it queues through [`ptr`](Self::ptr).
///
/// The contents of a new buffer are unspecified. The calls that move data need the device's [`Transfer`] group. If it
/// is missing, they fail with [`Error::Missing`], which contains the reason. While the memory's pool sleeps they fail
/// with [`PoolProblem::Asleep`](crate::pool::PoolProblem::Asleep). A call that fails because of its arguments, or
/// because the pool sleeps, has queued nothing.
///
/// ```
/// use cachette::{Allocator, Backends};
///
/// let allocator = Allocator::new(Backends::open("host")?);
/// let (stream, side) = (allocator.create_stream()?, allocator.create_stream()?);
/// let mut weights = allocator.allocate_buffer::<f32>(4, &stream)?;
/// weights.write(&[1.0, 2.0, 3.0, 4.0])?;
///
/// let mut copy = allocator.allocate_buffer(4, &side)?;
/// copy.copy_from(&weights)?; // queued in `side`, behind the write
/// weights.fill(0)?; // queued in `stream`, behind the copy
/// assert_eq!(copy.read()?, [1.0, 2.0, 3.0, 4.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Buffer<T: Pod, D: Device = AnyDevice> {
    allocation: Allocation<D>,
    stream: Stream<D>,
    /// `len * size_of::<T>()` equals `allocation.requested()`.
    len: usize,
    /// Other streams with queued copies from this buffer; the next write waits for them.
    readers: Mutex<Vec<Arc<StreamState<D>>>>,
    element: PhantomData<T>,
}

/// The parts of a work item: the device calls, the address, and a guard that keeps the memory mapped until the work is
/// queued. A pool that goes to sleep then waits for the work.
type Work<'a> = (&'a dyn Transfer, DevicePtr, Option<AwakeGuard>);

impl<D: Device> Allocator<D> {
    /// Allocates a buffer of `len` elements, for work in `stream`.
    pub fn allocate_buffer<T: Pod>(&self, len: usize, stream: &Stream<D>) -> Result<Buffer<T, D>, Error> {
        let element_bytes = size_of::<T>();
        let bytes = len.checked_mul(element_bytes).ok_or(Error::TooManyElements { len, element_bytes })?;
        Ok(Buffer {
            allocation: self.allocate(bytes as u64, stream)?,
            stream: stream.clone(),
            len,
            readers: Mutex::default(),
            element: PhantomData,
        })
    }
}

impl<T: Pod, D: Device> Buffer<T, D> {
    /// The number of elements.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there are no elements.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The first element, for work that the caller queues; `None` if there are no bytes.
    #[must_use]
    pub const fn ptr(&self) -> Option<DevicePtr> {
        self.allocation.ptr()
    }

    /// The underlying memory, for example to record other streams that use it.
    #[must_use]
    pub const fn allocation(&self) -> &Allocation<D> {
        &self.allocation
    }

    /// Drops the element type and returns the memory.
    #[must_use = "dropping it frees the memory"]
    pub fn into_allocation(mut self) -> Allocation<D> {
        mem::replace(&mut self.allocation, Answer::empty(self.stream.handle()))
    }

    /// The stream of all work on the buffer.
    #[must_use]
    pub const fn stream(&self) -> &Stream<D> {
        &self.stream
    }

    /// Writes every element, and waits for the end of the write.
    ///
    /// A wait for a stream that is being captured fails and invalidates the capture.
    ///
    /// The call does not return while the device may read `from`. If every kind of wait fails for ten seconds, and the
    /// device is not lost, the process is aborted. Otherwise the caller could free `from` while the device reads it.
    pub fn write(&mut self, from: &[T]) -> Result<(), Error> {
        self.check_len(from.len())?;
        self.check_uncaptured()?;
        // SAFETY: 1. `from` is borrowed until the work has ended, in the next line.
        unsafe { self.write_async(from) }?;
        self.finish().map_err(|failed| self.outlast(failed).into())
    }

    /// Reads every element, after all work that was queued before.
    ///
    /// A wait for a stream that is being captured fails and invalidates the capture.
    pub fn read(&self) -> Result<Vec<T>, Error> {
        self.check_uncaptured()?;
        let mut to = vec![T::zeroed(); self.len];
        // SAFETY: 1. `to` is not accessed before the work has ended, in the next line; never, if that is not certain.
        unsafe { self.read_async(&mut to) }?;
        match self.finish() {
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

    /// Queues work that sets every byte to `byte`.
    pub fn fill(&mut self, byte: u8) -> Result<(), Error> {
        let bytes = self.allocation.requested();
        let Some((transfer, at, _awake)) = self.begin_write()? else { return Ok(()) };
        // SAFETY: 1. the buffer's stream is live. 3. the memory is allocated for that stream, and its segment is not
        // released before the stream has passed this point.
        Ok(unsafe { transfer.fill(at, byte, bytes, self.stream.handle()) }?)
    }

    /// Queues a copy of every element from `from`, which has the same length and the same allocator.
    ///
    /// If `from` has another stream, this stream waits on the device for the work queued there so far. The contents of
    /// `from` stay valid until the copy is done, even if `from` is dropped or written before.
    pub fn copy_from(&mut self, from: &Self) -> Result<(), Error> {
        self.check_len(from.len)?;
        if !Arc::ptr_eq(&self.stream.heap.shared, &from.stream.heap.shared) {
            return Err(Error::ForeignBuffer);
        }
        let bytes = self.allocation.requested();
        let Some((transfer, at, _awake)) = self.begin_write()? else { return Ok(()) };
        let Some((_, source, _source_awake)) = from.begin_read()? else { return Ok(()) };
        from.admit(&self.stream)?;
        // SAFETY: 1. the buffer's stream is live. 3. both ranges are allocated, and are not reused before the stream
        // has passed this point: one belongs to this stream, the other has it recorded. Two allocations do not overlap.
        Ok(unsafe { transfer.copy(at, source, bytes, self.stream.handle()) }?)
    }

    /// Queues a write of every element.
    ///
    /// # Safety
    ///
    /// 1. `from` stays valid and is not written until the work has finished: promise 4 of [`hal`](crate::hal).
    pub unsafe fn write_async(&mut self, from: &[T]) -> Result<(), Error> {
        self.check_len(from.len())?;
        let Some((transfer, at, _awake)) = self.begin_write()? else { return Ok(()) };
        let (first, bytes) = (from.as_ptr().cast(), size_of_val(from));
        // SAFETY: 1. the buffer's stream is live. 3. as in `fill`; the lengths are equal. 4. the caller's promise 1.
        Ok(unsafe { transfer.upload(at, first, bytes, self.stream.handle()) }?)
    }

    /// Queues a read of every element.
    ///
    /// # Safety
    ///
    /// 1. `to` stays valid and is neither read nor written until the work has finished: promise 4 of
    ///    [`hal`](crate::hal).
    pub unsafe fn read_async(&self, to: &mut [T]) -> Result<(), Error> {
        self.check_len(to.len())?;
        let Some((transfer, at, _awake)) = self.begin_read()? else { return Ok(()) };
        let (first, bytes) = (to.as_mut_ptr().cast(), size_of_val(to));
        // SAFETY: 1. the buffer's stream is live. 3. as in `fill`; the lengths are equal. 4. the caller's promise 1.
        Ok(unsafe { transfer.download(first, at, bytes, self.stream.handle()) }?)
    }

    const fn check_len(&self, given: usize) -> Result<(), Error> {
        if given == self.len { Ok(()) } else { Err(Error::LengthMismatch { len: self.len, given }) }
    }

    /// Prepares work that reads the buffer. Returns `None` if there are no bytes.
    fn begin_read(&self) -> Result<Option<Work<'_>>, Error> {
        let Some(at) = self.ptr() else { return Ok(None) };
        Ok(Some((self.stream.device().transfer()?, at, self.allocation.stay_awake()?)))
    }

    /// Prepares work that writes the buffer: waits on the device for all queued copies from it.
    fn begin_write(&self) -> Result<Option<Work<'_>>, Error> {
        if self.begin_read()?.is_none() {
            return Ok(None);
        }
        let mut readers = self.readers.lock();
        // A reader is removed only after the wait for it is queued, so that a failure loses no reader.
        while let Some(reader) = readers.last() {
            Fence::order(reader, &self.stream.stream_state)?;
            readers.pop();
        }
        self.begin_read()
    }

    /// Allows `stream` to copy from this buffer: after this stream's work so far, and before later writes or reuse.
    fn admit(&self, stream: &Stream<D>) -> Result<(), Error> {
        if Arc::ptr_eq(&stream.stream_state, &self.stream.stream_state) {
            return Ok(());
        }
        Fence::order(&self.stream.stream_state, &stream.stream_state)?;
        self.allocation.record_stream(stream);
        let mut readers = self.readers.lock();
        if !readers.iter().any(|known| Arc::ptr_eq(known, &stream.stream_state)) {
            readers.push(Arc::clone(&stream.stream_state));
        }
        Ok(())
    }

    /// Fails while the stream is captured: captured work does not run, so a wait for it would never end.
    fn check_uncaptured(&self) -> Result<(), Error> {
        if self.begin_read()?.is_some() && self.stream.stream_state.is_capturing() {
            // The wait invalidates the capture, whose graph would lack the work.
            self.stream.synchronize()?;
            return Err(hal::Error::new(ErrorKind::CaptureForbids, "synchronize").into());
        }
        Ok(())
    }

    /// Blocks the host until all queued work has ended.
    fn finish(&self) -> Result<(), WaitFailure> {
        if self.ptr().is_none() { Ok(()) } else { self.stream.stream_state.settle() }
    }

    /// Waits again after a failed wait, until the device no longer uses borrowed host memory.
    ///
    /// A return would let the owner free the memory, so in the end the process is aborted.
    #[cold]
    fn outlast(&self, first: WaitFailure) -> hal::Error {
        let begun = Instant::now();
        let (mut last, mut pause) = (first, Duration::from_millis(1));
        while !last.is_over && !last.error.kind().stops_work() {
            if begun.elapsed() > PATIENCE {
                eprintln!(
                    "cachette: the device may still read the memory that a buffer is written from, and every wait \
                     for it fails ({}); the process is aborted",
                    last.error
                );
                process::abort();
            }
            thread::sleep(pause);
            pause = LONGEST_PAUSE.min(pause * 2);
            match self.stream.stream_state.settle() {
                Ok(()) => break,
                Err(failed) => last = failed,
            }
        }
        first.error
    }
}

impl<T: Pod, D: Device> Drop for Buffer<T, D> {
    fn drop(&mut self) {
        if self.stream.stream_state.shared.origin.is_inherited() {
            // A thread of the parent process may have been changing the list, so its entries are not dropped.
            let _ = ManuallyDrop::new(mem::take(self.readers.get_mut()));
        }
    }
}

impl<T: Pod, D: Device> fmt::Debug for Buffer<T, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer")
            .field("element", &std::any::type_name::<T>())
            .field("len", &self.len)
            .field("allocation", &self.allocation)
            .finish_non_exhaustive()
    }
}
