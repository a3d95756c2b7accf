//! Host memory that keeps the contents of sleeping pools.

use std::alloc::{self, Layout};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;
use std::thread::available_parallelism;

use cachette_hal::{self as hal, Device};
use rustix::mm::{Advice, madvise};

use crate::device_state::DeviceState;
use crate::error::Error;
use crate::pinned::prefault;
use crate::stream_state::StreamState;
use crate::sync::Mutex;

/// The size of every slab except the last: large enough for full speed, small enough to be available.
const SLAB: u64 = 256 << 20;
/// The alignment of slabs, so that the host can use large pages.
const LARGE_PAGE: usize = 2 << 20;
/// The most threads that touch the pages of a slab. There are as many as processors, up to this.
const MOST_TOUCHERS: usize = 16;

/// One slab of host memory. It is page-locked if the device supports that, so that copies run at full speed.
pub(super) struct StagingBuffer<D: Device> {
    shared: Arc<DeviceState<D>>,
    pub(super) start: NonNull<u8>,
    layout: Layout,
    registered: bool,
    spilled: Option<Spilled>,
}

/// The bytes of a slab in a file. The slab has only its addresses then.
struct Spilled {
    file: File,
    checksum: u32,
}

// SAFETY: the memory is not bound to a thread, and only the owner of the slab uses it.
unsafe impl<D: Device> Send for StagingBuffer<D> {}

impl<D: Device> StagingBuffer<D> {
    /// Allocates a slab. Returns `None` if the host has no memory.
    ///
    /// An allocation by the driver touches every page on one thread, which takes twenty seconds for 32 GiB. So many
    /// threads touch ordinary memory, and it is registered afterwards.
    fn allocate(shared: &Arc<DeviceState<D>>, bytes: usize) -> Option<Self> {
        let layout = Layout::from_size_align(bytes, LARGE_PAGE).ok()?;
        // SAFETY: a slab has bytes.
        let start = NonNull::new(unsafe { alloc::alloc(layout) })?;
        let mut slab = Self { shared: Arc::clone(shared), start, layout, registered: false, spilled: None };
        // SAFETY: the range belongs to the slab. A kernel without large pages returns an error, which has no effect.
        let _ = unsafe { madvise(start.as_ptr().cast(), bytes, Advice::LinuxHugepage) };
        let threads = available_parallelism().map_or(1, |count| count.get().min(MOST_TOUCHERS));
        // SAFETY: the memory was just allocated, and only the slab has its address.
        unsafe { prefault::touch(start, bytes, threads) };
        slab.register();
        Some(slab)
    }

    fn register(&mut self) {
        if let Ok(host) = self.shared.device.host_memory() {
            // SAFETY: the range is valid until the slab is dropped, which unregisters it first.
            self.registered = unsafe { host.register(self.start, self.bytes()) }.is_ok();
        }
    }

    fn unregister(&mut self) -> hal::Result<()> {
        if self.registered
            && let Ok(host) = self.shared.device.host_memory()
        {
            // SAFETY: 1. it was registered with this device. 2. The callers have waited for copies.
            unsafe { host.unregister(self.start) }?;
            self.registered = false;
        }
        Ok(())
    }

    fn contents(&mut self) -> &mut [u8] {
        // SAFETY: the slab has so many bytes, whose pages were touched, and no copy is in progress.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes()) }
    }

    /// Moves the bytes to a file in a folder, and returns their pages to the host. Returns their number.
    pub(super) fn spill(&mut self, folder: &Path, failed: &dyn Fn(io::Error) -> Error) -> Result<u64, Error> {
        if self.spilled.is_some() {
            return Ok(0);
        }
        let write = |contents: &[u8]| {
            let mut file = tempfile::tempfile_in(folder)?;
            file.write_all(contents)?;
            Ok(Spilled { file, checksum: crc32fast::hash(contents) })
        };
        let spilled = write(self.contents()).map_err(failed)?;
        self.unregister()?;
        let pages = self.bytes() - self.bytes() % rustix::param::page_size();
        // SAFETY: the pages belong to the slab, which begins at a page. Their bytes are in the file.
        unsafe { madvise(self.start.as_ptr().cast(), pages, Advice::LinuxDontNeed) }
            .map_err(|why| failed(why.into()))?;
        self.spilled = Some(spilled);
        Ok(self.bytes() as u64)
    }

    /// Reads the bytes back from their file. After a failure they are still only there.
    pub(super) fn read_back(&mut self) -> io::Result<()> {
        let Some(mut spilled) = self.spilled.take() else { return Ok(()) };
        let contents = self.contents();
        let read = spilled.file.seek(SeekFrom::Start(0)).and_then(|_| spilled.file.read_exact(contents));
        let is_whole = |contents: &[u8]| crc32fast::hash(contents) == spilled.checksum;
        let read = read.and_then(|()| if is_whole(contents) { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) });
        match read {
            Ok(()) => self.register(),
            Err(_) => self.spilled = Some(spilled),
        }
        read
    }

    pub(super) const fn bytes(&self) -> usize {
        self.layout.size()
    }
}

impl<D: Device> Drop for StagingBuffer<D> {
    fn drop(&mut self) {
        // No copy is in progress when a slab is dropped. A destructor cannot return a failure. Memory that is still
        // registered must not be freed.
        if self.unregister().is_err() {
            return;
        }
        // SAFETY: it was allocated with this layout, and only the slab used it.
        unsafe { alloc::dealloc(self.start.as_ptr(), self.layout) };
    }
}

/// Unused slabs, for the next pool that goes to sleep.
pub(crate) struct StagingStore<D: Device> {
    idle: Mutex<Vec<StagingBuffer<D>>>,
    copies: Mutex<Option<Arc<StreamState<D>>>>,
}

impl<D: Device> Default for StagingStore<D> {
    fn default() -> Self {
        Self { idle: Mutex::new(Vec::new()), copies: Mutex::new(None) }
    }
}

impl<D: Device> StagingStore<D> {
    pub(super) fn copies(&self, shared: &Arc<DeviceState<D>>) -> hal::Result<Arc<StreamState<D>>> {
        let mut copies = self.copies.lock();
        if let Some(stream_state) = &*copies {
            return Ok(Arc::clone(stream_state));
        }
        let stream_state = Arc::new(StreamState::create(Arc::clone(shared))?);
        *copies = Some(Arc::clone(&stream_state));
        Ok(stream_state)
    }

    /// Returns slabs with at least `bytes` in total. Returns `None` if the host has too little memory.
    pub(super) fn take(&self, shared: &Arc<DeviceState<D>>, bytes: u64) -> Option<Vec<StagingBuffer<D>>> {
        let mut allocated: Vec<StagingBuffer<D>> = Vec::new();
        let mut left = bytes;
        while left > 0 {
            let idle = self.idle.lock().pop();
            let Some(slab) = idle.or_else(|| StagingBuffer::allocate(shared, usize::try_from(left.min(SLAB)).ok()?))
            else {
                self.put_back(allocated);
                return None;
            };
            left = left.saturating_sub(slab.bytes() as u64);
            allocated.push(slab);
        }
        Some(allocated)
    }

    pub(super) fn put_back(&self, slabs: Vec<StagingBuffer<D>>) {
        // The contents of a slab that has only its addresses are not needed any more.
        let idle: Vec<_> = slabs.into_iter().filter(|slab| slab.spilled.is_none()).collect();
        self.idle.lock().extend(idle);
    }

    /// Frees the unused slabs. Returns their bytes.
    pub(crate) fn clear(&self) -> u64 {
        let idle = std::mem::take(&mut *self.idle.lock());
        idle.iter().map(|slab| slab.bytes() as u64).sum()
    }
}
