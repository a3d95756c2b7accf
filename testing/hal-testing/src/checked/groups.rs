//! The smaller groups of calls, checked.

use std::ptr::NonNull;

use super::table::{creates, ends, passes, uses};
use super::{Checked, Resource};
use cachette_hal::{
    Call, Capture, CaptureMode, CaptureNode, CaptureStatus, Device, DevicePtr, Graph, HostCalls, HostFunction,
    HostMemory, Ipc, IpcToken, Ordinal, PeerAccess, Result, StreamOrdered, StreamRef, Transfer,
};

impl<D: Device> StreamOrdered for Checked<D> {
    unsafe fn allocate_on(&self, bytes: u64, stream: StreamRef) -> Result<DevicePtr> {
        let group = self.device.stream_ordered()?;
        self.check_stream(Call::AllocateOn, stream)?;
        // SAFETY: 1. Checked above.
        let ptr = unsafe { group.allocate_on(bytes, stream) }?;
        self.watch.note(Call::AllocateOn, Resource::StreamOrderedMemory, ptr.address(), bytes);
        Ok(ptr)
    }

    ends! {
        [stream_ordered]
        fn free_on(ptr: DevicePtr, stream: StreamRef):
            FreeOn, StreamOrderedMemory, ptr.address(), check_stream(stream);
    }

    passes! {
        [stream_ordered]
        fn trim(keep: u64) -> ();
    }
}

impl<D: Device> HostMemory for Checked<D> {
    creates! {
        [host_memory]
        fn allocate_pinned(bytes: usize) -> NonNull<u8> as made:
            AllocatePinned, PinnedMemory, address(made), bytes as u64;
    }

    ends! {
        [host_memory]
        fn free_pinned(ptr: NonNull<u8>): FreePinned, PinnedMemory, address(ptr);
        fn unregister(ptr: NonNull<u8>): Unregister, RegisteredMemory, address(ptr);
    }

    unsafe fn register(&self, ptr: NonNull<u8>, bytes: usize) -> Result<()> {
        let group = self.device.host_memory()?;
        // SAFETY: the caller's promise about the range.
        unsafe { group.register(ptr, bytes) }?;
        self.watch.note(Call::Register, Resource::RegisteredMemory, address(ptr), bytes as u64);
        Ok(())
    }

    fn device_address(&self, ptr: NonNull<u8>) -> Result<DevicePtr> {
        let seen_at = self.device.host_memory()?.device_address(ptr)?;
        self.watch.ledger().note_alias(address(ptr), seen_at.address());
        Ok(seen_at)
    }
}

impl<D: Device> Ipc for Checked<D> {
    uses! {
        [ipc]
        fn export_token(base: DevicePtr) -> IpcToken: ExportToken, check_known(base);
    }

    creates! {
        [ipc]
        fn open_token(token: &IpcToken) -> DevicePtr as made: OpenToken, OpenedMemory, made.address(), 0;
    }

    ends! {
        [ipc]
        fn close_token(base: DevicePtr): CloseToken, OpenedMemory, base.address();
    }
}

impl<D: Device> Capture for Checked<D> {
    uses! {
        [capture]
        fn capture_status(stream: StreamRef) -> CaptureStatus: CaptureStatus, check_stream(stream);
        fn frontier(stream: StreamRef, nodes: &mut Vec<CaptureNode>) -> CaptureStatus: Frontier, check_stream(stream);
        // The ledger does not track nodes.
        fn dependencies(node: CaptureNode, nodes: &mut Vec<CaptureNode>) -> (): Dependencies;
        fn launch(graph: &Graph, stream: StreamRef) -> (): Launch, check_graph(graph), check_stream(stream);
    }

    ends! {
        [capture]
        fn destroy_graph(graph: Graph): DestroyGraph, Graph, graph.raw() as u64;
    }

    passes! {
        [capture]
        fn exchange_capture_mode(mode: CaptureMode) -> CaptureMode;
    }

    unsafe fn begin_capture(&self, stream: StreamRef, mode: CaptureMode) -> Result<()> {
        let group = self.device.capture()?;
        let call = Call::BeginCapture;
        self.check_stream(call, stream)?;
        // SAFETY: 1. Checked above.
        unsafe { group.begin_capture(stream, mode) }?;
        let origin = self.watch.origin(call);
        let key = (Resource::Stream, stream.raw() as u64);
        if let Some(entry) = self.watch.ledger().live.get_mut(&key) {
            entry.capture = Some(origin);
        }
        Ok(())
    }

    unsafe fn end_capture(&self, stream: StreamRef) -> Result<Graph> {
        let group = self.device.capture()?;
        let call = Call::EndCapture;
        let key = (Resource::Stream, stream.raw() as u64);
        // The capture ends even if the driver's call fails, so nothing is undone then.
        self.watch.check(|ledger| ledger.take_capture(call, key))?;
        // SAFETY: 1. Checked above.
        let graph = unsafe { group.end_capture(stream) }?;
        self.watch.note(call, Resource::Graph, graph.raw() as u64, 0);
        Ok(graph)
    }
}

impl<D: Device> PeerAccess for Checked<D> {
    passes! {
        [peer_access]
        fn can_reach(peer: Ordinal) -> bool;
    }

    fn enable_peer(&self, peer: Ordinal) -> Result<()> {
        self.device.peer_access()?.enable_peer(peer)?;
        self.watch.ledger().peers.insert(peer);
        Ok(())
    }

    fn disable_peer(&self, peer: Ordinal) -> Result<()> {
        self.device.peer_access()?.disable_peer(peer)?;
        self.watch.ledger().peers.remove(&peer);
        Ok(())
    }
}

impl<D: Device> Transfer for Checked<D> {
    uses! {
        [transfer]
        fn fill(at: DevicePtr, byte: u8, bytes: u64, stream: StreamRef) -> ():
            Fill, check_range(at, bytes), check_stream(stream);
        fn copy(to: DevicePtr, from: DevicePtr, bytes: u64, stream: StreamRef) -> ():
            Copy, check_range(to, bytes), check_range(from, bytes), check_stream(stream);
        fn upload(to: DevicePtr, from: *const u8, bytes: usize, stream: StreamRef) -> ():
            Upload, check_range(to, bytes as u64), check_stream(stream);
        fn download(to: *mut u8, from: DevicePtr, bytes: usize, stream: StreamRef) -> ():
            Download, check_range(from, bytes as u64), check_stream(stream);
    }
}

impl<D: Device> HostCalls for Checked<D> {
    uses! {
        [host_calls]
        fn call_host(stream: StreamRef, function: HostFunction) -> (): CallHost, check_stream(stream);
    }
}

impl<D: Device> Checked<D> {
    /// Fails unless the range lies in live memory. The driver itself rejects a range of zero bytes.
    fn check_range(&self, call: Call, at: DevicePtr, bytes: u64) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        self.watch.check(|ledger| ledger.reachable(call, at.address(), bytes))
    }

    fn check_known(&self, call: Call, base: DevicePtr) -> Result<()> {
        self.watch.check(|ledger| ledger.known(call, base.address()))
    }

    fn check_graph(&self, call: Call, graph: &Graph) -> Result<()> {
        self.watch.used(call, Resource::Graph, graph.raw())
    }
}

fn address(ptr: NonNull<u8>) -> u64 {
    ptr.addr().get() as u64
}
