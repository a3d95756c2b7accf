//! Every function has the prototype that its caller was compiled with.

use cachette_hal_hip::symbols::{
    AddressCalls, CaptureCalls, CoreCalls, HostCallCalls, HostMemoryCalls, IpcCalls, PeerAccessCalls,
    StreamOrderedCalls, TransferCalls, VersionCalls, VirtualMemoryCalls,
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
    VersionCalls, device:
        hipRuntimeGetVersion;
    CoreCalls, device:
        hipInit hipGetDeviceCount hipGetDevice hipSetDevice hipGetLastError hipPeekAtLastError
        hipGetDevicePropertiesR0600 hipDeviceGetAttribute hipMemGetInfo hipDeviceSynchronize;
    CoreCalls, memory:
        hipMalloc hipFree;
    CoreCalls, streams:
        hipStreamCreateWithFlags hipStreamDestroy hipStreamSynchronize hipStreamWaitEvent;
    CoreCalls, events:
        hipEventCreateWithFlags hipEventDestroy hipEventRecord hipEventQuery;
    VirtualMemoryCalls, virtual_memory:
        hipMemGetAllocationGranularity hipMemAddressReserve hipMemAddressFree hipMemCreate
        hipMemRelease;
    VirtualMemoryCalls, mappings:
        hipMemMap hipMemUnmap hipMemSetAccess;
    VirtualMemoryCalls, descriptors:
        hipMemExportToShareableHandle hipMemImportFromShareableHandle;
    StreamOrderedCalls, stream_ordered:
        hipMallocFromPoolAsync hipFreeAsync hipDeviceGetDefaultMemPool hipMemPoolTrimTo;
    StreamOrderedCalls, pointers:
        hipPointerGetAttributes;
    HostMemoryCalls, host_memory:
        hipHostMalloc hipHostFree hipHostRegister hipHostUnregister hipHostGetDevicePointer;
    IpcCalls, ipc:
        hipIpcGetMemHandle hipIpcOpenMemHandle hipIpcCloseMemHandle;
    AddressCalls, pointers:
        hipMemGetAddressRange;
    CaptureCalls, capture:
        hipStreamBeginCapture hipStreamEndCapture hipGraphInstantiateWithFlags hipGraphDestroy
        hipGraphLaunch hipGraphExecDestroy hipThreadExchangeStreamCaptureMode;
    CaptureCalls, nodes:
        hipStreamGetCaptureInfo_v2;
    PeerAccessCalls, peer_access:
        hipDeviceCanAccessPeer hipDeviceEnablePeerAccess hipDeviceDisablePeerAccess;
    TransferCalls, transfer:
        hipMemsetAsync hipMemcpyDtoDAsync hipMemcpyHtoDAsync hipMemcpyDtoHAsync;
    HostCallCalls, host_calls:
        hipLaunchHostFunc;
}

const _: fn(&CaptureCalls) = |table| {
    let _ = table.hipGraphNodeGetDependencies().map(|found| [found, nodes::hipGraphNodeGetDependencies]);
};
