//! Every function has the prototype that its caller was compiled with.

use cachette_hal_hip::symbols::{
    Age, CaptureSymbols, Core, HostCallsSymbols, HostMemorySymbols, IpcSymbols, PeerAccessSymbols,
    StreamOrderedSymbols, TransferSymbols, VirtualMemorySymbols,
};

use crate::{
    capture, descriptors, device, events, host_calls, host_memory, ipc, mappings, memory, nodes, peer_access, pointers,
    stream_ordered, streams, transfer, virtual_memory,
};

/// Puts functions of a module beside those of a table, which compiles where their types are the same.
macro_rules! same {
    ($($table:ident, $module:ident: $($name:ident)*;)*) => {
        $(
            const _: fn(&$table) = |table| {
                $(let _ = [table.$name, $module::$name];)*
            };
        )*
    };
}

same! {
    Age, device:
        hipRuntimeGetVersion;
    Core, device:
        hipInit hipGetDeviceCount hipGetDevice hipSetDevice hipGetLastError
        hipGetDevicePropertiesR0600 hipDeviceGetAttribute hipMemGetInfo hipDeviceSynchronize;
    Core, memory:
        hipMalloc hipFree;
    Core, streams:
        hipStreamCreateWithFlags hipStreamDestroy hipStreamSynchronize hipStreamWaitEvent;
    Core, events:
        hipEventCreateWithFlags hipEventDestroy hipEventRecord hipEventQuery;
    VirtualMemorySymbols, virtual_memory:
        hipMemGetAllocationGranularity hipMemAddressReserve hipMemAddressFree hipMemCreate
        hipMemRelease;
    VirtualMemorySymbols, mappings:
        hipMemMap hipMemUnmap hipMemSetAccess;
    VirtualMemorySymbols, descriptors:
        hipMemExportToShareableHandle hipMemImportFromShareableHandle;
    StreamOrderedSymbols, stream_ordered:
        hipMallocFromPoolAsync hipFreeAsync hipDeviceGetDefaultMemPool hipMemPoolTrimTo;
    StreamOrderedSymbols, pointers:
        hipPointerGetAttributes;
    HostMemorySymbols, host_memory:
        hipHostMalloc hipHostFree hipHostRegister hipHostUnregister hipHostGetDevicePointer;
    IpcSymbols, ipc:
        hipIpcGetMemHandle hipIpcOpenMemHandle hipIpcCloseMemHandle;
    IpcSymbols, pointers:
        hipMemGetAddressRange;
    CaptureSymbols, capture:
        hipStreamBeginCapture hipStreamEndCapture hipGraphInstantiateWithFlags hipGraphDestroy
        hipGraphLaunch hipGraphExecDestroy hipThreadExchangeStreamCaptureMode;
    CaptureSymbols, nodes:
        hipStreamGetCaptureInfo_v2;
    PeerAccessSymbols, peer_access:
        hipDeviceCanAccessPeer hipDeviceEnablePeerAccess hipDeviceDisablePeerAccess;
    TransferSymbols, transfer:
        hipMemsetAsync hipMemcpyDtoDAsync hipMemcpyHtoDAsync hipMemcpyDtoHAsync;
    HostCallsSymbols, host_calls:
        hipLaunchHostFunc;
}

const _: fn(&Core) = |table| {
    let _ = table.hipExtMallocWithFlags().map(|found| [found, memory::hipExtMallocWithFlags]);
};

const _: fn(&CaptureSymbols) = |table| {
    let _ = table.hipGraphNodeGetDependencies().map(|found| [found, nodes::hipGraphNodeGetDependencies]);
};
