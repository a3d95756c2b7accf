//! The fake device's groups.

use std::fs::File;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::ptr::{self, NonNull};

use cachette_hal::{
    Access, Backing, Call, Capture, CaptureMode, CaptureNode, CaptureStatus, DevicePtr, FabricHandle, Granularity,
    Graph, HostCalls, HostFunction, HostMemory, Ipc, IpcToken, Ordinal, PeerAccess, Reason, Result, Sharing,
    StreamOrdered, StreamRef, Transfer, VirtualMemory,
};

use super::{Fake, STRIDE, address, answers};

/// Facts that the fake has no reason against.
macro_rules! facts {
    ($($name:ident($($type:ty)?);)*) => {
        $(fn $name(&self, $(_: $type)?) -> Result<(), Reason> {
            Ok(())
        })*
    };
}

impl VirtualMemory for Fake {
    fn granularity(&self) -> Granularity {
        Granularity { minimum: 4096, recommended: 8192 }
    }
    facts! {
        shares(Sharing);
        aliases();
        frees_under_reservation();
        mixes_sizes();
        maps_without_wait();
    }
    answers! {
        Reserve reserve(u64, Option<DevicePtr>) -> DevicePtr: address;
        unsafe Release release(DevicePtr, u64);
        unsafe DestroyBacking destroy_backing(Backing);
        unsafe Map map(DevicePtr, &Backing);
        unsafe Unmap unmap(DevicePtr, u64);
        unsafe SetAccess set_access(DevicePtr, u64, &[Access]);
        unsafe ExportBacking export_backing(&Backing) -> OwnedFd = File::open("/dev/null").expect("every system has it").into();
        unsafe ExportFabric export_fabric(&Backing) -> FabricHandle = FabricHandle([7; 64]);
    }
    fn create_backing(&self, bytes: u64, _: Sharing, _: bool) -> Result<Backing> {
        self.make(Call::CreateBacking).map(|raw| Backing::from_raw(raw, bytes))
    }
    fn import_backing(&self, _fd: BorrowedFd<'_>, bytes: u64) -> Result<Backing> {
        self.make(Call::ImportBacking).map(|raw| Backing::from_raw(raw, bytes))
    }
    fn import_fabric(&self, _handle: &FabricHandle, bytes: u64) -> Result<Backing> {
        self.make(Call::ImportFabric).map(|raw| Backing::from_raw(raw, bytes))
    }
}

impl StreamOrdered for Fake {
    answers! {
        unsafe AllocateOn allocate_on(u64, StreamRef) -> DevicePtr: address;
        unsafe FreeOn free_on(DevicePtr, StreamRef);
        Trim trim(u64);
    }
}

impl HostMemory for Fake {
    answers! {
        AllocatePinned allocate_pinned(usize) -> NonNull<u8>: |number| {
            NonNull::new(ptr::without_provenance_mut(number)).expect("numbers begin at one stride")
        };
        unsafe FreePinned free_pinned(NonNull<u8>);
        unsafe Register register(NonNull<u8>, usize);
        unsafe Unregister unregister(NonNull<u8>);
    }
    /// Somewhere else than on the host, as some drivers have it for registered memory.
    fn device_address(&self, ptr: NonNull<u8>) -> Result<DevicePtr> {
        self.answer(Call::DeviceAddress, address(ptr.addr().get()).add(1000 * STRIDE))
    }
}

impl Ipc for Fake {
    answers! {
        unsafe ExportToken export_token(DevicePtr) -> IpcToken = IpcToken([1; 64]);
        OpenToken open_token(&IpcToken) -> DevicePtr: address;
        unsafe CloseToken close_token(DevicePtr);
    }
}

impl Capture for Fake {
    answers! {
        unsafe CaptureStatus capture_status(StreamRef) -> CaptureStatus = CaptureStatus::Idle;
        unsafe BeginCapture begin_capture(StreamRef, CaptureMode);
        unsafe EndCapture end_capture(StreamRef) -> Graph: Graph::from_raw;
        unsafe Launch launch(&Graph, StreamRef);
        unsafe DestroyGraph destroy_graph(Graph);
        ExchangeCaptureMode exchange_capture_mode(CaptureMode) -> CaptureMode = CaptureMode::Global;
    }
    unsafe fn frontier(&self, _stream: StreamRef, nodes: &mut Vec<CaptureNode>) -> Result<CaptureStatus> {
        nodes.push(CaptureNode::from_raw(self.make(Call::Frontier)?));
        Ok(CaptureStatus::Idle)
    }
    unsafe fn dependencies(&self, node: CaptureNode, nodes: &mut Vec<CaptureNode>) -> Result<()> {
        nodes.push(node);
        self.answer(Call::Dependencies, ())
    }
}

impl PeerAccess for Fake {
    answers! {
        CanReach can_reach(Ordinal) -> bool = true;
        EnablePeer enable_peer(Ordinal);
        DisablePeer disable_peer(Ordinal);
    }
}

impl Transfer for Fake {
    answers! {
        unsafe Fill fill(DevicePtr, u8, u64, StreamRef);
        unsafe Copy copy(DevicePtr, DevicePtr, u64, StreamRef);
        unsafe Upload upload(DevicePtr, *const u8, usize, StreamRef);
        unsafe Download download(*mut u8, DevicePtr, usize, StreamRef);
    }
}

impl HostCalls for Fake {
    answers! {
        unsafe CallHost call_host(StreamRef, HostFunction);
    }
}
