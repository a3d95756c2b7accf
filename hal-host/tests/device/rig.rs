//! A device whose calls need no `unsafe`: it looks every handle and address up before use.

use std::ops::Deref;

use cachette_hal::{
    Access, Backing, Capture, CaptureMode, CaptureNode, CaptureStatus, Device, DevicePtr, Event, Graph, HostCalls,
    Ordinal, Progress, Result, Stream, StreamOrdered, StreamRef, Transfer, VirtualMemory,
};
use cachette_hal_host::{HostBackend, HostConfig, HostDevice};

/// Bytes of a mebibyte.
pub(crate) const MIB: u64 = 1 << 20;

/// One device under test.
#[derive(Clone)]
pub(crate) struct Rig(HostDevice);

/// The only device of a backend configured like this.
pub(crate) fn rig(config: HostConfig) -> Rig {
    let [device] = rigs(config.devices(1));
    device
}

/// All devices of a backend configured like this.
pub(crate) fn rigs<const N: usize>(config: HostConfig) -> [Rig; N] {
    let backend = HostBackend::new(config).unwrap();
    std::array::from_fn(|ordinal| {
        let ordinal = Ordinal(u32::try_from(ordinal).unwrap());
        Rig(backend.device(ordinal).unwrap())
    })
}

/// A small device whose streams have threads.
pub(crate) fn threaded() -> HostConfig {
    HostConfig::default().capacity(64 * MIB)
}

/// A small device that is stepped.
pub(crate) fn stepped(seed: u64) -> HostConfig {
    threaded().stepped(seed)
}

impl Deref for Rig {
    type Target = HostDevice;

    fn deref(&self) -> &HostDevice {
        &self.0
    }
}

impl Rig {
    pub(crate) fn free(&self, ptr: DevicePtr) -> Result<()> {
        // SAFETY: 1. and 2. the device looks the address up and waits until it is idle.
        unsafe { self.0.free(ptr) }
    }

    pub(crate) fn stream(&self) -> Stream {
        self.0.create_stream().unwrap()
    }

    pub(crate) fn event(&self) -> Event {
        self.0.create_event().unwrap()
    }

    pub(crate) fn destroy_stream(&self, stream: Stream) -> Result<()> {
        // SAFETY: 1. the device looks the handle up.
        unsafe { self.0.destroy_stream(stream) }
    }

    pub(crate) fn destroy_event(&self, event: Event) -> Result<()> {
        // SAFETY: 1. the device looks the handle up.
        unsafe { self.0.destroy_event(event) }
    }

    pub(crate) fn synchronize(&self, stream: StreamRef) -> Result<()> {
        // SAFETY: 1. the device looks the handle up.
        unsafe { self.0.synchronize(stream) }
    }

    pub(crate) fn record(&self, event: &Event, stream: StreamRef) -> Result<()> {
        // SAFETY: 1. the device looks the handles up.
        unsafe { self.0.record(event, stream) }
    }

    pub(crate) fn poll(&self, event: &Event) -> Result<Progress> {
        // SAFETY: 1. the device looks the handle up.
        unsafe { self.0.poll(event) }
    }

    pub(crate) fn wait(&self, event: &Event) -> Result<()> {
        // SAFETY: 1. the device looks the handle up.
        unsafe { self.0.wait(event) }
    }

    pub(crate) fn stream_wait(&self, stream: StreamRef, event: &Event) -> Result<()> {
        // SAFETY: 1. the device looks the handles up.
        unsafe { self.0.stream_wait(stream, event) }
    }

    pub(crate) fn fill(&self, at: DevicePtr, byte: u8, bytes: u64, stream: StreamRef) -> Result<()> {
        // SAFETY: 1. and 3. the device looks handle and range up.
        unsafe { self.0.fill(at, byte, bytes, stream) }
    }

    pub(crate) fn copy(&self, to: DevicePtr, from: DevicePtr, n: u64, stream: StreamRef) -> Result<()> {
        // SAFETY: 1. and 3. the device looks handle and ranges up.
        unsafe { self.0.copy(to, from, n, stream) }
    }

    /// Reads device memory in the order of a stream, and waits for it.
    pub(crate) fn read_on(&self, from: DevicePtr, bytes: usize, stream: StreamRef) -> Result<Vec<u8>> {
        let mut host = vec![0; bytes];
        // SAFETY: 1. and 3. the device looks handle and range up. 4. `host` outlives the wait below.
        unsafe { self.0.download(host.as_mut_ptr(), from, bytes, stream) }?;
        self.synchronize(stream)?;
        Ok(host)
    }

    /// Reads device memory.
    pub(crate) fn read(&self, from: DevicePtr, bytes: usize) -> Vec<u8> {
        self.read_on(from, bytes, StreamRef::DEFAULT).unwrap()
    }

    pub(crate) fn call_host(&self, stream: StreamRef, f: impl FnOnce() + Send + 'static) -> Result<()> {
        // SAFETY: 1. the device looks the handle up.
        unsafe { self.0.call_host(stream, Box::new(f)) }
    }

    pub(crate) fn begin_capture(&self, stream: StreamRef, mode: CaptureMode) -> Result<()> {
        // SAFETY: 1. the device looks the handle up.
        unsafe { self.0.begin_capture(stream, mode) }
    }

    pub(crate) fn end_capture(&self, stream: StreamRef) -> Result<Graph> {
        // SAFETY: 1. the device looks the handle up.
        unsafe { self.0.end_capture(stream) }
    }

    pub(crate) fn capture_status(&self, stream: StreamRef) -> CaptureStatus {
        // SAFETY: 1. the device looks the handle up.
        unsafe { self.0.capture_status(stream) }.unwrap()
    }

    pub(crate) fn frontier(&self, stream: StreamRef) -> Vec<CaptureNode> {
        let mut nodes = Vec::new();
        // SAFETY: 1. the device looks the handle up; what it shows is a copy.
        unsafe { self.0.frontier(stream, &mut nodes) }.unwrap();
        nodes
    }

    pub(crate) fn dependencies(&self, node: CaptureNode) -> Result<Vec<CaptureNode>> {
        let mut nodes = Vec::new();
        // SAFETY: 1. the device looks the node up.
        unsafe { self.0.dependencies(node, &mut nodes) }?;
        Ok(nodes)
    }

    pub(crate) fn launch(&self, graph: &Graph, stream: StreamRef) -> Result<()> {
        // SAFETY: 1. the device looks the handles up. 3. and 4. tests keep what their graphs name.
        unsafe { self.0.launch(graph, stream) }
    }

    pub(crate) fn destroy_graph(&self, graph: Graph) -> Result<()> {
        // SAFETY: 1. the device looks the handle up.
        unsafe { self.0.destroy_graph(graph) }
    }

    pub(crate) fn allocate_on(&self, bytes: u64, stream: StreamRef) -> Result<DevicePtr> {
        // SAFETY: 1. the device looks the handle up.
        unsafe { self.0.allocate_on(bytes, stream) }
    }

    pub(crate) fn free_on(&self, ptr: DevicePtr, stream: StreamRef) -> Result<()> {
        // SAFETY: 1. and 2. the device looks handle and address up, and faults on later use.
        unsafe { self.0.free_on(ptr, stream) }
    }

    pub(crate) fn map(&self, at: DevicePtr, backing: &Backing) -> Result<()> {
        // SAFETY: 1. the device looks the handle up.
        unsafe { self.0.map(at, backing) }
    }

    pub(crate) fn unmap(&self, at: DevicePtr, bytes: u64) -> Result<()> {
        // SAFETY: 2. the device faults on later use.
        unsafe { self.0.unmap(at, bytes) }
    }

    pub(crate) fn release(&self, start: DevicePtr, bytes: u64) -> Result<()> {
        // SAFETY: 1. the device looks the addresses up.
        unsafe { self.0.release(start, bytes) }
    }

    pub(crate) fn destroy_backing(&self, backing: Backing) -> Result<()> {
        // SAFETY: 1. the device looks the handle up.
        unsafe { self.0.destroy_backing(backing) }
    }

    pub(crate) fn set_access(&self, at: DevicePtr, bytes: u64, access: &[Access]) -> Result<()> {
        // SAFETY: 2. the device faults on later use.
        unsafe { self.0.set_access(at, bytes, access) }
    }

    /// Lets this device read and write.
    pub(crate) fn grant(&self, at: DevicePtr, bytes: u64) -> Result<()> {
        self.set_access(at, bytes, &[Access::ReadWrite(self.0.info().ordinal)])
    }
}
