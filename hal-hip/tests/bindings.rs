//! Bindings generated from AMD's headers agree with the types, constants and prototypes of this crate.

use std::mem::{align_of, offset_of, size_of};

use cachette_hal_hip::status::STATUSES;
use cachette_hal_hip::symbols::{
    AddressCalls, CaptureCalls, CoreCalls, HostCallCalls, HostMemoryCalls, IpcCalls, PeerAccessCalls,
    StreamOrderedCalls, TransferCalls, VersionCalls, VirtualMemoryCalls,
};
use cachette_hal_hip::types::{
    CONSTANTS, DeviceProp, Extent, IpcMemHandle, MemAccessDesc, MemAllocationProp, MemLocation, PitchedPointer,
    PointerAttribute,
};

/// Constants of the bindings, by name.
macro_rules! constants {
    ($($name:ident)*) => {
        &[$((stringify!($name), hip_sys::$name as i64),)*]
    };
}

const WITNESS: &[(&str, i64)] = constants! {
    hipMemAllocationType_hipMemAllocationTypePinned
    hipMemLocationType_hipMemLocationTypeDevice
    hipMemAllocationHandleType_hipMemHandleTypeNone
    hipMemAllocationHandleType_hipMemHandleTypePosixFileDescriptor
    hipMemAllocationGranularity_flags_hipMemAllocationGranularityMinimum
    hipMemAllocationGranularity_flags_hipMemAllocationGranularityRecommended
    hipMemAccessFlags_hipMemAccessFlagsProtNone
    hipMemAccessFlags_hipMemAccessFlagsProtRead
    hipMemAccessFlags_hipMemAccessFlagsProtReadWrite
    hipMemoryType_hipMemoryTypeUnregistered
    hipMemoryType_hipMemoryTypeHost
    hipMemoryType_hipMemoryTypeDevice
    hipDeviceAttribute_t_hipDeviceAttributeConcurrentManagedAccess
    hipDeviceAttribute_t_hipDeviceAttributeIntegrated
    hipDeviceAttribute_t_hipDeviceAttributeManagedMemory
    hipDeviceAttribute_t_hipDeviceAttributePageableMemoryAccess
    hipDeviceAttribute_t_hipDeviceAttributeUnifiedAddressing
    hipDeviceAttribute_t_hipDeviceAttributeMemoryPoolsSupported
    hipDeviceAttribute_t_hipDeviceAttributeVirtualMemoryManagementSupported
    hipDeviceAttribute_t_hipDeviceAttributeIsLargeBar
    hipDeviceAttribute_t_hipDeviceAttributeFineGrainSupport
    hipStreamCaptureMode_hipStreamCaptureModeGlobal
    hipStreamCaptureMode_hipStreamCaptureModeThreadLocal
    hipStreamCaptureMode_hipStreamCaptureModeRelaxed
    hipStreamCaptureStatus_hipStreamCaptureStatusNone
    hipStreamCaptureStatus_hipStreamCaptureStatusActive
    hipStreamCaptureStatus_hipStreamCaptureStatusInvalidated
    hipEventDisableTiming
    hipEventReleaseToSystem
    hipStreamNonBlocking
    hipHostMallocPortable
    hipHostMallocMapped
    hipHostMallocCoherent
    hipHostRegisterPortable
    hipHostRegisterMapped
    hipIpcMemLazyEnablePeerAccess
    hipError_t_hipSuccess
    hipError_t_hipErrorInvalidValue
    hipError_t_hipErrorOutOfMemory
    hipError_t_hipErrorNotInitialized
    hipError_t_hipErrorDeinitialized
    hipError_t_hipErrorInvalidDevicePointer
    hipError_t_hipErrorPriorLaunchFailure
    hipError_t_hipErrorNoDevice
    hipError_t_hipErrorInvalidDevice
    hipError_t_hipErrorInvalidContext
    hipError_t_hipErrorMapFailed
    hipError_t_hipErrorNotMapped
    hipError_t_hipErrorECCNotCorrectable
    hipError_t_hipErrorPeerAccessUnsupported
    hipError_t_hipErrorOperatingSystem
    hipError_t_hipErrorInvalidHandle
    hipError_t_hipErrorIllegalState
    hipError_t_hipErrorNotFound
    hipError_t_hipErrorNotReady
    hipError_t_hipErrorIllegalAddress
    hipError_t_hipErrorLaunchTimeOut
    hipError_t_hipErrorPeerAccessAlreadyEnabled
    hipError_t_hipErrorPeerAccessNotEnabled
    hipError_t_hipErrorContextIsDestroyed
    hipError_t_hipErrorAssert
    hipError_t_hipErrorHostMemoryAlreadyRegistered
    hipError_t_hipErrorHostMemoryNotRegistered
    hipError_t_hipErrorLaunchFailure
    hipError_t_hipErrorNotSupported
    hipError_t_hipErrorStreamCaptureUnsupported
    hipError_t_hipErrorStreamCaptureInvalidated
    hipError_t_hipErrorStreamCaptureMerge
    hipError_t_hipErrorStreamCaptureUnmatched
    hipError_t_hipErrorStreamCaptureUnjoined
    hipError_t_hipErrorStreamCaptureIsolation
    hipError_t_hipErrorStreamCaptureImplicit
    hipError_t_hipErrorCapturedEvent
    hipError_t_hipErrorStreamCaptureWrongThread
    hipError_t_hipErrorUnknown
    hipError_t_hipErrorRuntimeMemory
    hipError_t_hipErrorRuntimeOther
};

#[test]
fn constants_are_those_of_the_headers() {
    for (name, value) in CONSTANTS.iter().chain(STATUSES) {
        let found = WITNESS
            .iter()
            .find(|(known, _)| known.strip_suffix(name).is_some_and(|kind| kind.is_empty() || kind.ends_with('_')));
        assert_eq!(found.map(|(_, value)| value), Some(value), "{name}");
    }
}

/// Asserts that a structure has the size, and its fields the places, that the bindings give them.
macro_rules! same_layout {
    ($ours:ident, $theirs:ident { $($our_field:ident = $their_field:ident),* }) => {
        assert_eq!(size_of::<$ours>(), size_of::<hip_sys::$theirs>(), stringify!($theirs));
        assert_eq!(align_of::<$ours>(), align_of::<hip_sys::$theirs>(), stringify!($theirs));
        $(
            assert_eq!(
                offset_of!($ours, $our_field),
                offset_of!(hip_sys::$theirs, $their_field),
                stringify!($their_field)
            );
        )*
    };
}

#[test]
fn structures_are_laid_out_as_in_the_headers() {
    same_layout!(PitchedPointer, hipPitchedPtr { address = ptr, pitch = pitch, width = xsize, height = ysize });
    same_layout!(Extent, hipExtent { width = width, height = height, depth = depth });
    same_layout!(MemLocation, hipMemLocation { kind = type_ });
    same_layout!(MemAccessDesc, hipMemAccessDesc { location = location, flags = flags });
    same_layout!(MemAllocationProp, hipMemAllocationProp {
        kind = type_,
        requested_handle_type = __bindgen_anon_1,
        location = location,
        win32_handle_meta_data = win32HandleMetaData,
        flags = allocFlags
    });
    same_layout!(PointerAttribute, hipPointerAttribute_t {
        kind = type_,
        device = device,
        device_pointer = devicePointer,
        host_pointer = hostPointer,
        is_managed = isManaged,
        allocation_flags = allocationFlags
    });
    assert_eq!(size_of::<IpcMemHandle>(), size_of::<hip_sys::hipIpcMemHandle_t>());
    assert_eq!(align_of::<IpcMemHandle>(), align_of::<hip_sys::hipIpcMemHandle_t>());
    same_layout!(DeviceProp, hipDeviceProp_tR0600 {
        name = name,
        uuid = uuid,
        total_global_mem = totalGlobalMem,
        warp_size = warpSize,
        multi_processor_count = multiProcessorCount,
        integrated = integrated,
        can_map_host_memory = canMapHostMemory,
        pci_bus_id = pciBusID,
        managed_memory = managedMemory,
        pageable_memory_access = pageableMemoryAccess,
        concurrent_managed_access = concurrentManagedAccess,
        gcn_arch_name = gcnArchName,
        is_large_bar = isLargeBar,
        asic_revision = asicRevision
    });
}

/// What the calling convention sees of a function: the size and alignment of its answer and arguments.
trait Shape {
    fn shape() -> Vec<(usize, usize)>;
}

macro_rules! shapes {
    ($($argument:ident)*) => {
        impl<Answer, $($argument),*> Shape for unsafe extern "C" fn($($argument),*) -> Answer {
            fn shape() -> Vec<(usize, usize)> {
                vec![
                    (size_of::<Answer>(), align_of::<Answer>()),
                    $((size_of::<$argument>(), align_of::<$argument>()),)*
                ]
            }
        }
    };
}

shapes!();
shapes!(A);
shapes!(A B);
shapes!(A B C);
shapes!(A B C D);
shapes!(A B C D E);
shapes!(A B C D E F);

/// The shape of a required function of a table.
fn required<Table, F: Shape>(_: fn(&Table) -> F) -> Vec<(usize, usize)> {
    F::shape()
}

/// The shape of an optional function of a table.
fn optional<Table, F: Shape, E>(_: fn(&Table) -> Result<F, E>) -> Vec<(usize, usize)> {
    F::shape()
}

/// The shape of a function of the bindings.
fn theirs<F: Shape>(_: F) -> Vec<(usize, usize)> {
    F::shape()
}

/// Asserts that functions have the shapes that the bindings give them.
macro_rules! same_prototypes {
    ($($table:ident { $($name:ident($($argument:tt)*))* })*) => {
        $($(
            let found = required(|table: &$table| table.$name);
            let witness = theirs(hip_sys::$name as unsafe extern "C" fn($($argument)*) -> _);
            assert_eq!(found, witness, stringify!($name));
        )*)*
    };
}

#[test]
fn prototypes_are_those_of_the_headers() {
    same_prototypes! {
        VersionCalls {
            hipRuntimeGetVersion(_)
        }
        CoreCalls {
            hipInit(_)
            hipGetDeviceCount(_)
            hipGetDevice(_)
            hipSetDevice(_)
            hipGetLastError()
            hipPeekAtLastError()
            hipGetDevicePropertiesR0600(_, _)
            hipDeviceGetAttribute(_, _, _)
            hipMemGetInfo(_, _)
            hipMalloc(_, _)
            hipFree(_)
            hipStreamCreateWithFlags(_, _)
            hipStreamDestroy(_)
            hipStreamSynchronize(_)
            hipStreamWaitEvent(_, _, _)
            hipDeviceSynchronize()
            hipEventCreateWithFlags(_, _)
            hipEventDestroy(_)
            hipEventRecord(_, _)
            hipEventQuery(_)
        }
        VirtualMemoryCalls {
            hipMemGetAllocationGranularity(_, _, _)
            hipMemAddressReserve(_, _, _, _, _)
            hipMemAddressFree(_, _)
            hipMemCreate(_, _, _, _)
            hipMemRelease(_)
            hipMemMap(_, _, _, _, _)
            hipMemUnmap(_, _)
            hipMemSetAccess(_, _, _, _)
            hipMemExportToShareableHandle(_, _, _, _)
            hipMemImportFromShareableHandle(_, _, _)
        }
        StreamOrderedCalls {
            hipMallocFromPoolAsync(_, _, _, _)
            hipFreeAsync(_, _)
            hipDeviceGetDefaultMemPool(_, _)
            hipMemPoolTrimTo(_, _)
            hipPointerGetAttributes(_, _)
        }
        HostMemoryCalls {
            hipHostMalloc(_, _, _)
            hipHostFree(_)
            hipHostRegister(_, _, _)
            hipHostUnregister(_)
            hipHostGetDevicePointer(_, _, _)
        }
        IpcCalls {
            hipIpcGetMemHandle(_, _)
            hipIpcOpenMemHandle(_, _, _)
            hipIpcCloseMemHandle(_)
        }
        AddressCalls {
            hipMemGetAddressRange(_, _, _)
        }
        CaptureCalls {
            hipStreamGetCaptureInfo_v2(_, _, _, _, _, _)
            hipStreamBeginCapture(_, _)
            hipStreamEndCapture(_, _)
            hipGraphInstantiateWithFlags(_, _, _)
            hipGraphDestroy(_)
            hipGraphLaunch(_, _)
            hipGraphExecDestroy(_)
            hipThreadExchangeStreamCaptureMode(_)
        }
        PeerAccessCalls {
            hipDeviceCanAccessPeer(_, _, _)
            hipDeviceEnablePeerAccess(_, _)
            hipDeviceDisablePeerAccess(_)
        }
        TransferCalls {
            hipMemsetAsync(_, _, _, _)
            hipMemcpyDtoDAsync(_, _, _, _)
            hipMemcpyHtoDAsync(_, _, _, _)
            hipMemcpyDtoHAsync(_, _, _, _)
        }
        HostCallCalls {
            hipLaunchHostFunc(_, _, _)
        }
    }
    let found = optional(|table: &CaptureCalls| table.hipGraphNodeGetDependencies());
    let witness = theirs(hip_sys::hipGraphNodeGetDependencies as unsafe extern "C" fn(_, _, _) -> _);
    assert_eq!(found, witness, "hipGraphNodeGetDependencies");
}
