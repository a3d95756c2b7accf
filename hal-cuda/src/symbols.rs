//! The functions of libcuda under their C names, one table for each group.
//!
//! [`CoreCalls`] holds what every device needs; a library without one of them cannot be used. A library without a
//! function of another table lacks that group only.

#![expect(non_snake_case, reason = "the functions keep their C names")]

use std::ffi::{c_char, c_int, c_uchar, c_uint, c_ulonglong, c_void};

use cachette_hal::{symbol_groups, symbol_table};
use cudarc::driver::sys::{
    CUcontext, CUdevice, CUdeviceptr, CUevent, CUgraph, CUgraphExec, CUgraphNode, CUhostFn, CUipcMemHandle,
    CUmemAllocationHandleType, CUmemGenericAllocationHandle, CUmemoryPool, CUstream, CUuuid,
};

use crate::types::{AccessRight, BackingProperties, Status};

symbol_table! {
    /// The functions that every driver must have.
    pub(crate) struct CoreCalls {
        required {
            cuInit: fn(flags: c_uint) -> Status;
            cuDriverGetVersion: fn(version: *mut c_int) -> Status;
            cuDeviceGetCount: fn(count: *mut c_int) -> Status;
            cuDeviceGet: fn(device: *mut CUdevice, ordinal: c_int) -> Status;
            cuDeviceGetName: fn(name: *mut c_char, bytes: c_int, device: CUdevice) -> Status;
            cuDeviceGetUuid_v2: fn(uuid: *mut CUuuid, device: CUdevice) -> Status;
            cuDeviceGetAttribute: fn(value: *mut c_int, attribute: c_uint, device: CUdevice) -> Status;
            cuDevicePrimaryCtxRetain: fn(context: *mut CUcontext, device: CUdevice) -> Status;
            cuDevicePrimaryCtxRelease_v2: fn(device: CUdevice) -> Status;
            cuCtxGetCurrent: fn(context: *mut CUcontext) -> Status;
            cuCtxPushCurrent_v2: fn(context: CUcontext) -> Status;
            cuCtxPopCurrent_v2: fn(context: *mut CUcontext) -> Status;
            cuCtxSynchronize: fn() -> Status;
            cuMemGetInfo_v2: fn(free: *mut usize, total: *mut usize) -> Status;
            cuMemAlloc_v2: fn(at: *mut CUdeviceptr, bytes: usize) -> Status;
            cuMemFree_v2: fn(at: CUdeviceptr) -> Status;
            cuStreamCreate: fn(stream: *mut CUstream, flags: c_uint) -> Status;
            cuStreamDestroy_v2: fn(stream: CUstream) -> Status;
            cuStreamSynchronize: fn(stream: CUstream) -> Status;
            cuStreamWaitEvent: fn(stream: CUstream, event: CUevent, flags: c_uint) -> Status;
            cuEventCreate: fn(event: *mut CUevent, flags: c_uint) -> Status;
            cuEventDestroy_v2: fn(event: CUevent) -> Status;
            cuEventRecord: fn(event: CUevent, stream: CUstream) -> Status;
            cuEventQuery: fn(event: CUevent) -> Status;
            cuEventSynchronize: fn(event: CUevent) -> Status;
        }
    }

    /// Virtual memory.
    pub(crate) struct VirtualMemoryCalls {
        required {
            cuMemGetAllocationGranularity: fn(
                bytes: *mut usize, properties: *const BackingProperties, which: c_uint
            ) -> Status;
            cuMemAddressReserve: fn(
                at: *mut CUdeviceptr, bytes: usize, alignment: usize, wish: CUdeviceptr, flags: c_ulonglong
            ) -> Status;
            cuMemAddressFree: fn(at: CUdeviceptr, bytes: usize) -> Status;
            cuMemCreate: fn(
                backing: *mut CUmemGenericAllocationHandle, bytes: usize, properties: *const BackingProperties,
                flags: c_ulonglong
            ) -> Status;
            cuMemRelease: fn(backing: CUmemGenericAllocationHandle) -> Status;
            cuMemMap: fn(
                at: CUdeviceptr, bytes: usize, offset: usize, backing: CUmemGenericAllocationHandle, flags: c_ulonglong
            ) -> Status;
            cuMemRetainAllocationHandle: fn(backing: *mut CUmemGenericAllocationHandle, at: *mut c_void) -> Status;
            cuMemUnmap: fn(at: CUdeviceptr, bytes: usize) -> Status;
            cuMemSetAccess: fn(at: CUdeviceptr, bytes: usize, rights: *const AccessRight, count: usize) -> Status;
            cuMemExportToShareableHandle: fn(
                shared: *mut c_void, backing: CUmemGenericAllocationHandle, kind: CUmemAllocationHandleType,
                flags: c_ulonglong
            ) -> Status;
            cuMemImportFromShareableHandle: fn(
                backing: *mut CUmemGenericAllocationHandle, shared: *mut c_void, kind: CUmemAllocationHandleType
            ) -> Status;
        }
    }

    /// The driver's stream-ordered pool.
    pub(crate) struct StreamOrderedCalls {
        required {
            cuDeviceGetDefaultMemPool: fn(pool: *mut CUmemoryPool, device: CUdevice) -> Status;
            cuMemAllocFromPoolAsync: fn(
                at: *mut CUdeviceptr, bytes: usize, pool: CUmemoryPool, stream: CUstream
            ) -> Status;
            cuMemFreeAsync: fn(at: CUdeviceptr, stream: CUstream) -> Status;
            cuMemPoolTrimTo: fn(pool: CUmemoryPool, keep: usize) -> Status;
        }
    }

    /// Page-locked host memory.
    pub(crate) struct HostMemoryCalls {
        required {
            cuMemHostAlloc: fn(ptr: *mut *mut c_void, bytes: usize, flags: c_uint) -> Status;
            cuMemFreeHost: fn(ptr: *mut c_void) -> Status;
            cuMemHostRegister_v2: fn(ptr: *mut c_void, bytes: usize, flags: c_uint) -> Status;
            cuMemHostUnregister: fn(ptr: *mut c_void) -> Status;
            cuMemHostGetDevicePointer_v2: fn(at: *mut CUdeviceptr, ptr: *mut c_void, flags: c_uint) -> Status;
        }
    }

    /// Memory shared with another process by a token.
    pub(crate) struct IpcCalls {
        required {
            cuMemGetAddressRange_v2: fn(base: *mut CUdeviceptr, bytes: *mut usize, at: CUdeviceptr) -> Status;
            cuIpcGetMemHandle: fn(token: *mut CUipcMemHandle, at: CUdeviceptr) -> Status;
            cuIpcOpenMemHandle_v2: fn(at: *mut CUdeviceptr, token: CUipcMemHandle, flags: c_uint) -> Status;
            cuIpcCloseMemHandle: fn(at: CUdeviceptr) -> Status;
        }
    }

    /// Streams captured into graphs.
    pub(crate) struct CaptureCalls {
        required {
            cuStreamGetCaptureInfo_v2: fn(
                stream: CUstream, status: *mut c_uint, id: *mut u64, graph: *mut CUgraph,
                dependencies: *mut *const CUgraphNode, count: *mut usize
            ) -> Status;
            cuStreamBeginCapture_v2: fn(stream: CUstream, mode: c_uint) -> Status;
            cuStreamEndCapture: fn(stream: CUstream, graph: *mut CUgraph) -> Status;
            cuGraphInstantiateWithFlags: fn(executable: *mut CUgraphExec, graph: CUgraph, flags: c_ulonglong) -> Status;
            cuGraphDestroy: fn(graph: CUgraph) -> Status;
            cuGraphLaunch: fn(executable: CUgraphExec, stream: CUstream) -> Status;
            cuGraphExecDestroy: fn(executable: CUgraphExec) -> Status;
            cuThreadExchangeStreamCaptureMode: fn(mode: *mut c_uint) -> Status;
        }
        optional {
            /// The nodes a node directly depends on; the `_v2` function also returns the kinds of the edges.
            cuGraphNodeGetDependencies: fn(
                node: CUgraphNode, dependencies: *mut CUgraphNode, count: *mut usize
            ) -> Status;
        }
    }

    /// Access from one device to another's memory.
    pub(crate) struct PeerAccessCalls {
        required {
            cuDeviceCanAccessPeer: fn(can: *mut c_int, device: CUdevice, peer: CUdevice) -> Status;
            cuCtxEnablePeerAccess: fn(peer: CUcontext, flags: c_uint) -> Status;
            cuCtxDisablePeerAccess: fn(peer: CUcontext) -> Status;
        }
    }

    /// Fills and copies in stream order.
    pub(crate) struct TransferCalls {
        required {
            cuMemsetD8Async: fn(at: CUdeviceptr, byte: c_uchar, bytes: usize, stream: CUstream) -> Status;
            cuMemcpyDtoDAsync_v2: fn(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream) -> Status;
            cuMemcpyHtoDAsync_v2: fn(to: CUdeviceptr, from: *const c_void, bytes: usize, stream: CUstream) -> Status;
            cuMemcpyDtoHAsync_v2: fn(to: *mut c_void, from: CUdeviceptr, bytes: usize, stream: CUstream) -> Status;
        }
    }

    /// Host functions in stream order.
    pub(crate) struct HostCallCalls {
        required {
            cuLaunchHostFunc: fn(stream: CUstream, function: CUhostFn, data: *mut c_void) -> Status;
            cuStreamIsCapturing: fn(stream: CUstream, status: *mut c_uint) -> Status;
        }
    }
}

symbol_groups! {
    /// Every table, or the reason why the library lacks a group.
    pub(crate) struct Symbols {
        core: CoreCalls;
        virtual_memory: VirtualMemoryCalls,
        stream_ordered: StreamOrderedCalls,
        host_memory: HostMemoryCalls,
        ipc: IpcCalls,
        capture: CaptureCalls,
        peer_access: PeerAccessCalls,
        transfer: TransferCalls,
        host_calls: HostCallCalls,
    }
}
