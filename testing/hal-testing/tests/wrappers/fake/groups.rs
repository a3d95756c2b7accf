//! The fake device's groups.

use std::fs::File;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use cachette_hal::{
    Access, Backing, Call, Capture, CaptureMode, CaptureNode, CaptureStatus, DevicePtr, FabricHandle, Granularity,
    Graph, HostCalls, HostFunction, HostMemory, Ipc, IpcToken, Ordinal, PeerAccess, Reason, Result, Sharing,
    StreamOrdered, StreamRef, Transfer, VirtualMemory,
};

use super::{Fake, STRIDE};

impl VirtualMemory for Fake {
    fn granularity(&self) -> Granularity {
        Granularity { minimum: 4096, recommended: 8192 }
    }
    fn shares(&self, _sharing: Sharing) -> Result<(), Reason> {
        Ok(())
    }

    fn aliases(&self) -> Result<(), Reason> {
        Ok(())
    }

    fn frees_under_reservation(&self) -> Result<(), Reason> {
        Ok(())
    }

    fn mixes_sizes(&self) -> Result<(), Reason> {
        Ok(())
    }

    fn maps_without_wait(&self) -> Result<(), Reason> {
        Ok(())
    }
    fn reserve(&self, _bytes: u64, _wish: Option<DevicePtr>) -> Result<DevicePtr> {
        self.make_address(Call::Reserve)
    }
    unsafe fn release(&self, _start: DevicePtr, _bytes: u64) -> Result<()> {
        self.answer(Call::Release, ())
    }
    fn create_backing(&self, bytes: u64, _: Sharing, _: bool) -> Result<Backing> {
        let raw = self.make_handle(Call::CreateBacking)?;
        Ok(Backing::from_raw(raw, bytes))
    }
    unsafe fn destroy_backing(&self, _backing: Backing) -> Result<()> {
        self.answer(Call::DestroyBacking, ())
    }
    unsafe fn map(&self, _at: DevicePtr, _backing: &Backing) -> Result<()> {
        self.answer(Call::Map, ())
    }
    unsafe fn unmap(&self, _at: DevicePtr, _bytes: u64) -> Result<()> {
        self.answer(Call::Unmap, ())
    }
    unsafe fn set_access(&self, _at: DevicePtr, _bytes: u64, _access: &[Access]) -> Result<()> {
        self.answer(Call::SetAccess, ())
    }
    unsafe fn export_backing(&self, _backing: &Backing) -> Result<OwnedFd> {
        self.answer(Call::ExportBacking, ())?;
        Ok(File::open("/dev/null").expect("every system has it").into())
    }
    fn import_backing(&self, _fd: BorrowedFd<'_>, bytes: u64) -> Result<Backing> {
        let raw = self.make_handle(Call::ImportBacking)?;
        Ok(Backing::from_raw(raw, bytes))
    }
    unsafe fn export_fabric(&self, _backing: &Backing) -> Result<FabricHandle> {
        self.answer(Call::ExportFabric, FabricHandle([7; 64]))
    }
    fn import_fabric(&self, _handle: &FabricHandle, bytes: u64) -> Result<Backing> {
        let raw = self.make_handle(Call::ImportFabric)?;
        Ok(Backing::from_raw(raw, bytes))
    }
}

impl StreamOrdered for Fake {
    unsafe fn allocate_on(&self, _bytes: u64, _stream: StreamRef) -> Result<DevicePtr> {
        self.make_address(Call::AllocateOn)
    }
    unsafe fn free_on(&self, _ptr: DevicePtr, _stream: StreamRef) -> Result<()> {
        self.answer(Call::FreeOn, ())
    }
    fn trim(&self, _keep: u64) -> Result<()> {
        self.answer(Call::Trim, ())
    }
}

impl HostMemory for Fake {
    fn allocate_pinned(&self, _bytes: usize) -> Result<NonNull<u8>> {
        let address = self.make_handle(Call::AllocatePinned)?;
        let ptr = NonNull::new(std::ptr::without_provenance_mut(address));
        Ok(ptr.expect("numbers begin at one stride"))
    }
    unsafe fn free_pinned(&self, _ptr: NonNull<u8>) -> Result<()> {
        self.answer(Call::FreePinned, ())
    }
    unsafe fn register(&self, _ptr: NonNull<u8>, _bytes: usize) -> Result<()> {
        self.answer(Call::Register, ())
    }
    unsafe fn unregister(&self, _ptr: NonNull<u8>) -> Result<()> {
        self.answer(Call::Unregister, ())
    }
    /// Somewhere else than on the host, as some drivers have it for registered memory.
    fn device_address(&self, ptr: NonNull<u8>) -> Result<DevicePtr> {
        let host = ptr.addr().get() as u64;
        let seen_at = DevicePtr::new(host + 1000 * STRIDE).expect("the sum is no zero");
        self.answer(Call::DeviceAddress, seen_at)
    }
}

impl Ipc for Fake {
    unsafe fn export_token(&self, _base: DevicePtr) -> Result<IpcToken> {
        self.answer(Call::ExportToken, IpcToken([7; 64]))
    }
    fn open_token(&self, _token: &IpcToken) -> Result<DevicePtr> {
        self.make_address(Call::OpenToken)
    }
    unsafe fn close_token(&self, _base: DevicePtr) -> Result<()> {
        self.answer(Call::CloseToken, ())
    }
}

impl Capture for Fake {
    unsafe fn capture_status(&self, _stream: StreamRef) -> Result<CaptureStatus> {
        self.answer(Call::CaptureStatus, CaptureStatus::Idle)
    }
    unsafe fn frontier(&self, _stream: StreamRef, nodes: &mut Vec<CaptureNode>) -> Result<CaptureStatus> {
        let raw = self.make_handle(Call::Frontier)?;
        nodes.push(CaptureNode::from_raw(raw));
        Ok(CaptureStatus::Idle)
    }
    unsafe fn dependencies(&self, node: CaptureNode, nodes: &mut Vec<CaptureNode>) -> Result<()> {
        nodes.push(node);
        self.answer(Call::Dependencies, ())
    }
    unsafe fn begin_capture(&self, _stream: StreamRef, _mode: CaptureMode) -> Result<()> {
        self.answer(Call::BeginCapture, ())
    }
    unsafe fn end_capture(&self, _stream: StreamRef) -> Result<Graph> {
        self.make_handle(Call::EndCapture).map(Graph::from_raw)
    }
    unsafe fn launch(&self, _graph: &Graph, _stream: StreamRef) -> Result<()> {
        self.answer(Call::Launch, ())
    }
    unsafe fn destroy_graph(&self, _graph: Graph) -> Result<()> {
        self.answer(Call::DestroyGraph, ())
    }
    fn exchange_capture_mode(&self, _mode: CaptureMode) -> Result<CaptureMode> {
        self.answer(Call::ExchangeCaptureMode, CaptureMode::Global)
    }
}

impl PeerAccess for Fake {
    fn can_reach(&self, _peer: Ordinal) -> Result<bool> {
        self.answer(Call::CanReach, true)
    }
    fn enable_peer(&self, _peer: Ordinal) -> Result<()> {
        self.answer(Call::EnablePeer, ())
    }
    fn disable_peer(&self, _peer: Ordinal) -> Result<()> {
        self.answer(Call::DisablePeer, ())
    }
}

impl Transfer for Fake {
    unsafe fn fill(&self, _: DevicePtr, _: u8, _: u64, _: StreamRef) -> Result<()> {
        self.answer(Call::Fill, ())
    }
    unsafe fn copy(&self, _: DevicePtr, _: DevicePtr, _: u64, _: StreamRef) -> Result<()> {
        self.answer(Call::Copy, ())
    }
    unsafe fn upload(&self, _: DevicePtr, _: *const u8, _: usize, _: StreamRef) -> Result<()> {
        self.answer(Call::Upload, ())
    }
    unsafe fn download(&self, _: *mut u8, _: DevicePtr, _: usize, _: StreamRef) -> Result<()> {
        self.answer(Call::Download, ())
    }
}

impl HostCalls for Fake {
    unsafe fn call_host(&self, _stream: StreamRef, _function: HostFunction) -> Result<()> {
        self.answer(Call::CallHost, ())
    }
}
