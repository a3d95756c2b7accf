//! One device: memory, streams, events, and accessors of the optional groups.

use std::fmt::Debug;
use std::sync::Arc;

use crate::{
    Capture, DeviceInfo, DevicePtr, Event, Feature, HostCalls, HostMemory, Ipc, MemoryInfo, Missing, PeerAccess,
    Progress, Result, Stream, StreamOrdered, StreamRef, Transfer, VirtualMemory,
};

/// Any device, chosen at run time.
pub type AnyDevice = Arc<dyn Device>;

/// One device.
///
/// The crate's documentation states the safety contract and the guarantees of every call.
pub trait Device: Debug + Send + Sync {
    /// Facts; no driver call.
    fn info(&self) -> &DeviceInfo;

    /// Free and total memory now, over all processes.
    #[doc(alias = "cuMemGetInfo_v2")]
    #[doc(alias = "hipMemGetInfo")]
    fn memory_info(&self) -> Result<MemoryInfo>;

    /// Allocates memory; may wait for the whole device.
    ///
    /// The address is a multiple of [`DeviceInfo::base_alignment`], and the range overlaps no live one.
    #[doc(alias = "cuMemAlloc_v2")]
    #[doc(alias = "hipMalloc")]
    fn allocate(&self, bytes: u64) -> Result<DevicePtr>;

    /// Frees memory; may wait for the whole device.
    ///
    /// # Safety
    ///
    /// Promises 1 and 2; `ptr` is what [`allocate`](Self::allocate) returned.
    #[doc(alias = "cuMemFree_v2")]
    #[doc(alias = "hipFree")]
    unsafe fn free(&self, ptr: DevicePtr) -> Result<()>;

    /// Creates a stream that does not wait for the default one.
    #[doc(alias = "cuStreamCreate")]
    #[doc(alias = "hipStreamCreateWithFlags")]
    fn create_stream(&self) -> Result<Stream>;

    /// Destroys a stream. Work already queued in it still completes, and the call may wait for it.
    ///
    /// # Safety
    ///
    /// Promise 1.
    #[doc(alias = "cuStreamDestroy_v2")]
    #[doc(alias = "hipStreamDestroy")]
    unsafe fn destroy_stream(&self, stream: Stream) -> Result<()>;

    /// Blocks the host until everything queued in the stream so far has finished.
    ///
    /// # Safety
    ///
    /// Promise 1.
    #[doc(alias = "cuStreamSynchronize")]
    #[doc(alias = "hipStreamSynchronize")]
    unsafe fn synchronize(&self, stream: StreamRef) -> Result<()>;

    /// Blocks the host until everything queued in any stream of the device so far has finished.
    #[doc(alias = "cuCtxSynchronize")]
    #[doc(alias = "hipDeviceSynchronize")]
    fn synchronize_device(&self) -> Result<()>;

    /// Creates an event without timing. Until it is recorded it counts as done.
    #[doc(alias = "cuEventCreate")]
    #[doc(alias = "hipEventCreateWithFlags")]
    fn create_event(&self) -> Result<Event>;

    /// Destroys an event. Streams that wait for it still wait for its last record.
    ///
    /// # Safety
    ///
    /// Promise 1.
    #[doc(alias = "cuEventDestroy_v2")]
    #[doc(alias = "hipEventDestroy")]
    unsafe fn destroy_event(&self, event: Event) -> Result<()>;

    /// Records the current end of the stream; a later record replaces an earlier one.
    ///
    /// # Safety
    ///
    /// Promise 1.
    #[doc(alias = "cuEventRecord")]
    #[doc(alias = "hipEventRecord")]
    unsafe fn record(&self, event: &Event, stream: StreamRef) -> Result<()>;

    /// Whether the work before the last record has finished; does not block.
    ///
    /// # Safety
    ///
    /// Promise 1.
    #[doc(alias = "cuEventQuery")]
    #[doc(alias = "hipEventQuery")]
    unsafe fn poll(&self, event: &Event) -> Result<Progress>;

    /// Blocks the host until the work before the last record has finished.
    ///
    /// # Safety
    ///
    /// Promise 1.
    #[doc(alias = "cuEventSynchronize")]
    unsafe fn wait(&self, event: &Event) -> Result<()>;

    /// Makes later work in `stream` wait for the last record of `event`; later records do not matter.
    ///
    /// # Safety
    ///
    /// Promise 1.
    #[doc(alias = "cuStreamWaitEvent")]
    #[doc(alias = "hipStreamWaitEvent")]
    unsafe fn stream_wait(&self, stream: StreamRef, event: &Event) -> Result<()>;

    /// Virtual memory: addresses and physical memory are separate.
    fn virtual_memory(&self) -> Result<&dyn VirtualMemory, Missing> {
        Err(Missing::unimplemented(Feature::VirtualMemory))
    }

    /// The vendor's stream-ordered pool.
    fn stream_ordered(&self) -> Result<&dyn StreamOrdered, Missing> {
        Err(Missing::unimplemented(Feature::StreamOrdered))
    }

    /// Page-locked host memory.
    fn host_memory(&self) -> Result<&dyn HostMemory, Missing> {
        Err(Missing::unimplemented(Feature::HostMemory))
    }

    /// Memory shared with another process by a token.
    fn ipc(&self) -> Result<&dyn Ipc, Missing> {
        Err(Missing::unimplemented(Feature::Ipc))
    }

    /// Streams captured into graphs.
    fn capture(&self) -> Result<&dyn Capture, Missing> {
        Err(Missing::unimplemented(Feature::Capture))
    }

    /// Access to another device's memory.
    fn peer_access(&self) -> Result<&dyn PeerAccess, Missing> {
        Err(Missing::unimplemented(Feature::PeerAccess))
    }

    /// Fills and copies in stream order.
    fn transfer(&self) -> Result<&dyn Transfer, Missing> {
        Err(Missing::unimplemented(Feature::Transfer))
    }

    /// Host functions in stream order.
    fn host_calls(&self) -> Result<&dyn HostCalls, Missing> {
        Err(Missing::unimplemented(Feature::HostCalls))
    }

    /// Why `feature` is absent; `None` if it is present.
    fn missing(&self, feature: Feature) -> Option<Missing> {
        match feature {
            Feature::VirtualMemory => self.virtual_memory().err(),
            Feature::StreamOrdered => self.stream_ordered().err(),
            Feature::HostMemory => self.host_memory().err(),
            Feature::Ipc => self.ipc().err(),
            Feature::Capture => self.capture().err(),
            Feature::PeerAccess => self.peer_access().err(),
            Feature::Transfer => self.transfer().err(),
            Feature::HostCalls => self.host_calls().err(),
        }
    }
}

/// Implements [`Device`] for a pointer by forwarding every call.
macro_rules! pass_through {
    ($pointer:ty) => {
        impl<D: Device + ?Sized> Device for $pointer {
            fn info(&self) -> &DeviceInfo {
                (**self).info()
            }
            fn memory_info(&self) -> Result<MemoryInfo> {
                (**self).memory_info()
            }
            fn allocate(&self, bytes: u64) -> Result<DevicePtr> {
                (**self).allocate(bytes)
            }
            unsafe fn free(&self, ptr: DevicePtr) -> Result<()> {
                // SAFETY: the caller's promises are passed on unchanged.
                unsafe { (**self).free(ptr) }
            }
            fn create_stream(&self) -> Result<Stream> {
                (**self).create_stream()
            }
            unsafe fn destroy_stream(&self, stream: Stream) -> Result<()> {
                // SAFETY: the caller's promises are passed on unchanged.
                unsafe { (**self).destroy_stream(stream) }
            }
            unsafe fn synchronize(&self, stream: StreamRef) -> Result<()> {
                // SAFETY: the caller's promises are passed on unchanged.
                unsafe { (**self).synchronize(stream) }
            }
            fn synchronize_device(&self) -> Result<()> {
                (**self).synchronize_device()
            }
            fn create_event(&self) -> Result<Event> {
                (**self).create_event()
            }
            unsafe fn destroy_event(&self, event: Event) -> Result<()> {
                // SAFETY: the caller's promises are passed on unchanged.
                unsafe { (**self).destroy_event(event) }
            }
            unsafe fn record(&self, event: &Event, stream: StreamRef) -> Result<()> {
                // SAFETY: the caller's promises are passed on unchanged.
                unsafe { (**self).record(event, stream) }
            }
            unsafe fn poll(&self, event: &Event) -> Result<Progress> {
                // SAFETY: the caller's promises are passed on unchanged.
                unsafe { (**self).poll(event) }
            }
            unsafe fn wait(&self, event: &Event) -> Result<()> {
                // SAFETY: the caller's promises are passed on unchanged.
                unsafe { (**self).wait(event) }
            }
            unsafe fn stream_wait(&self, stream: StreamRef, event: &Event) -> Result<()> {
                // SAFETY: the caller's promises are passed on unchanged.
                unsafe { (**self).stream_wait(stream, event) }
            }
            fn virtual_memory(&self) -> Result<&dyn VirtualMemory, Missing> {
                (**self).virtual_memory()
            }
            fn stream_ordered(&self) -> Result<&dyn StreamOrdered, Missing> {
                (**self).stream_ordered()
            }
            fn host_memory(&self) -> Result<&dyn HostMemory, Missing> {
                (**self).host_memory()
            }
            fn ipc(&self) -> Result<&dyn Ipc, Missing> {
                (**self).ipc()
            }
            fn capture(&self) -> Result<&dyn Capture, Missing> {
                (**self).capture()
            }
            fn peer_access(&self) -> Result<&dyn PeerAccess, Missing> {
                (**self).peer_access()
            }
            fn transfer(&self) -> Result<&dyn Transfer, Missing> {
                (**self).transfer()
            }
            fn host_calls(&self) -> Result<&dyn HostCalls, Missing> {
                (**self).host_calls()
            }
        }
    };
}

// Generic code can take `AnyDevice`, and an owner can borrow its device.
pass_through!(Arc<D>);
pass_through!(&D);

// Dyn-compatibility is part of the contract.
const _: Option<&dyn Device> = None;
