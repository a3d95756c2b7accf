//! The smaller groups of calls, checked.

use std::ptr::NonNull;

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

    unsafe fn free_on(&self, ptr: DevicePtr, stream: StreamRef) -> Result<()> {
        let group = self.device.stream_ordered()?;
        self.check_stream(Call::FreeOn, stream)?;
        let key = (Resource::StreamOrderedMemory, ptr.address());
        // SAFETY: 1. The stream was checked above, and the ledger holds `ptr` as live.
        // 2. The caller's promise.
        self.watch.end(Call::FreeOn, key, || unsafe { group.free_on(ptr, stream) })
    }

    fn trim(&self, keep: u64) -> Result<()> {
        self.device.stream_ordered()?.trim(keep)
    }
}

impl<D: Device> HostMemory for Checked<D> {
    fn allocate_pinned(&self, bytes: usize) -> Result<NonNull<u8>> {
        let ptr = self.device.host_memory()?.allocate_pinned(bytes)?;
        self.watch.note(Call::AllocatePinned, Resource::PinnedMemory, address(ptr), bytes as u64);
        Ok(ptr)
    }

    unsafe fn free_pinned(&self, ptr: NonNull<u8>) -> Result<()> {
        let group = self.device.host_memory()?;
        let key = (Resource::PinnedMemory, address(ptr));
        // SAFETY: 1. The ledger lists `ptr` as live. 2. The caller's promise.
        self.watch.end(Call::FreePinned, key, || unsafe { group.free_pinned(ptr) })
    }

    unsafe fn register(&self, ptr: NonNull<u8>, bytes: usize) -> Result<()> {
        let group = self.device.host_memory()?;
        // SAFETY: the caller's promise about the range.
        unsafe { group.register(ptr, bytes) }?;
        self.watch.note(Call::Register, Resource::RegisteredMemory, address(ptr), bytes as u64);
        Ok(())
    }

    unsafe fn unregister(&self, ptr: NonNull<u8>) -> Result<()> {
        let group = self.device.host_memory()?;
        let key = (Resource::RegisteredMemory, address(ptr));
        // SAFETY: 1. The ledger lists `ptr` as registered. 2. The caller's promise.
        self.watch.end(Call::Unregister, key, || unsafe { group.unregister(ptr) })
    }

    fn device_address(&self, ptr: NonNull<u8>) -> Result<DevicePtr> {
        let seen_at = self.device.host_memory()?.device_address(ptr)?;
        self.watch.ledger().note_alias(address(ptr), seen_at.address());
        Ok(seen_at)
    }
}

impl<D: Device> Ipc for Checked<D> {
    unsafe fn export_token(&self, base: DevicePtr) -> Result<IpcToken> {
        let group = self.device.ipc()?;
        self.watch.check(|ledger| ledger.known(Call::ExportToken, base.address()))?;
        // SAFETY: 1. Checked above.
        unsafe { group.export_token(base) }
    }

    fn open_token(&self, token: &IpcToken) -> Result<DevicePtr> {
        let base = self.device.ipc()?.open_token(token)?;
        self.watch.note(Call::OpenToken, Resource::OpenedMemory, base.address(), 0);
        Ok(base)
    }

    unsafe fn close_token(&self, base: DevicePtr) -> Result<()> {
        let group = self.device.ipc()?;
        let key = (Resource::OpenedMemory, base.address());
        // SAFETY: 1. The ledger lists `base` as opened. 2. The caller's promise.
        self.watch.end(Call::CloseToken, key, || unsafe { group.close_token(base) })
    }
}

impl<D: Device> Capture for Checked<D> {
    unsafe fn capture_status(&self, stream: StreamRef) -> Result<CaptureStatus> {
        let group = self.device.capture()?;
        self.check_stream(Call::CaptureStatus, stream)?;
        // SAFETY: 1. Checked above.
        unsafe { group.capture_status(stream) }
    }

    unsafe fn frontier(&self, stream: StreamRef, nodes: &mut Vec<CaptureNode>) -> Result<CaptureStatus> {
        let group = self.device.capture()?;
        self.check_stream(Call::Frontier, stream)?;
        // SAFETY: 1. Checked above.
        unsafe { group.frontier(stream, nodes) }
    }

    unsafe fn dependencies(&self, node: CaptureNode, nodes: &mut Vec<CaptureNode>) -> Result<()> {
        let group = self.device.capture()?;
        // SAFETY: 1. The caller's promise; the ledger does not track nodes.
        unsafe { group.dependencies(node, nodes) }
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

    unsafe fn launch(&self, graph: &Graph, stream: StreamRef) -> Result<()> {
        let group = self.device.capture()?;
        self.watch.used(Call::Launch, Resource::Graph, graph.raw())?;
        self.check_stream(Call::Launch, stream)?;
        // SAFETY: 1. Both checked above. 3 and 4. The caller's promises.
        unsafe { group.launch(graph, stream) }
    }

    unsafe fn destroy_graph(&self, graph: Graph) -> Result<()> {
        let group = self.device.capture()?;
        let key = (Resource::Graph, graph.raw() as u64);
        // SAFETY: 1. The ledger lists `graph` as live.
        self.watch.end(Call::DestroyGraph, key, || unsafe { group.destroy_graph(graph) })
    }

    fn exchange_capture_mode(&self, mode: CaptureMode) -> Result<CaptureMode> {
        self.device.capture()?.exchange_capture_mode(mode)
    }
}

impl<D: Device> PeerAccess for Checked<D> {
    fn can_reach(&self, peer: Ordinal) -> Result<bool> {
        self.device.peer_access()?.can_reach(peer)
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
    unsafe fn fill(&self, at: DevicePtr, byte: u8, bytes: u64, stream: StreamRef) -> Result<()> {
        let group = self.device.transfer()?;
        self.check_range(Call::Fill, at, bytes)?;
        self.check_stream(Call::Fill, stream)?;
        // SAFETY: 1 and 3. Checked above.
        unsafe { group.fill(at, byte, bytes, stream) }
    }

    unsafe fn copy(&self, to: DevicePtr, from: DevicePtr, bytes: u64, stream: StreamRef) -> Result<()> {
        let group = self.device.transfer()?;
        self.check_range(Call::Copy, to, bytes)?;
        self.check_range(Call::Copy, from, bytes)?;
        self.check_stream(Call::Copy, stream)?;
        // SAFETY: 1 and 3. Checked above; that the ranges do not overlap is the caller's promise.
        unsafe { group.copy(to, from, bytes, stream) }
    }

    unsafe fn upload(&self, to: DevicePtr, from: *const u8, bytes: usize, stream: StreamRef) -> Result<()> {
        let group = self.device.transfer()?;
        self.check_range(Call::Upload, to, bytes as u64)?;
        self.check_stream(Call::Upload, stream)?;
        // SAFETY: 1 and 3. Checked above. 4. The caller's promise.
        unsafe { group.upload(to, from, bytes, stream) }
    }

    unsafe fn download(&self, to: *mut u8, from: DevicePtr, bytes: usize, stream: StreamRef) -> Result<()> {
        let group = self.device.transfer()?;
        self.check_range(Call::Download, from, bytes as u64)?;
        self.check_stream(Call::Download, stream)?;
        // SAFETY: 1 and 3. Checked above. 4. The caller's promise.
        unsafe { group.download(to, from, bytes, stream) }
    }
}

impl<D: Device> HostCalls for Checked<D> {
    unsafe fn call_host(&self, stream: StreamRef, function: HostFunction) -> Result<()> {
        let group = self.device.host_calls()?;
        self.check_stream(Call::CallHost, stream)?;
        // SAFETY: 1. Checked above.
        unsafe { group.call_host(stream, function) }
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
}

/// Host memory as a number.
fn address(ptr: NonNull<u8>) -> u64 {
    ptr.addr().get() as u64
}
