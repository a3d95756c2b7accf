//! The functions of libamdhip64, resolved once.
//!
//! What every device needs is in [`Core`]; a library without it is of no use. Each group of the contract
//! has a table of its own, and a library without one of its functions lacks that group alone.

#![expect(non_snake_case, reason = "fields bear the vendor's names")]

use std::ffi::{c_int, c_uint, c_ulonglong, c_void};

use cachette_hal::load::Library;
use cachette_hal::{LoadError, Reason, symbol_table};

use crate::types::{
    Address, BackingHandle, Bytes, DeviceProp, EventHandle, GraphExecHandle, GraphHandle, HostFn, IpcMemHandle,
    MemAccessDesc, MemAllocationProp, NodeHandle, PointerAttribute, PoolHandle, Status, StreamHandle,
};

symbol_table! {
    /// How old the library is: all that may be asked of one that could be too old.
    pub struct Age {
        required {
            /// The runtime's version as major * 10^7 + minor * 10^5 + patch.
            hipRuntimeGetVersion: fn(version: *mut c_int) -> Status;
        }
        optional {}
    }
}

symbol_table! {
    /// What every device needs.
    pub struct Core {
        required {
            /// Starts the runtime.
            hipInit: fn(flags: c_uint) -> Status;
            /// How many devices there are.
            hipGetDeviceCount: fn(count: *mut c_int) -> Status;
            /// The calling thread's device.
            hipGetDevice: fn(device: *mut c_int) -> Status;
            /// Chooses the calling thread's device.
            hipSetDevice: fn(device: c_int) -> Status;
            /// Takes the calling thread's last error away.
            hipGetLastError: fn() -> Status;
            /// Facts about a device; the name without the suffix has an older layout.
            hipGetDevicePropertiesR0600: fn(properties: *mut DeviceProp, device: c_int) -> Status;
            /// One fact about a device.
            hipDeviceGetAttribute: fn(value: *mut c_int, attribute: c_int, device: c_int) -> Status;
            /// Free and total memory.
            hipMemGetInfo: fn(free: *mut Bytes, total: *mut Bytes) -> Status;
            /// Takes memory.
            hipMalloc: fn(address: *mut Address, bytes: Bytes) -> Status;
            /// Gives memory back.
            hipFree: fn(address: Address) -> Status;
            /// Makes a stream.
            hipStreamCreateWithFlags: fn(stream: *mut StreamHandle, flags: c_uint) -> Status;
            /// Destroys a stream.
            hipStreamDestroy: fn(stream: StreamHandle) -> Status;
            /// Waits for a stream.
            hipStreamSynchronize: fn(stream: StreamHandle) -> Status;
            /// Makes a stream wait for an event.
            hipStreamWaitEvent: fn(stream: StreamHandle, event: EventHandle, flags: c_uint) -> Status;
            /// Waits for the device.
            hipDeviceSynchronize: fn() -> Status;
            /// Makes an event.
            hipEventCreateWithFlags: fn(event: *mut EventHandle, flags: c_uint) -> Status;
            /// Destroys an event.
            hipEventDestroy: fn(event: EventHandle) -> Status;
            /// Marks the present end of a stream.
            hipEventRecord: fn(event: EventHandle, stream: StreamHandle) -> Status;
            /// Asks whether an event has passed.
            hipEventQuery: fn(event: EventHandle) -> Status;
        }
        optional {
            /// Takes memory of a chosen kind.
            hipExtMallocWithFlags: fn(address: *mut Address, bytes: Bytes, flags: c_uint) -> Status;
        }
    }
}

symbol_table! {
    /// Addresses and physical memory apart.
    pub struct VirtualMemorySymbols {
        required {
            /// What sizes are multiples of.
            hipMemGetAllocationGranularity: fn(
                granularity: *mut Bytes, properties: *const MemAllocationProp, option: c_int
            ) -> Status;
            /// Reserves addresses.
            hipMemAddressReserve: fn(
                address: *mut Address, bytes: Bytes, alignment: Bytes, wish: Address, flags: c_ulonglong
            ) -> Status;
            /// Releases addresses.
            hipMemAddressFree: fn(address: Address, bytes: Bytes) -> Status;
            /// Makes physical memory.
            hipMemCreate: fn(
                handle: *mut BackingHandle, bytes: Bytes, properties: *const MemAllocationProp,
                flags: c_ulonglong
            ) -> Status;
            /// Gives a handle of physical memory back.
            hipMemRelease: fn(handle: BackingHandle) -> Status;
            /// Maps physical memory.
            hipMemMap: fn(
                address: Address, bytes: Bytes, offset: Bytes, handle: BackingHandle, flags: c_ulonglong
            ) -> Status;
            /// Undoes a mapping.
            hipMemUnmap: fn(address: Address, bytes: Bytes) -> Status;
            /// Sets who may touch a range.
            hipMemSetAccess: fn(
                address: Address, bytes: Bytes, access: *const MemAccessDesc, count: usize
            ) -> Status;
            /// Makes a descriptor.
            hipMemExportToShareableHandle: fn(
                shareable: *mut c_void, handle: BackingHandle, kind: c_int, flags: c_ulonglong
            ) -> Status;
            /// Makes physical memory from a descriptor.
            hipMemImportFromShareableHandle: fn(
                handle: *mut BackingHandle, shareable: *mut c_void, kind: c_int
            ) -> Status;
        }
        optional {}
    }
}

symbol_table! {
    /// AMD's own stream-ordered pool.
    pub struct StreamOrderedSymbols {
        required {
            /// Allocates in stream order, from the pool named.
            hipMallocFromPoolAsync: fn(
                address: *mut Address, bytes: Bytes, pool: PoolHandle, stream: StreamHandle
            ) -> Status;
            /// Frees in stream order.
            hipFreeAsync: fn(address: Address, stream: StreamHandle) -> Status;
            /// The pool that is allocated from and trimmed.
            hipDeviceGetDefaultMemPool: fn(pool: *mut PoolHandle, device: c_int) -> Status;
            /// Gives up what a pool holds unused.
            hipMemPoolTrimTo: fn(pool: PoolHandle, keep: Bytes) -> Status;
            /// What the driver knows of an address.
            hipPointerGetAttributes: fn(
                attributes: *mut PointerAttribute, address: Address
            ) -> Status;
        }
        optional {}
    }
}

symbol_table! {
    /// Page-locked host memory.
    pub struct HostMemorySymbols {
        required {
            /// Allocates page-locked memory.
            hipHostMalloc: fn(at: *mut *mut c_void, bytes: usize, flags: c_uint) -> Status;
            /// Frees page-locked memory.
            hipHostFree: fn(at: *mut c_void) -> Status;
            /// Page-locks memory.
            hipHostRegister: fn(at: *mut c_void, bytes: usize, flags: c_uint) -> Status;
            /// Undoes that.
            hipHostUnregister: fn(at: *mut c_void) -> Status;
            /// The address under which the device sees it.
            hipHostGetDevicePointer: fn(
                address: *mut Address, at: *mut c_void, flags: c_uint
            ) -> Status;
        }
        optional {}
    }
}

symbol_table! {
    /// Memory named by a token in another process.
    pub struct IpcSymbols {
        required {
            /// Names an allocation.
            hipIpcGetMemHandle: fn(handle: *mut IpcMemHandle, address: Address) -> Status;
            /// Opens another process's allocation.
            hipIpcOpenMemHandle: fn(
                address: *mut Address, handle: IpcMemHandle, flags: c_uint
            ) -> Status;
            /// Closes it.
            hipIpcCloseMemHandle: fn(address: Address) -> Status;
            /// The allocation an address lies in.
            hipMemGetAddressRange: fn(
                base: *mut Address, bytes: *mut Bytes, address: Address
            ) -> Status;
        }
        optional {}
    }
}

symbol_table! {
    /// Streams captured into graphs.
    pub struct CaptureSymbols {
        required {
            /// State and number of a stream's capture.
            hipStreamGetCaptureInfo_v2: fn(
                stream: StreamHandle, status: *mut c_int, id: *mut c_ulonglong, graph: *mut GraphHandle,
                dependencies: *mut *const NodeHandle, count: *mut usize
            ) -> Status;
            /// Begins a capture.
            hipStreamBeginCapture: fn(stream: StreamHandle, mode: c_int) -> Status;
            /// Ends a capture.
            hipStreamEndCapture: fn(stream: StreamHandle, graph: *mut GraphHandle) -> Status;
            /// Makes a graph ready to launch.
            hipGraphInstantiateWithFlags: fn(
                exec: *mut GraphExecHandle, graph: GraphHandle, flags: c_ulonglong
            ) -> Status;
            /// Destroys a graph.
            hipGraphDestroy: fn(graph: GraphHandle) -> Status;
            /// Launches a graph.
            hipGraphLaunch: fn(exec: GraphExecHandle, stream: StreamHandle) -> Status;
            /// Destroys a graph that was ready to launch.
            hipGraphExecDestroy: fn(exec: GraphExecHandle) -> Status;
            /// Exchanges the calling thread's capture mode.
            hipThreadExchangeStreamCaptureMode: fn(mode: *mut c_int) -> Status;
        }
        optional {
            /// The nodes a node directly depends on.
            hipGraphNodeGetDependencies: fn(
                node: NodeHandle, dependencies: *mut NodeHandle, count: *mut usize
            ) -> Status;
        }
    }
}

symbol_table! {
    /// One device reaching another's memory.
    pub struct PeerAccessSymbols {
        required {
            /// Whether a device could reach another.
            hipDeviceCanAccessPeer: fn(can: *mut c_int, device: c_int, peer: c_int) -> Status;
            /// Lets the current device reach another.
            hipDeviceEnablePeerAccess: fn(peer: c_int, flags: c_uint) -> Status;
            /// Undoes that.
            hipDeviceDisablePeerAccess: fn(peer: c_int) -> Status;
        }
        optional {}
    }
}

symbol_table! {
    /// Fills and copies in stream order.
    pub struct TransferSymbols {
        required {
            /// Sets every byte.
            hipMemsetAsync: fn(
                to: Address, value: c_int, bytes: Bytes, stream: StreamHandle
            ) -> Status;
            /// Copies on the device.
            hipMemcpyDtoDAsync: fn(
                to: Address, from: Address, bytes: Bytes, stream: StreamHandle
            ) -> Status;
            /// Copies to the device.
            hipMemcpyHtoDAsync: fn(
                to: Address, from: *const c_void, bytes: usize, stream: StreamHandle
            ) -> Status;
            /// Copies from the device.
            hipMemcpyDtoHAsync: fn(
                to: *mut c_void, from: Address, bytes: usize, stream: StreamHandle
            ) -> Status;
        }
        optional {}
    }
}

symbol_table! {
    /// Host functions in stream order.
    pub struct HostCallsSymbols {
        required {
            /// Queues a host function.
            hipLaunchHostFunc: fn(stream: StreamHandle, function: Option<HostFn>, data: *mut c_void) -> Status;
        }
        optional {}
    }
}

/// Every table; a group that lacks a function is the reason that it is missing.
#[derive(Clone, Copy, Debug)]
pub struct Symbols {
    /// What every device needs.
    pub core: Core,
    /// Addresses and physical memory apart.
    pub virtual_memory: Result<VirtualMemorySymbols, Reason>,
    /// AMD's own stream-ordered pool.
    pub stream_ordered: Result<StreamOrderedSymbols, Reason>,
    /// Page-locked host memory.
    pub host_memory: Result<HostMemorySymbols, Reason>,
    /// Memory named by a token in another process.
    pub ipc: Result<IpcSymbols, Reason>,
    /// Streams captured into graphs.
    pub capture: Result<CaptureSymbols, Reason>,
    /// One device reaching another's memory.
    pub peer_access: Result<PeerAccessSymbols, Reason>,
    /// Fills and copies in stream order.
    pub transfer: Result<TransferSymbols, Reason>,
    /// Host functions in stream order.
    pub host_calls: Result<HostCallsSymbols, Reason>,
}

impl Symbols {
    /// Resolves every table, or lists every symbol of [`Core`] that the library lacks.
    pub fn resolve(library: &Library) -> Result<Self, LoadError> {
        Ok(Self {
            core: Core::resolve(library)?,
            virtual_memory: group(VirtualMemorySymbols::resolve(library)),
            stream_ordered: group(StreamOrderedSymbols::resolve(library)),
            host_memory: group(HostMemorySymbols::resolve(library)),
            ipc: group(IpcSymbols::resolve(library)),
            capture: group(CaptureSymbols::resolve(library)),
            peer_access: group(PeerAccessSymbols::resolve(library)),
            transfer: group(TransferSymbols::resolve(library)),
            host_calls: group(HostCallsSymbols::resolve(library)),
        })
    }
}

/// The reason that a group is missing: the first of the symbols it lacks.
fn group<T>(resolved: Result<T, LoadError>) -> Result<T, Reason> {
    resolved.map_err(|error| match error {
        LoadError::SymbolsMissing { symbols, .. } => {
            symbols.first().map_or(Reason::NotImplemented, |symbol| Reason::NoSymbol(symbol))
        }
        _ => Reason::NotImplemented,
    })
}
