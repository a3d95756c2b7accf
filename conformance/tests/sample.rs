//! A backend of one file, as docs/porting.md describes it: memory, streams and events, and none of the groups.
//!
//! Its device is host memory whose streams have no work, so all work has finished as soon as it is queued.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cachette_conformance::Fixture;
use cachette_hal::{
    AnyDevice, Backend, BackendInfo, Device, DeviceInfo, DevicePtr, Error, ErrorKind, Event, MemoryInfo, Ordinal,
    Progress, Result, Stream, StreamRef, Vendor, Version,
};

const TOTAL: u64 = 64 << 20;
const ALIGNMENT: u16 = 512;

/// What the driver of a vendor would keep.
#[derive(Debug, Default)]
struct Driver {
    memory: BTreeMap<u64, Layout>,
    /// Streams and events have numbers from 1 up, so that the default stream is 0.
    handles: BTreeSet<usize>,
    last: usize,
}

#[derive(Debug)]
struct SampleBackend {
    info: BackendInfo,
    driver: Arc<Mutex<Driver>>,
}

#[derive(Debug)]
struct SampleDevice {
    info: DeviceInfo,
    driver: Arc<Mutex<Driver>>,
}

impl SampleBackend {
    /// A real backend opens its driver here, and returns a `LoadError` without it.
    fn load() -> Self {
        let info = BackendInfo::new("sample", Vendor::Other, Version::new(1, 0), "built in".to_owned(), false);
        Self { info, driver: Arc::default() }
    }
}

impl Backend for SampleBackend {
    fn info(&self) -> &BackendInfo {
        &self.info
    }

    fn device_count(&self) -> Result<u32> {
        Ok(1)
    }

    fn open(&self, ordinal: Ordinal) -> Result<AnyDevice> {
        if ordinal != Ordinal(0) {
            return Err(Error::new(ErrorKind::NoSuchDevice, "open"));
        }
        let info = DeviceInfo::new(ordinal, Vendor::Other, "sample device".to_owned(), TOTAL, ALIGNMENT.into());
        // Two objects of one device share its memory, streams and events.
        Ok(Arc::new(SampleDevice { info, driver: Arc::clone(&self.driver) }))
    }
}

impl SampleDevice {
    fn driver(&self) -> MutexGuard<'_, Driver> {
        self.driver.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A call with a handle that is not live is refused, and never crashes.
    fn check(&self, call: &'static str, handles: &[usize]) -> Result<()> {
        let driver = self.driver();
        if handles.iter().all(|handle| *handle == StreamRef::DEFAULT.raw() || driver.handles.contains(handle)) {
            Ok(())
        } else {
            Err(Error::new(ErrorKind::InvalidHandle, call))
        }
    }

    fn create(&self) -> usize {
        let mut driver = self.driver();
        driver.last += 1;
        let handle = driver.last;
        driver.handles.insert(handle);
        handle
    }

    fn destroy(&self, call: &'static str, handle: usize) -> Result<()> {
        if self.driver().handles.remove(&handle) { Ok(()) } else { Err(Error::new(ErrorKind::InvalidHandle, call)) }
    }
}

impl Device for SampleDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn memory_info(&self) -> Result<MemoryInfo> {
        let used: u64 = self.driver().memory.values().map(|layout| layout.size() as u64).sum();
        Ok(MemoryInfo { free: TOTAL - used, total: TOTAL })
    }

    fn allocate(&self, bytes: u64) -> Result<DevicePtr> {
        let failed = |kind| Error::new(kind, "allocate");
        if bytes == 0 {
            return Err(failed(ErrorKind::InvalidValue));
        }
        let free = self.memory_info()?.free;
        let size = usize::try_from(bytes).ok().filter(|_| bytes <= free);
        let layout = size.and_then(|size| Layout::from_size_align(size, ALIGNMENT.into()).ok());
        let layout = layout.ok_or(failed(ErrorKind::OutOfMemory))?;
        // SAFETY: the layout has at least one byte.
        let address = unsafe { alloc_zeroed(layout) }.expose_provenance() as u64;
        let ptr = DevicePtr::new(address).ok_or(failed(ErrorKind::OutOfMemory))?;
        self.driver().memory.insert(address, layout);
        Ok(ptr)
    }

    unsafe fn free(&self, ptr: DevicePtr) -> Result<()> {
        let found = self.driver().memory.remove(&ptr.address()).zip(usize::try_from(ptr.address()).ok());
        let (layout, address) = found.ok_or(Error::new(ErrorKind::InvalidValue, "free"))?;
        // SAFETY: the memory was allocated with this layout, and no longer is in the table.
        unsafe { dealloc(ptr::with_exposed_provenance_mut(address), layout) };
        Ok(())
    }

    fn create_stream(&self) -> Result<Stream> {
        Ok(Stream::from_raw(self.create()))
    }

    unsafe fn destroy_stream(&self, stream: Stream) -> Result<()> {
        self.destroy("destroy_stream", stream.raw())
    }

    unsafe fn synchronize(&self, stream: StreamRef) -> Result<()> {
        self.check("synchronize", &[stream.raw()])
    }

    fn synchronize_device(&self) -> Result<()> {
        Ok(())
    }

    fn create_event(&self) -> Result<Event> {
        Ok(Event::from_raw(self.create()))
    }

    unsafe fn destroy_event(&self, event: Event) -> Result<()> {
        self.destroy("destroy_event", event.raw())
    }

    unsafe fn record(&self, event: &Event, stream: StreamRef) -> Result<()> {
        self.check("record", &[event.raw(), stream.raw()])
    }

    unsafe fn poll(&self, event: &Event) -> Result<Progress> {
        self.check("poll", &[event.raw()]).map(|()| Progress::Done)
    }

    unsafe fn wait(&self, event: &Event) -> Result<()> {
        self.check("wait", &[event.raw()])
    }

    unsafe fn stream_wait(&self, stream: StreamRef, event: &Event) -> Result<()> {
        self.check("stream_wait", &[stream.raw(), event.raw()])
    }
}

fn main() -> ExitCode {
    cachette_conformance::main(Fixture::new("sample", || Ok(Arc::new(SampleBackend::load()))))
}
