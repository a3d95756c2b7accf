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

/// Methods that pass a call on to the device.
macro_rules! looked_up {
    ($($name:ident($($argument:ident: $type:ty),*) $(-> $value:ty)?;)*) => {
        $(pub(crate) fn $name(&self, $($argument: $type),*) -> Result<looked_up!(@ $($value)?)> {
            // SAFETY: the device looks handles and addresses up, and faults on later use. Tests keep what graphs name.
            unsafe { self.0.$name($($argument),*) }
        })*
    };
    (@) => { () };
    (@ $value:ty) => { $value };
}

impl Rig {
    looked_up! {
        free(ptr: DevicePtr);
        destroy_stream(stream: Stream);
        destroy_event(event: Event);
        synchronize(stream: StreamRef);
        record(event: &Event, stream: StreamRef);
        poll(event: &Event) -> Progress;
        wait(event: &Event);
        stream_wait(stream: StreamRef, event: &Event);
        fill(at: DevicePtr, byte: u8, bytes: u64, stream: StreamRef);
        copy(to: DevicePtr, from: DevicePtr, bytes: u64, stream: StreamRef);
        begin_capture(stream: StreamRef, mode: CaptureMode);
        end_capture(stream: StreamRef) -> Graph;
        launch(graph: &Graph, stream: StreamRef);
        destroy_graph(graph: Graph);
        allocate_on(bytes: u64, stream: StreamRef) -> DevicePtr;
        free_on(ptr: DevicePtr, stream: StreamRef);
        map(at: DevicePtr, backing: &Backing);
        unmap(at: DevicePtr, bytes: u64);
        release(start: DevicePtr, bytes: u64);
        destroy_backing(backing: Backing);
        set_access(at: DevicePtr, bytes: u64, access: &[Access]);
    }

    pub(crate) fn stream(&self) -> Stream {
        self.0.create_stream().unwrap()
    }

    pub(crate) fn event(&self) -> Event {
        self.0.create_event().unwrap()
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

    /// Lets this device read and write.
    pub(crate) fn grant(&self, at: DevicePtr, bytes: u64) -> Result<()> {
        self.set_access(at, bytes, &[Access::ReadWrite(self.0.info().ordinal)])
    }
}
