//! Typed device memory that can be written, read and copied without pointers.

mod slice;

use std::fmt;
use std::marker::PhantomData;
use std::mem::{self, ManuallyDrop};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{process, thread};

use bytemuck::Pod;
use cachette_hal::{self as hal, AnyDevice, Device, DevicePtr, ErrorKind, Transfer};
pub use slice::{BufferSlice, BufferSliceMut};

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
/// copy.slice_mut(1..3)?.copy_from(&weights.slice(..2)?)?; // a part, also queued in `side`
/// assert_eq!(copy.read()?, [1.0, 0.0, 0.0, 4.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// `T` is any type that may have every bit pattern and has no padding: `f32`, `u8`, `[f32; 3]`, but not `bool`. A struct
/// becomes one by the derives of [`bytemuck`](crate::bytemuck), which check that. No other dependency is needed:
///
/// ```
/// use cachette::bytemuck::{Pod, Zeroable};
/// use cachette::{Allocator, Backends};
///
/// #[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
/// #[bytemuck(crate = "cachette::bytemuck")]
/// #[repr(C)]
/// struct Particle {
///     position: [f32; 3],
///     charge: f32,
/// }
///
/// let allocator = Allocator::new(Backends::open("host")?);
/// let mut particles = allocator.allocate_buffer(2, &allocator.create_stream()?)?;
/// let written = [1.0, -1.0].map(|charge| Particle { position: [0.0; 3], charge });
/// particles.write(&written)?;
/// assert_eq!(particles.read()?, written);
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

    /// Allocates a buffer of `len` elements, and queues the work that sets all of its bytes to zero.
    pub fn allocate_zeroed<T: Pod>(&self, len: usize, stream: &Stream<D>) -> Result<Buffer<T, D>, Error> {
        let mut buffer = self.allocate_buffer(len, stream)?;
        buffer.fill(0)?;
        Ok(buffer)
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
        self.whole_mut().write(from)
    }

    /// Writes elements from the index `first` on, and waits for the end of the write, as [`write`](Self::write) does.
    pub fn write_at(&mut self, first: usize, from: &[T]) -> Result<(), Error> {
        self.slice_mut(first..first.saturating_add(from.len()))?.write(from)
    }

    /// Reads every element, after all work that was queued before.
    ///
    /// A wait for a stream that is being captured fails and invalidates the capture.
    pub fn read(&self) -> Result<Vec<T>, Error> {
        self.whole().read()
    }

    /// Reads every element into `to`, which has the same length.
    ///
    /// Like [`write`](Self::write), it does not return while the device may write to `to`.
    pub fn read_into(&self, to: &mut [T]) -> Result<(), Error> {
        self.whole().read_into(to)
    }

    /// Queues work that sets every byte to `byte`.
    pub fn fill(&mut self, byte: u8) -> Result<(), Error> {
        self.whole_mut().fill(byte)
    }

    /// Queues a copy of every element from `from`, which has the same length and the same allocator.
    ///
    /// If `from` has another stream, this stream waits on the device for the work queued there so far. The contents of
    /// `from` stay valid until the copy is done, even if `from` is dropped or written before.
    pub fn copy_from(&mut self, from: &Self) -> Result<(), Error> {
        self.whole_mut().copy_from(&from.whole())
    }

    /// Queues a write of every element.
    ///
    /// # Safety
    ///
    /// 1. `from` stays valid and is not written until the work has finished: promise 4 of [`hal`](crate::hal).
    pub unsafe fn write_async(&mut self, from: &[T]) -> Result<(), Error> {
        // SAFETY: 1. the caller's promise 1.
        unsafe { self.whole_mut().write_async(from) }
    }

    /// Queues a read of every element.
    ///
    /// # Safety
    ///
    /// 1. `to` stays valid and is neither read nor written until the work has finished: promise 4 of
    ///    [`hal`](crate::hal).
    pub unsafe fn read_async(&self, to: &mut [T]) -> Result<(), Error> {
        // SAFETY: 1. the caller's promise 1.
        unsafe { self.whole().read_async(to) }
    }

    /// Prepares work that reads the elements in `range`. Returns `None` if they have no bytes.
    fn begin_read(&self, range: &Range<usize>) -> Result<Option<Work<'_>>, Error> {
        let Some(at) = self.ptr_of(range) else { return Ok(None) };
        Ok(Some((self.stream.device().transfer()?, at, self.allocation.stay_awake()?)))
    }

    /// Prepares work that writes the elements: waits on the device for all queued copies from the buffer.
    fn begin_write(&self, range: &Range<usize>) -> Result<Option<Work<'_>>, Error> {
        if self.begin_read(range)?.is_none() {
            return Ok(None);
        }
        let mut readers = self.readers.lock();
        // A reader is removed only after the wait for it is queued, so that a failure loses no reader.
        while let Some(reader) = readers.last() {
            Fence::order(reader, &self.stream.stream_state)?;
            readers.pop();
        }
        self.begin_read(range)
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
        if self.begin_read(&(0..self.len))?.is_some() && self.stream.stream_state.is_capturing() {
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

    /// Does the same for work that uses borrowed host memory, and returns only when the work has ended.
    fn finish_borrowed(&self) -> Result<(), Error> {
        self.finish().map_err(|failed| self.outlast(failed).into())
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
                    "cachette: the device may still use the host memory of a copy, and every wait for it fails ({}); \
                     the process is aborted",
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
