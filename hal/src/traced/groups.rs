//! `Traced` implements `Device` and every group by a table of calls.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use crate::{
    Access, Backing, Call, Capture, CaptureMode, CaptureNode, CaptureStatus, Device, DevicePtr, Event, FabricHandle,
    Graph, HostCalls, HostFunction, HostMemory, Ipc, IpcToken, MemoryInfo, Ordinal, PeerAccess, Progress, Result,
    Sharing, Stream, StreamOrdered, StreamRef, Transfer, Use, VirtualMemory,
};

use super::{DriverCall, Traced};
use crate::{forward_groups, forward_target, forward_virtual_memory_facts};

/// Defines safe methods that call the target and report the call.
macro_rules! calls {
    (
        $group:tt
        $(fn $name:ident($($argument:ident: $type:ty),*) -> $output:ty: $report:ident($facts:expr $(, $number:expr)?);)*
    ) => {
        $(
            fn $name(&self $(, $argument: $type)*) -> Result<$output> {
                let target = forward_target!(self.device, $group);
                let call = $facts;
                self.$report(call, || target.$name($($argument),*) $(, $number)?)
            }
        )*
    };
}

/// The same for `unsafe` methods.
macro_rules! unsafe_calls {
    (
        $group:tt
        $(fn $name:ident($($argument:ident: $type:ty),*) -> $output:ty: $report:ident($facts:expr $(, $number:expr)?);)*
    ) => {
        $(
            unsafe fn $name(&self $(, $argument: $type)*) -> Result<$output> {
                let target = forward_target!(self.device, $group);
                let call = $facts;
                // SAFETY: the caller's promises are passed on unchanged.
                self.$report(call, || unsafe { target.$name($($argument),*) } $(, $number)?)
            }
        )*
    };
}

impl<D: Device> Device for Traced<D> {
    forward_groups!();

    fn uses(&self, stream: StreamRef, at: DevicePtr, bytes: u64, access: Use) {
        self.observer.uses(stream, at, bytes, access);
        self.device.uses(stream, at, bytes, access);
    }

    calls! {
        []
        fn memory_info() -> MemoryInfo: report(DriverCall::of(Call::MemoryInfo));
        fn allocate(bytes: u64) -> DevicePtr: report_new(DriverCall::of(Call::Allocate).bytes(bytes), |made| made.address());
        fn create_stream() -> Stream: report_new(DriverCall::of(Call::CreateStream), |made| made.raw() as u64);
        fn synchronize_device() -> (): report(DriverCall::of(Call::SynchronizeDevice));
        fn create_event() -> Event: report_new(DriverCall::of(Call::CreateEvent), |made| made.raw() as u64);
    }

    unsafe_calls! {
        []
        fn free(ptr: DevicePtr) -> (): report(DriverCall::of(Call::Free).subject(ptr.address()));
        fn destroy_stream(stream: Stream) -> ():
            report(DriverCall::of(Call::DestroyStream).subject(stream.raw() as u64).stream(stream.borrow()));
        fn synchronize(stream: StreamRef) -> (): report(DriverCall::of(Call::Synchronize).stream(stream));
        fn destroy_event(event: Event) -> (): report(of_event(Call::DestroyEvent, &event));
        fn record(event: &Event, stream: StreamRef) -> (): report(of_event(Call::Record, event).stream(stream));
        fn poll(event: &Event) -> Progress: report_poll(of_event(Call::Poll, event));
        fn wait(event: &Event) -> (): report(of_event(Call::Wait, event));
        fn stream_wait(stream: StreamRef, event: &Event) -> ():
            report(of_event(Call::StreamWait, event).stream(stream));
    }
}

impl<D: Device> VirtualMemory for Traced<D> {
    forward_virtual_memory_facts!();

    calls! {
        [virtual_memory]
        fn reserve(bytes: u64, wish: Option<DevicePtr>) -> DevicePtr:
            report_new(DriverCall::of(Call::Reserve).bytes(bytes), |made| made.address());
        fn create_backing(bytes: u64, sharing: Sharing, rdma: bool) -> Backing:
            report_new(DriverCall::of(Call::CreateBacking).bytes(bytes), |made| made.raw() as u64);
        fn import_backing(fd: BorrowedFd<'_>, bytes: u64) -> Backing:
            report_new(DriverCall::of(Call::ImportBacking).bytes(bytes), |made| made.raw() as u64);
        fn import_fabric(handle: &FabricHandle, bytes: u64) -> Backing:
            report_new(DriverCall::of(Call::ImportFabric).bytes(bytes), |made| made.raw() as u64);
    }

    unsafe_calls! {
        [virtual_memory]
        fn release(start: DevicePtr, bytes: u64) -> (): report(of_range(Call::Release, start, bytes));
        fn destroy_backing(backing: Backing) -> (): report(of_backing(Call::DestroyBacking, &backing));
        fn map(at: DevicePtr, backing: &Backing) -> (): report(of_range(Call::Map, at, backing.bytes()));
        fn unmap(at: DevicePtr, bytes: u64) -> (): report(of_range(Call::Unmap, at, bytes));
        fn set_access(at: DevicePtr, bytes: u64, access: &[Access]) -> ():
            report(of_range(Call::SetAccess, at, bytes));
        fn export_backing(backing: &Backing) -> OwnedFd: report(of_backing(Call::ExportBacking, backing));
        fn export_fabric(backing: &Backing) -> FabricHandle: report(of_backing(Call::ExportFabric, backing));
    }
}

impl<D: Device> StreamOrdered for Traced<D> {
    calls! {
        [stream_ordered]
        fn trim(keep: u64) -> (): report(DriverCall::of(Call::Trim).bytes(keep));
    }

    unsafe_calls! {
        [stream_ordered]
        fn allocate_on(bytes: u64, stream: StreamRef) -> DevicePtr:
            report_new(DriverCall::of(Call::AllocateOn).bytes(bytes).stream(stream), |made| made.address());
        fn free_on(ptr: DevicePtr, stream: StreamRef) -> (): report(of_range(Call::FreeOn, ptr, 0).stream(stream));
    }
}

impl<D: Device> HostMemory for Traced<D> {
    calls! {
        [host_memory]
        fn allocate_pinned(bytes: usize) -> NonNull<u8>:
            report_new(DriverCall::of(Call::AllocatePinned).bytes(bytes as u64), |made| address(*made));
        fn device_address(ptr: NonNull<u8>) -> DevicePtr:
            report(DriverCall::of(Call::DeviceAddress).subject(address(ptr)));
    }

    unsafe_calls! {
        [host_memory]
        fn free_pinned(ptr: NonNull<u8>) -> (): report(DriverCall::of(Call::FreePinned).subject(address(ptr)));
        fn register(ptr: NonNull<u8>, bytes: usize) -> ():
            report(DriverCall::of(Call::Register).subject(address(ptr)).bytes(bytes as u64));
        fn unregister(ptr: NonNull<u8>) -> (): report(DriverCall::of(Call::Unregister).subject(address(ptr)));
    }
}

impl<D: Device> Ipc for Traced<D> {
    calls! {
        [ipc]
        fn open_token(token: &IpcToken) -> DevicePtr:
            report_new(DriverCall::of(Call::OpenToken), |made| made.address());
    }

    unsafe_calls! {
        [ipc]
        fn export_token(base: DevicePtr) -> IpcToken: report(of_range(Call::ExportToken, base, 0));
        fn close_token(base: DevicePtr) -> (): report(of_range(Call::CloseToken, base, 0));
    }
}

impl<D: Device> Capture for Traced<D> {
    calls! {
        [capture]
        fn exchange_capture_mode(mode: CaptureMode) -> CaptureMode: report(DriverCall::of(Call::ExchangeCaptureMode));
    }

    unsafe_calls! {
        [capture]
        fn capture_status(stream: StreamRef) -> CaptureStatus: report(DriverCall::of(Call::CaptureStatus).stream(stream));
        fn frontier(stream: StreamRef, nodes: &mut Vec<CaptureNode>) -> CaptureStatus:
            report(DriverCall::of(Call::Frontier).stream(stream));
        fn dependencies(node: CaptureNode, nodes: &mut Vec<CaptureNode>) -> ():
            report(DriverCall::of(Call::Dependencies).subject(node.raw() as u64));
        fn begin_capture(stream: StreamRef, mode: CaptureMode) -> ():
            report(DriverCall::of(Call::BeginCapture).stream(stream));
        fn end_capture(stream: StreamRef) -> Graph:
            report_new(DriverCall::of(Call::EndCapture).stream(stream), |made| made.raw() as u64);
        fn launch(graph: &Graph, stream: StreamRef) -> ():
            report(DriverCall::of(Call::Launch).subject(graph.raw() as u64).stream(stream));
        fn destroy_graph(graph: Graph) -> (): report(DriverCall::of(Call::DestroyGraph).subject(graph.raw() as u64));
    }
}

impl<D: Device> PeerAccess for Traced<D> {
    calls! {
        [peer_access]
        fn can_reach(peer: Ordinal) -> bool: report(of_peer(Call::CanReach, peer));
        fn enable_peer(peer: Ordinal) -> (): report(of_peer(Call::EnablePeer, peer));
        fn disable_peer(peer: Ordinal) -> (): report(of_peer(Call::DisablePeer, peer));
    }
}

impl<D: Device> Transfer for Traced<D> {
    unsafe_calls! {
        [transfer]
        fn fill(at: DevicePtr, byte: u8, bytes: u64, stream: StreamRef) -> ():
            report(of_range(Call::Fill, at, bytes).stream(stream));
        fn copy(to: DevicePtr, from: DevicePtr, bytes: u64, stream: StreamRef) -> ():
            report(of_range(Call::Copy, to, bytes).other(from.address()).stream(stream));
        fn upload(to: DevicePtr, from: *const u8, bytes: usize, stream: StreamRef) -> ():
            report(of_range(Call::Upload, to, bytes as u64).other(from.addr() as u64).stream(stream));
        fn download(to: *mut u8, from: DevicePtr, bytes: usize, stream: StreamRef) -> ():
            report(of_range(Call::Download, from, bytes as u64).other(to.addr() as u64).stream(stream));
    }
}

impl<D: Device> HostCalls for Traced<D> {
    unsafe_calls! {
        [host_calls]
        fn call_host(stream: StreamRef, function: HostFunction) -> ():
            report(DriverCall::of(Call::CallHost).stream(stream));
    }
}

const fn of_range(call: Call, at: DevicePtr, bytes: u64) -> DriverCall {
    DriverCall::of(call).subject(at.address()).bytes(bytes)
}

const fn of_backing(call: Call, backing: &Backing) -> DriverCall {
    DriverCall::of(call).subject(backing.raw() as u64).bytes(backing.bytes())
}

const fn of_event(call: Call, event: &Event) -> DriverCall {
    DriverCall::of(call).subject(event.raw() as u64)
}

/// A call with a peer, by its ordinal.
const fn of_peer(call: Call, peer: Ordinal) -> DriverCall {
    DriverCall::of(call).subject(peer.0 as u64)
}

fn address(ptr: NonNull<u8>) -> u64 {
    ptr.addr().get() as u64
}
