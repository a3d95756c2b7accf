//! The groups of calls, traced.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use super::{Facts, Traced};
use crate::{
    Access, Backing, Call, Capture, CaptureMode, CaptureNode, CaptureStatus, Device, DevicePtr, FabricHandle,
    Granularity, Graph, HostCalls, HostFunction, HostMemory, Ipc, IpcToken, Ordinal, PeerAccess, Reason, Result,
    Sharing, StreamOrdered, StreamRef, Transfer, VirtualMemory,
};

impl<D: Device> VirtualMemory for Traced<D> {
    /// One byte where the device has no virtual memory, and nothing can be reserved.
    fn granularity(&self) -> Granularity {
        let nothing = Granularity { minimum: 1, recommended: 1 };
        let group = self.device.virtual_memory();
        group.map_or(nothing, VirtualMemory::granularity)
    }

    fn shares(&self, sharing: Sharing) -> Result<(), Reason> {
        let group = self.device.virtual_memory();
        group.map_err(|missing| missing.reason)?.shares(sharing)
    }

    fn aliases(&self) -> Result<(), Reason> {
        let group = self.device.virtual_memory();
        group.map_err(|missing| missing.reason)?.aliases()
    }

    fn frees_under_reservation(&self) -> Result<(), Reason> {
        let group = self.device.virtual_memory();
        group.map_err(|missing| missing.reason)?.frees_under_reservation()
    }

    fn reserve(&self, bytes: u64, wish: Option<DevicePtr>) -> Result<DevicePtr> {
        let group = self.device.virtual_memory()?;
        let facts = Facts::of(Call::Reserve).bytes(bytes);
        self.tell_made(facts, || group.reserve(bytes, wish), |made| made.address())
    }

    unsafe fn release(&self, start: DevicePtr, bytes: u64) -> Result<()> {
        let group = self.device.virtual_memory()?;
        self.tell(of_range(Call::Release, start, bytes), || {
            // SAFETY: the caller's promises are passed on unchanged.
            unsafe { group.release(start, bytes) }
        })
    }

    fn create_backing(&self, bytes: u64, sharing: Sharing) -> Result<Backing> {
        let group = self.device.virtual_memory()?;
        let facts = Facts::of(Call::CreateBacking).bytes(bytes);
        let run = || group.create_backing(bytes, sharing);
        self.tell_made(facts, run, |made| made.raw() as u64)
    }

    unsafe fn destroy_backing(&self, backing: Backing) -> Result<()> {
        let group = self.device.virtual_memory()?;
        self.tell(of_backing(Call::DestroyBacking, &backing), || {
            // SAFETY: the caller's promises are passed on unchanged.
            unsafe { group.destroy_backing(backing) }
        })
    }

    unsafe fn map(&self, at: DevicePtr, backing: &Backing) -> Result<()> {
        let group = self.device.virtual_memory()?;
        self.tell(of_range(Call::Map, at, backing.bytes()), || {
            // SAFETY: the caller's promises are passed on unchanged.
            unsafe { group.map(at, backing) }
        })
    }

    unsafe fn unmap(&self, at: DevicePtr, bytes: u64) -> Result<()> {
        let group = self.device.virtual_memory()?;
        self.tell(of_range(Call::Unmap, at, bytes), || {
            // SAFETY: the caller's promises are passed on unchanged.
            unsafe { group.unmap(at, bytes) }
        })
    }

    unsafe fn set_access(&self, at: DevicePtr, bytes: u64, access: &[Access]) -> Result<()> {
        let group = self.device.virtual_memory()?;
        self.tell(of_range(Call::SetAccess, at, bytes), || {
            // SAFETY: the caller's promises are passed on unchanged.
            unsafe { group.set_access(at, bytes, access) }
        })
    }

    unsafe fn export_backing(&self, backing: &Backing) -> Result<OwnedFd> {
        let group = self.device.virtual_memory()?;
        self.tell(of_backing(Call::ExportBacking, backing), || {
            // SAFETY: the caller's promises are passed on unchanged.
            unsafe { group.export_backing(backing) }
        })
    }

    fn import_backing(&self, fd: BorrowedFd<'_>, bytes: u64) -> Result<Backing> {
        let group = self.device.virtual_memory()?;
        let facts = Facts::of(Call::ImportBacking).bytes(bytes);
        let run = || group.import_backing(fd, bytes);
        self.tell_made(facts, run, |made| made.raw() as u64)
    }

    unsafe fn export_fabric(&self, backing: &Backing) -> Result<FabricHandle> {
        let group = self.device.virtual_memory()?;
        self.tell(of_backing(Call::ExportFabric, backing), || {
            // SAFETY: the caller's promises are passed on unchanged.
            unsafe { group.export_fabric(backing) }
        })
    }

    fn import_fabric(&self, handle: &FabricHandle, bytes: u64) -> Result<Backing> {
        let group = self.device.virtual_memory()?;
        let facts = Facts::of(Call::ImportFabric).bytes(bytes);
        let run = || group.import_fabric(handle, bytes);
        self.tell_made(facts, run, |made| made.raw() as u64)
    }
}

impl<D: Device> StreamOrdered for Traced<D> {
    unsafe fn allocate_on(&self, bytes: u64, stream: StreamRef) -> Result<DevicePtr> {
        let group = self.device.stream_ordered()?;
        let facts = Facts::of(Call::AllocateOn).bytes(bytes).stream(stream);
        let run = || {
            // SAFETY: the caller's promises are passed on unchanged.
            unsafe { group.allocate_on(bytes, stream) }
        };
        self.tell_made(facts, run, |made| made.address())
    }

    unsafe fn free_on(&self, ptr: DevicePtr, stream: StreamRef) -> Result<()> {
        let group = self.device.stream_ordered()?;
        self.tell(of_range(Call::FreeOn, ptr, 0).stream(stream), || {
            // SAFETY: the caller's promises are passed on unchanged.
            unsafe { group.free_on(ptr, stream) }
        })
    }

    fn trim(&self, keep: u64) -> Result<()> {
        let group = self.device.stream_ordered()?;
        self.tell(Facts::of(Call::Trim).bytes(keep), || group.trim(keep))
    }
}

impl<D: Device> HostMemory for Traced<D> {
    fn allocate_pinned(&self, bytes: usize) -> Result<NonNull<u8>> {
        let group = self.device.host_memory()?;
        let facts = Facts::of(Call::AllocatePinned).bytes(bytes as u64);
        self.tell_made(facts, || group.allocate_pinned(bytes), |made| address(*made))
    }

    unsafe fn free_pinned(&self, ptr: NonNull<u8>) -> Result<()> {
        let group = self.device.host_memory()?;
        self.tell(Facts::of(Call::FreePinned).subject(address(ptr)), || {
            // SAFETY: the caller's promises are passed on unchanged.
            unsafe { group.free_pinned(ptr) }
        })
    }

    unsafe fn register(&self, ptr: NonNull<u8>, bytes: usize) -> Result<()> {
        let group = self.device.host_memory()?;
        let facts = Facts::of(Call::Register).subject(address(ptr));
        self.tell(facts.bytes(bytes as u64), || {
            // SAFETY: the caller's promises are passed on unchanged.
            unsafe { group.register(ptr, bytes) }
        })
    }

    unsafe fn unregister(&self, ptr: NonNull<u8>) -> Result<()> {
        let group = self.device.host_memory()?;
        self.tell(Facts::of(Call::Unregister).subject(address(ptr)), || {
            // SAFETY: the caller's promises are passed on unchanged.
            unsafe { group.unregister(ptr) }
        })
    }

    fn device_address(&self, ptr: NonNull<u8>) -> Result<DevicePtr> {
        let group = self.device.host_memory()?;
        let facts = Facts::of(Call::DeviceAddress).subject(address(ptr));
        self.tell(facts, || group.device_address(ptr))
    }
}

impl<D: Device> Ipc for Traced<D> {
    unsafe fn export_token(&self, base: DevicePtr) -> Result<IpcToken> {
        let group = self.device.ipc()?;
        self.tell(of_range(Call::ExportToken, base, 0), || {
            // SAFETY: the caller's promises are passed on unchanged.
            unsafe { group.export_token(base) }
        })
    }

    fn open_token(&self, token: &IpcToken) -> Result<DevicePtr> {
        let group = self.device.ipc()?;
        let facts = Facts::of(Call::OpenToken);
        self.tell_made(facts, || group.open_token(token), |made| made.address())
    }

    unsafe fn close_token(&self, base: DevicePtr) -> Result<()> {
        let group = self.device.ipc()?;
        self.tell(of_range(Call::CloseToken, base, 0), || {
            // SAFETY: the caller's promises are passed on unchanged.
            unsafe { group.close_token(base) }
        })
    }
}

impl<D: Device> Capture for Traced<D> {
    unsafe fn capture_status(&self, stream: StreamRef) -> Result<CaptureStatus> {
        let group = self.device.capture()?;
        self.tell(Facts::of(Call::CaptureStatus).stream(stream), || {
            // SAFETY: the caller's promises are passed on unchanged.
            unsafe { group.capture_status(stream) }
        })
    }

    unsafe fn frontier(&self, stream: StreamRef, nodes: &mut Vec<CaptureNode>) -> Result<CaptureStatus> {
        let group = self.device.capture()?;
        self.tell(Facts::of(Call::Frontier).stream(stream), || {
            // SAFETY: the caller's promises are passed on unchanged.
            unsafe { group.frontier(stream, nodes) }
        })
    }

    unsafe fn dependencies(&self, node: CaptureNode, nodes: &mut Vec<CaptureNode>) -> Result<()> {
        let group = self.device.capture()?;
        let facts = Facts::of(Call::Dependencies).subject(node.raw() as u64);
        self.tell(facts, || {
            // SAFETY: the caller's promises are passed on unchanged.
            unsafe { group.dependencies(node, nodes) }
        })
    }

    unsafe fn begin_capture(&self, stream: StreamRef, mode: CaptureMode) -> Result<()> {
        let group = self.device.capture()?;
        self.tell(Facts::of(Call::BeginCapture).stream(stream), || {
            // SAFETY: the caller's promises are passed on unchanged.
            unsafe { group.begin_capture(stream, mode) }
        })
    }

    unsafe fn end_capture(&self, stream: StreamRef) -> Result<Graph> {
        let group = self.device.capture()?;
        let run = || {
            // SAFETY: the caller's promises are passed on unchanged.
            unsafe { group.end_capture(stream) }
        };
        let facts = Facts::of(Call::EndCapture).stream(stream);
        self.tell_made(facts, run, |made| made.raw() as u64)
    }

    unsafe fn launch(&self, graph: &Graph, stream: StreamRef) -> Result<()> {
        let group = self.device.capture()?;
        let facts = Facts::of(Call::Launch).subject(graph.raw() as u64);
        self.tell(facts.stream(stream), || {
            // SAFETY: the caller's promises are passed on unchanged.
            unsafe { group.launch(graph, stream) }
        })
    }

    unsafe fn destroy_graph(&self, graph: Graph) -> Result<()> {
        let group = self.device.capture()?;
        let facts = Facts::of(Call::DestroyGraph).subject(graph.raw() as u64);
        self.tell(facts, || {
            // SAFETY: the caller's promises are passed on unchanged.
            unsafe { group.destroy_graph(graph) }
        })
    }

    fn exchange_capture_mode(&self, mode: CaptureMode) -> Result<CaptureMode> {
        let group = self.device.capture()?;
        self.tell(Facts::of(Call::ExchangeCaptureMode), || group.exchange_capture_mode(mode))
    }
}

impl<D: Device> PeerAccess for Traced<D> {
    fn can_reach(&self, peer: Ordinal) -> Result<bool> {
        let group = self.device.peer_access()?;
        self.tell(of_peer(Call::CanReach, peer), || group.can_reach(peer))
    }

    fn enable_peer(&self, peer: Ordinal) -> Result<()> {
        let group = self.device.peer_access()?;
        self.tell(of_peer(Call::EnablePeer, peer), || group.enable_peer(peer))
    }

    fn disable_peer(&self, peer: Ordinal) -> Result<()> {
        let group = self.device.peer_access()?;
        self.tell(of_peer(Call::DisablePeer, peer), || group.disable_peer(peer))
    }
}

impl<D: Device> Transfer for Traced<D> {
    unsafe fn fill(&self, at: DevicePtr, byte: u8, bytes: u64, stream: StreamRef) -> Result<()> {
        let group = self.device.transfer()?;
        self.tell(of_range(Call::Fill, at, bytes).stream(stream), || {
            // SAFETY: the caller's promises are passed on unchanged.
            unsafe { group.fill(at, byte, bytes, stream) }
        })
    }

    unsafe fn copy(&self, to: DevicePtr, from: DevicePtr, bytes: u64, stream: StreamRef) -> Result<()> {
        let group = self.device.transfer()?;
        self.tell(of_range(Call::Copy, to, bytes).stream(stream), || {
            // SAFETY: the caller's promises are passed on unchanged.
            unsafe { group.copy(to, from, bytes, stream) }
        })
    }

    unsafe fn upload(&self, to: DevicePtr, from: *const u8, bytes: usize, stream: StreamRef) -> Result<()> {
        let group = self.device.transfer()?;
        let facts = of_range(Call::Upload, to, bytes as u64).stream(stream);
        self.tell(facts, || {
            // SAFETY: the caller's promises are passed on unchanged.
            unsafe { group.upload(to, from, bytes, stream) }
        })
    }

    unsafe fn download(&self, to: *mut u8, from: DevicePtr, bytes: usize, stream: StreamRef) -> Result<()> {
        let group = self.device.transfer()?;
        let facts = of_range(Call::Download, from, bytes as u64).stream(stream);
        self.tell(facts, || {
            // SAFETY: the caller's promises are passed on unchanged.
            unsafe { group.download(to, from, bytes, stream) }
        })
    }
}

impl<D: Device> HostCalls for Traced<D> {
    unsafe fn call_host(&self, stream: StreamRef, function: HostFunction) -> Result<()> {
        let group = self.device.host_calls()?;
        self.tell(Facts::of(Call::CallHost).stream(stream), || {
            // SAFETY: the caller's promises are passed on unchanged.
            unsafe { group.call_host(stream, function) }
        })
    }
}

/// A call that names a range of device addresses.
const fn of_range(call: Call, at: DevicePtr, bytes: u64) -> Facts {
    Facts::of(call).subject(at.address()).bytes(bytes)
}

/// A call that names a backing.
const fn of_backing(call: Call, backing: &Backing) -> Facts {
    let facts = Facts::of(call).subject(backing.raw() as u64);
    facts.bytes(backing.bytes())
}

/// A call that names a peer, by its ordinal.
const fn of_peer(call: Call, peer: Ordinal) -> Facts {
    Facts::of(call).subject(peer.0 as u64)
}

/// Host memory as a number.
fn address(ptr: NonNull<u8>) -> u64 {
    ptr.addr().get() as u64
}
