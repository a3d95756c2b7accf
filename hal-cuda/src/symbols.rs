//! The functions of libcuda, one table a group.

use std::ffi::{c_char, c_int, c_uchar, c_uint, c_ulonglong, c_void};

use cachette_hal::symbol_table;
use cudarc::driver::sys::{
    CUcontext, CUdevice, CUdeviceptr, CUevent, CUgraph, CUgraphExec, CUgraphNode, CUhostFn, CUipcMemHandle,
    CUmemAllocationHandleType, CUmemGenericAllocationHandle, CUmemoryPool, CUstream, CUuuid,
};

use crate::types::{AccessRight, BackingProperties, Status};

symbol_table! {
    /// What every driver must have.
    pub(crate) struct CoreCalls {
        required {
            init as "cuInit": fn(flags: c_uint) -> Status;
            version as "cuDriverGetVersion": fn(version: *mut c_int) -> Status;
            device_count as "cuDeviceGetCount": fn(count: *mut c_int) -> Status;
            device as "cuDeviceGet": fn(device: *mut CUdevice, ordinal: c_int) -> Status;
            device_name as "cuDeviceGetName":
                fn(name: *mut c_char, bytes: c_int, device: CUdevice) -> Status;
            device_uuid as "cuDeviceGetUuid_v2": fn(uuid: *mut CUuuid, device: CUdevice) -> Status;
            attribute as "cuDeviceGetAttribute":
                fn(value: *mut c_int, attribute: c_uint, device: CUdevice) -> Status;
            retain_context as "cuDevicePrimaryCtxRetain":
                fn(context: *mut CUcontext, device: CUdevice) -> Status;
            release_context as "cuDevicePrimaryCtxRelease_v2": fn(device: CUdevice) -> Status;
            current_context as "cuCtxGetCurrent": fn(context: *mut CUcontext) -> Status;
            push_context as "cuCtxPushCurrent_v2": fn(context: CUcontext) -> Status;
            pop_context as "cuCtxPopCurrent_v2": fn(context: *mut CUcontext) -> Status;
            synchronize_context as "cuCtxSynchronize": fn() -> Status;
            memory_info as "cuMemGetInfo_v2": fn(free: *mut usize, total: *mut usize) -> Status;
            allocate as "cuMemAlloc_v2": fn(at: *mut CUdeviceptr, bytes: usize) -> Status;
            free as "cuMemFree_v2": fn(at: CUdeviceptr) -> Status;
            create_stream as "cuStreamCreate":
                fn(stream: *mut CUstream, flags: c_uint) -> Status;
            destroy_stream as "cuStreamDestroy_v2": fn(stream: CUstream) -> Status;
            synchronize_stream as "cuStreamSynchronize": fn(stream: CUstream) -> Status;
            stream_wait as "cuStreamWaitEvent":
                fn(stream: CUstream, event: CUevent, flags: c_uint) -> Status;
            create_event as "cuEventCreate": fn(event: *mut CUevent, flags: c_uint) -> Status;
            destroy_event as "cuEventDestroy_v2": fn(event: CUevent) -> Status;
            record as "cuEventRecord": fn(event: CUevent, stream: CUstream) -> Status;
            poll as "cuEventQuery": fn(event: CUevent) -> Status;
            wait as "cuEventSynchronize": fn(event: CUevent) -> Status;
        }
        optional {}
    }
}

symbol_table! {
    /// Addresses and physical memory apart.
    pub(crate) struct VirtualMemoryCalls {
        required {
            granularity as "cuMemGetAllocationGranularity":
                fn(bytes: *mut usize, properties: *const BackingProperties, which: c_uint) -> Status;
            reserve as "cuMemAddressReserve":
                fn(
                    at: *mut CUdeviceptr,
                    bytes: usize,
                    alignment: usize,
                    wish: CUdeviceptr,
                    flags: c_ulonglong
                ) -> Status;
            release as "cuMemAddressFree": fn(at: CUdeviceptr, bytes: usize) -> Status;
            create as "cuMemCreate":
                fn(
                    backing: *mut CUmemGenericAllocationHandle,
                    bytes: usize,
                    properties: *const BackingProperties,
                    flags: c_ulonglong
                ) -> Status;
            destroy as "cuMemRelease": fn(backing: CUmemGenericAllocationHandle) -> Status;
            map as "cuMemMap":
                fn(
                    at: CUdeviceptr,
                    bytes: usize,
                    offset: usize,
                    backing: CUmemGenericAllocationHandle,
                    flags: c_ulonglong
                ) -> Status;
            retain_at as "cuMemRetainAllocationHandle":
                fn(backing: *mut CUmemGenericAllocationHandle, at: *mut c_void) -> Status;
            unmap as "cuMemUnmap": fn(at: CUdeviceptr, bytes: usize) -> Status;
            set_access as "cuMemSetAccess":
                fn(at: CUdeviceptr, bytes: usize, rights: *const AccessRight, count: usize) -> Status;
            export as "cuMemExportToShareableHandle":
                fn(
                    shared: *mut c_void,
                    backing: CUmemGenericAllocationHandle,
                    kind: CUmemAllocationHandleType,
                    flags: c_ulonglong
                ) -> Status;
            import as "cuMemImportFromShareableHandle":
                fn(
                    backing: *mut CUmemGenericAllocationHandle,
                    shared: *mut c_void,
                    kind: CUmemAllocationHandleType
                ) -> Status;
        }
        optional {}
    }
}

symbol_table! {
    /// The driver's own stream-ordered pool.
    pub(crate) struct StreamOrderedCalls {
        required {
            default_pool as "cuDeviceGetDefaultMemPool":
                fn(pool: *mut CUmemoryPool, device: CUdevice) -> Status;
            allocate as "cuMemAllocFromPoolAsync":
                fn(
                    at: *mut CUdeviceptr,
                    bytes: usize,
                    pool: CUmemoryPool,
                    stream: CUstream
                ) -> Status;
            free as "cuMemFreeAsync": fn(at: CUdeviceptr, stream: CUstream) -> Status;
            trim as "cuMemPoolTrimTo": fn(pool: CUmemoryPool, keep: usize) -> Status;
        }
        optional {}
    }
}

symbol_table! {
    /// Page-locked host memory.
    pub(crate) struct HostMemoryCalls {
        required {
            allocate as "cuMemHostAlloc":
                fn(ptr: *mut *mut c_void, bytes: usize, flags: c_uint) -> Status;
            free as "cuMemFreeHost": fn(ptr: *mut c_void) -> Status;
            register as "cuMemHostRegister_v2":
                fn(ptr: *mut c_void, bytes: usize, flags: c_uint) -> Status;
            unregister as "cuMemHostUnregister": fn(ptr: *mut c_void) -> Status;
            device_address as "cuMemHostGetDevicePointer_v2":
                fn(at: *mut CUdeviceptr, ptr: *mut c_void, flags: c_uint) -> Status;
        }
        optional {}
    }
}

symbol_table! {
    /// Memory named by a token in another process.
    pub(crate) struct IpcCalls {
        required {
            range as "cuMemGetAddressRange_v2":
                fn(base: *mut CUdeviceptr, bytes: *mut usize, at: CUdeviceptr) -> Status;
            export as "cuIpcGetMemHandle": fn(token: *mut CUipcMemHandle, at: CUdeviceptr) -> Status;
            open as "cuIpcOpenMemHandle_v2":
                fn(at: *mut CUdeviceptr, token: CUipcMemHandle, flags: c_uint) -> Status;
            close as "cuIpcCloseMemHandle": fn(at: CUdeviceptr) -> Status;
        }
        optional {}
    }
}

symbol_table! {
    /// Streams captured into graphs.
    pub(crate) struct CaptureCalls {
        required {
            status as "cuStreamGetCaptureInfo_v2":
                fn(
                    stream: CUstream,
                    status: *mut c_uint,
                    id: *mut u64,
                    graph: *mut CUgraph,
                    dependencies: *mut *const CUgraphNode,
                    count: *mut usize
                ) -> Status;
            begin as "cuStreamBeginCapture_v2": fn(stream: CUstream, mode: c_uint) -> Status;
            end as "cuStreamEndCapture": fn(stream: CUstream, graph: *mut CUgraph) -> Status;
            instantiate as "cuGraphInstantiateWithFlags":
                fn(executable: *mut CUgraphExec, graph: CUgraph, flags: c_ulonglong) -> Status;
            destroy_recording as "cuGraphDestroy": fn(graph: CUgraph) -> Status;
            launch as "cuGraphLaunch": fn(executable: CUgraphExec, stream: CUstream) -> Status;
            destroy as "cuGraphExecDestroy": fn(executable: CUgraphExec) -> Status;
            exchange_mode as "cuThreadExchangeStreamCaptureMode": fn(mode: *mut c_uint) -> Status;
        }
        optional {
            /// The nodes a node directly depends on; the name with a suffix tells of kinds of edges too.
            node_dependencies as "cuGraphNodeGetDependencies":
                fn(node: CUgraphNode, dependencies: *mut CUgraphNode, count: *mut usize) -> Status;
        }
    }
}

symbol_table! {
    /// One device reaching another's memory.
    pub(crate) struct PeerAccessCalls {
        required {
            can_reach as "cuDeviceCanAccessPeer":
                fn(can: *mut c_int, device: CUdevice, peer: CUdevice) -> Status;
            enable as "cuCtxEnablePeerAccess": fn(peer: CUcontext, flags: c_uint) -> Status;
            disable as "cuCtxDisablePeerAccess": fn(peer: CUcontext) -> Status;
        }
        optional {}
    }
}

symbol_table! {
    /// Fills and copies in stream order.
    pub(crate) struct TransferCalls {
        required {
            fill as "cuMemsetD8Async":
                fn(at: CUdeviceptr, byte: c_uchar, bytes: usize, stream: CUstream) -> Status;
            copy as "cuMemcpyDtoDAsync_v2":
                fn(to: CUdeviceptr, from: CUdeviceptr, bytes: usize, stream: CUstream) -> Status;
            upload as "cuMemcpyHtoDAsync_v2":
                fn(to: CUdeviceptr, from: *const c_void, bytes: usize, stream: CUstream) -> Status;
            download as "cuMemcpyDtoHAsync_v2":
                fn(to: *mut c_void, from: CUdeviceptr, bytes: usize, stream: CUstream) -> Status;
        }
        optional {}
    }
}

symbol_table! {
    /// Host functions in stream order.
    pub(crate) struct HostCallCalls {
        required {
            call as "cuLaunchHostFunc":
                fn(stream: CUstream, function: CUhostFn, data: *mut c_void) -> Status;
            is_capturing as "cuStreamIsCapturing":
                fn(stream: CUstream, status: *mut c_uint) -> Status;
        }
        optional {}
    }
}
