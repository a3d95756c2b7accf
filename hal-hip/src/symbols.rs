//! The functions of libamdhip64 under their C names, one table for each group.
//!
//! [`CoreCalls`] holds what every device needs; a library without one of them cannot be used. A library without a
//! function of another table lacks that group only.

#![expect(missing_docs, reason = "AMD documents the functions")]
#![expect(non_snake_case, reason = "the functions keep their C names")]

use std::ffi::{c_int, c_uint, c_ulonglong, c_void};

use cachette_hal::{symbol_groups, symbol_table};

use crate::types::{
    Address, BackingHandle, Bytes, DeviceProp, EventHandle, GraphExecHandle, GraphHandle, HostFn, IpcMemHandle,
    MemAccessDesc, MemAllocationProp, NodeHandle, PointerAttribute, PoolHandle, Status, StreamHandle,
};

symbol_table! {
    /// The only call that is made before the version is known.
    pub struct VersionCalls {
        required {
            hipRuntimeGetVersion: fn(version: *mut c_int) -> Status;
        }
    }

    /// The functions that every driver must have.
    pub struct CoreCalls {
        required {
            hipInit: fn(flags: c_uint) -> Status;
            hipGetDeviceCount: fn(count: *mut c_int) -> Status;
            hipGetDevice: fn(device: *mut c_int) -> Status;
            hipSetDevice: fn(device: c_int) -> Status;
            hipGetLastError: fn() -> Status;
            hipPeekAtLastError: fn() -> Status;
            hipGetDevicePropertiesR0600: fn(properties: *mut DeviceProp, device: c_int) -> Status;
            hipDeviceGetAttribute: fn(value: *mut c_int, attribute: c_int, device: c_int) -> Status;
            hipMemGetInfo: fn(free: *mut Bytes, total: *mut Bytes) -> Status;
            hipMalloc: fn(address: *mut Address, bytes: Bytes) -> Status;
            hipFree: fn(address: Address) -> Status;
            hipStreamCreateWithFlags: fn(stream: *mut StreamHandle, flags: c_uint) -> Status;
            hipStreamDestroy: fn(stream: StreamHandle) -> Status;
            hipStreamSynchronize: fn(stream: StreamHandle) -> Status;
            hipStreamWaitEvent: fn(stream: StreamHandle, event: EventHandle, flags: c_uint) -> Status;
            hipDeviceSynchronize: fn() -> Status;
            hipEventCreateWithFlags: fn(event: *mut EventHandle, flags: c_uint) -> Status;
            hipEventDestroy: fn(event: EventHandle) -> Status;
            hipEventRecord: fn(event: EventHandle, stream: StreamHandle) -> Status;
            hipEventQuery: fn(event: EventHandle) -> Status;
        }
    }

    /// Virtual memory.
    pub struct VirtualMemoryCalls {
        required {
            hipMemGetAllocationGranularity: fn(
                granularity: *mut Bytes, properties: *const MemAllocationProp, option: c_int
            ) -> Status;
            hipMemAddressReserve: fn(
                address: *mut Address, bytes: Bytes, alignment: Bytes, wish: Address, flags: c_ulonglong
            ) -> Status;
            hipMemAddressFree: fn(address: Address, bytes: Bytes) -> Status;
            hipMemCreate: fn(
                handle: *mut BackingHandle, bytes: Bytes, properties: *const MemAllocationProp, flags: c_ulonglong
            ) -> Status;
            hipMemRelease: fn(handle: BackingHandle) -> Status;
            hipMemMap: fn(
                address: Address, bytes: Bytes, offset: Bytes, handle: BackingHandle, flags: c_ulonglong
            ) -> Status;
            hipMemUnmap: fn(address: Address, bytes: Bytes) -> Status;
            hipMemSetAccess: fn(address: Address, bytes: Bytes, access: *const MemAccessDesc, count: usize) -> Status;
            hipMemExportToShareableHandle: fn(
                shareable: *mut c_void, handle: BackingHandle, kind: c_int, flags: c_ulonglong
            ) -> Status;
            hipMemImportFromShareableHandle: fn(
                handle: *mut BackingHandle, shareable: *mut c_void, kind: c_int
            ) -> Status;
        }
    }

    /// The driver's stream-ordered pool.
    pub struct StreamOrderedCalls {
        required {
            hipMallocFromPoolAsync: fn(
                address: *mut Address, bytes: Bytes, pool: PoolHandle, stream: StreamHandle
            ) -> Status;
            hipFreeAsync: fn(address: Address, stream: StreamHandle) -> Status;
            hipDeviceGetDefaultMemPool: fn(pool: *mut PoolHandle, device: c_int) -> Status;
            hipMemPoolTrimTo: fn(pool: PoolHandle, keep: Bytes) -> Status;
            hipPointerGetAttributes: fn(attributes: *mut PointerAttribute, address: Address) -> Status;
        }
    }

    /// Page-locked host memory.
    pub struct HostMemoryCalls {
        required {
            hipHostMalloc: fn(at: *mut *mut c_void, bytes: usize, flags: c_uint) -> Status;
            hipHostFree: fn(at: *mut c_void) -> Status;
            hipHostRegister: fn(at: *mut c_void, bytes: usize, flags: c_uint) -> Status;
            hipHostUnregister: fn(at: *mut c_void) -> Status;
            hipHostGetDevicePointer: fn(address: *mut Address, at: *mut c_void, flags: c_uint) -> Status;
        }
    }

    /// Memory shared with another process by a token.
    pub struct IpcCalls {
        required {
            hipIpcGetMemHandle: fn(handle: *mut IpcMemHandle, address: Address) -> Status;
            hipIpcOpenMemHandle: fn(address: *mut Address, handle: IpcMemHandle, flags: c_uint) -> Status;
            hipIpcCloseMemHandle: fn(address: Address) -> Status;
        }
    }

    /// What is at an address; for virtual memory and for tokens.
    pub struct AddressCalls {
        required {
            hipMemGetAddressRange: fn(base: *mut Address, bytes: *mut Bytes, address: Address) -> Status;
        }
    }

    /// Streams captured into graphs.
    pub struct CaptureCalls {
        required {
            hipStreamGetCaptureInfo_v2: fn(
                stream: StreamHandle, status: *mut c_int, id: *mut c_ulonglong, graph: *mut GraphHandle,
                dependencies: *mut *const NodeHandle, count: *mut usize
            ) -> Status;
            hipStreamBeginCapture: fn(stream: StreamHandle, mode: c_int) -> Status;
            hipStreamEndCapture: fn(stream: StreamHandle, graph: *mut GraphHandle) -> Status;
            hipGraphInstantiateWithFlags: fn(
                exec: *mut GraphExecHandle, graph: GraphHandle, flags: c_ulonglong
            ) -> Status;
            hipGraphDestroy: fn(graph: GraphHandle) -> Status;
            hipGraphLaunch: fn(exec: GraphExecHandle, stream: StreamHandle) -> Status;
            hipGraphExecDestroy: fn(exec: GraphExecHandle) -> Status;
            hipThreadExchangeStreamCaptureMode: fn(mode: *mut c_int) -> Status;
        }
        optional {
            hipGraphNodeGetDependencies: fn(
                node: NodeHandle, dependencies: *mut NodeHandle, count: *mut usize
            ) -> Status;
        }
    }

    /// Access from one device to another's memory.
    pub struct PeerAccessCalls {
        required {
            hipDeviceCanAccessPeer: fn(can: *mut c_int, device: c_int, peer: c_int) -> Status;
            hipDeviceEnablePeerAccess: fn(peer: c_int, flags: c_uint) -> Status;
            hipDeviceDisablePeerAccess: fn(peer: c_int) -> Status;
        }
    }

    /// Fills and copies in stream order.
    pub struct TransferCalls {
        required {
            hipMemsetAsync: fn(to: Address, value: c_int, bytes: Bytes, stream: StreamHandle) -> Status;
            hipMemcpyDtoDAsync: fn(to: Address, from: Address, bytes: Bytes, stream: StreamHandle) -> Status;
            hipMemcpyHtoDAsync: fn(to: Address, from: *const c_void, bytes: usize, stream: StreamHandle) -> Status;
            hipMemcpyDtoHAsync: fn(to: *mut c_void, from: Address, bytes: usize, stream: StreamHandle) -> Status;
        }
    }

    /// Host functions in stream order.
    pub struct HostCallCalls {
        required {
            hipLaunchHostFunc: fn(stream: StreamHandle, function: Option<HostFn>, data: *mut c_void) -> Status;
        }
    }
}

symbol_groups! {
    /// Every table, or the reason why the library lacks a group.
    pub struct Symbols {
        core: CoreCalls;
        virtual_memory: VirtualMemoryCalls,
        stream_ordered: StreamOrderedCalls,
        host_memory: HostMemoryCalls,
        ipc: IpcCalls,
        addresses: AddressCalls,
        capture: CaptureCalls,
        peer_access: PeerAccessCalls,
        transfer: TransferCalls,
        host_calls: HostCallCalls,
    }
}
