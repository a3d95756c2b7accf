//! HIP's structures and constants, as AMD's headers lay them out since 6.0.
//!
//! Enumerations are integers, because a newer driver may return values without a name here. Handles are opaque
//! pointers and kept as integers, as are device addresses and device sizes, which have 64 bits on every target.

use std::ffi::{c_char, c_int, c_uchar, c_uint, c_ushort, c_void};
use std::ptr;

/// `hipError_t`.
pub type Status = c_int;
/// `hipStream_t`; zero is the default stream.
pub type StreamHandle = usize;
/// `hipEvent_t`.
pub type EventHandle = usize;
/// `hipGraph_t`.
pub type GraphHandle = usize;
/// `hipGraphNode_t`.
pub type NodeHandle = usize;
/// `hipGraphExec_t`.
pub type GraphExecHandle = usize;
/// `hipMemPool_t`.
pub type PoolHandle = usize;
/// `hipMemGenericAllocationHandle_t`.
pub type BackingHandle = usize;
/// `hipDeviceptr_t`, or a `void*` to device memory.
pub type Address = u64;
/// A `size_t` that counts device memory.
pub type Bytes = u64;
/// `hipHostFn_t`.
pub type HostFn = unsafe extern "C" fn(data: *mut c_void);

/// Rows of memory.
#[doc(alias = "hipPitchedPtr")]
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct PitchedPointer {
    /// The first row.
    pub address: Address,
    /// The bytes from one row to the next.
    pub pitch: usize,
    /// The bytes of a row that the caller asked for.
    pub width: usize,
    /// The rows of a layer.
    pub height: usize,
}

/// The size of a box of memory.
#[doc(alias = "hipExtent")]
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Extent {
    /// Bytes of a row.
    pub width: usize,
    /// Rows of a layer.
    pub height: usize,
    /// Layers.
    pub depth: usize,
}

/// The location of memory.
#[doc(alias = "hipMemLocation")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct MemLocation {
    /// [`MEM_LOCATION_TYPE_DEVICE`].
    pub kind: c_int,
    /// The device.
    pub id: c_int,
}

impl MemLocation {
    /// A device.
    #[must_use]
    pub const fn device(device: c_int) -> Self {
        Self { kind: MEM_LOCATION_TYPE_DEVICE, id: device }
    }
}

/// Flags of physical memory.
#[doc(alias = "hipMemAllocationProp::allocFlags")]
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct MemAllocationFlags {
    /// Compression.
    pub compression_type: c_uchar,
    /// Whether other hardware may access it.
    pub gpu_direct_rdma_capable: c_uchar,
    /// Its purpose.
    pub usage: c_ushort,
}

/// The properties of physical memory.
#[doc(alias = "hipMemAllocationProp")]
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct MemAllocationProp {
    /// [`MEM_ALLOCATION_TYPE_PINNED`].
    pub kind: c_int,
    /// How it can be exported: [`MEM_HANDLE_TYPE_NONE`] or [`MEM_HANDLE_TYPE_FILE_DESCRIPTOR`].
    pub requested_handle_type: c_int,
    /// Its location.
    pub location: MemLocation,
    /// Unused on Linux.
    pub win32_handle_meta_data: *mut c_void,
    /// More properties.
    pub flags: MemAllocationFlags,
}

impl MemAllocationProp {
    /// Memory of `device` that can be exported by these handles.
    #[must_use]
    pub const fn new(device: c_int, handles: c_int) -> Self {
        Self {
            kind: MEM_ALLOCATION_TYPE_PINNED,
            requested_handle_type: handles,
            location: MemLocation::device(device),
            win32_handle_meta_data: ptr::null_mut(),
            flags: MemAllocationFlags { compression_type: 0, gpu_direct_rdma_capable: 0, usage: 0 },
        }
    }
}

/// The right of one device to access a range.
#[doc(alias = "hipMemAccessDesc")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct MemAccessDesc {
    /// The device.
    pub location: MemLocation,
    /// [`MEM_ACCESS_NONE`], [`MEM_ACCESS_READ`] or [`MEM_ACCESS_READ_WRITE`].
    pub flags: c_int,
}

impl MemAccessDesc {
    /// A right of `device`.
    #[must_use]
    pub const fn new(device: c_int, flags: c_int) -> Self {
        Self { location: MemLocation::device(device), flags }
    }
}

/// An allocation's name in another process.
#[doc(alias = "hipIpcMemHandle_t")]
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct IpcMemHandle {
    /// Opaque bytes.
    pub reserved: [u8; 64],
}

/// The attributes of an address.
#[doc(alias = "hipPointerAttribute_t")]
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct PointerAttribute {
    /// [`MEMORY_TYPE_DEVICE`] and others.
    pub kind: c_int,
    /// The device it belongs to.
    pub device: c_int,
    /// The device address.
    pub device_pointer: Address,
    /// The host address.
    pub host_pointer: *mut c_void,
    /// Whether it migrates.
    pub is_managed: c_int,
    /// Flags it was allocated with.
    pub allocation_flags: c_uint,
}

/// Facts about a device; the gaps are fields that are not used here.
#[doc(alias = "hipDeviceProp_t")]
#[doc(alias = "hipDeviceProp_tR0600")]
#[derive(Clone, Copy, Debug)]
#[repr(C, align(8))]
pub struct DeviceProp {
    /// Marketing name, ended by a zero byte.
    pub name: [c_char; 256],
    /// Identity.
    pub uuid: [u8; 16],
    gap_272: [u8; 16],
    /// Bytes of device memory.
    pub total_global_mem: Bytes,
    gap_296: [u8; 12],
    /// Threads of a wavefront.
    pub warp_size: c_int,
    gap_312: [u8; 76],
    /// Compute units.
    pub multi_processor_count: c_int,
    gap_392: [u8; 4],
    /// Whether the device shares its memory with the host.
    pub integrated: c_int,
    /// Whether it can access page-locked host memory.
    pub can_map_host_memory: c_int,
    gap_404: [u8; 180],
    /// Number of the PCI bus.
    pub pci_bus_id: c_int,
    gap_588: [u8; 64],
    /// Whether it has managed memory.
    pub managed_memory: c_int,
    gap_656: [u8; 16],
    /// Whether it can access all host memory.
    pub pageable_memory_access: c_int,
    /// Whether host and device may use managed memory at once.
    pub concurrent_managed_access: c_int,
    gap_680: [u8; 480],
    /// Architecture with its features, such as `gfx942:sramecc+:xnack-`, ended by a zero byte.
    pub gcn_arch_name: [c_char; 256],
    gap_1416: [u8; 48],
    /// Whether the host can access all device memory.
    pub is_large_bar: c_int,
    /// Revision of the chip.
    pub asic_revision: c_int,
}

impl DeviceProp {
    /// All zero.
    #[must_use]
    pub const fn zeroed() -> Self {
        // SAFETY: every field is an integer or an array of integers, for which zero bytes are a value.
        unsafe { std::mem::zeroed() }
    }
}

// The driver writes this many bytes.
const _: () = assert!(size_of::<DeviceProp>() == 1472);

/// Declares constants with their names in AMD's headers.
macro_rules! constants {
    ($($(#[doc = $doc:literal])? $name:ident: $type:ty = $value:literal, $c_name:literal;)*) => {
        $(
            #[doc = concat!("`", $c_name, "`.")]
            $(#[doc = concat!("\n", $doc)])?
            #[doc(alias = $c_name)]
            pub const $name: $type = $value;
        )*

        /// Every constant above with its name in AMD's headers.
        #[doc(hidden)]
        pub const CONSTANTS: &[(&str, i64)] = &[$(($c_name, $value),)*];
    };
}

constants! {
    MEM_ALLOCATION_TYPE_PINNED: c_int = 1, "hipMemAllocationTypePinned";
    MEM_LOCATION_TYPE_DEVICE: c_int = 1, "hipMemLocationTypeDevice";
    MEM_HANDLE_TYPE_NONE: c_int = 0, "hipMemHandleTypeNone";
    MEM_HANDLE_TYPE_FILE_DESCRIPTOR: c_int = 1, "hipMemHandleTypePosixFileDescriptor";
    MEM_GRANULARITY_MINIMUM: c_int = 0, "hipMemAllocationGranularityMinimum";
    MEM_GRANULARITY_RECOMMENDED: c_int = 1, "hipMemAllocationGranularityRecommended";
    MEM_ACCESS_NONE: c_int = 0, "hipMemAccessFlagsProtNone";
    MEM_ACCESS_READ: c_int = 1, "hipMemAccessFlagsProtRead";
    MEM_ACCESS_READ_WRITE: c_int = 3, "hipMemAccessFlagsProtReadWrite";
    MEMORY_TYPE_UNREGISTERED: c_int = 0, "hipMemoryTypeUnregistered";
    MEMORY_TYPE_HOST: c_int = 1, "hipMemoryTypeHost";
    MEMORY_TYPE_DEVICE: c_int = 2, "hipMemoryTypeDevice";
    ATTRIBUTE_CONCURRENT_MANAGED_ACCESS: c_int = 9, "hipDeviceAttributeConcurrentManagedAccess";
    ATTRIBUTE_INTEGRATED: c_int = 16, "hipDeviceAttributeIntegrated";
    ATTRIBUTE_MANAGED_MEMORY: c_int = 24, "hipDeviceAttributeManagedMemory";
    ATTRIBUTE_PAGEABLE_MEMORY_ACCESS: c_int = 65, "hipDeviceAttributePageableMemoryAccess";
    ATTRIBUTE_UNIFIED_ADDRESSING: c_int = 85, "hipDeviceAttributeUnifiedAddressing";
    ATTRIBUTE_MEMORY_POOLS: c_int = 88, "hipDeviceAttributeMemoryPoolsSupported";
    ATTRIBUTE_VIRTUAL_MEMORY: c_int = 89, "hipDeviceAttributeVirtualMemoryManagementSupported";
    ATTRIBUTE_LARGE_BAR: c_int = 10_011, "hipDeviceAttributeIsLargeBar";
    ATTRIBUTE_FINE_GRAIN: c_int = 10_016, "hipDeviceAttributeFineGrainSupport";
    CAPTURE_MODE_GLOBAL: c_int = 0, "hipStreamCaptureModeGlobal";
    CAPTURE_MODE_THREAD_LOCAL: c_int = 1, "hipStreamCaptureModeThreadLocal";
    CAPTURE_MODE_RELAXED: c_int = 2, "hipStreamCaptureModeRelaxed";
    CAPTURE_STATUS_NONE: c_int = 0, "hipStreamCaptureStatusNone";
    CAPTURE_STATUS_ACTIVE: c_int = 1, "hipStreamCaptureStatusActive";
    CAPTURE_STATUS_INVALIDATED: c_int = 2, "hipStreamCaptureStatusInvalidated";
    EVENT_DISABLE_TIMING: c_uint = 2, "hipEventDisableTiming";
    /// An event whose record makes everything before it visible to the host and to peers.
    EVENT_RELEASE_TO_SYSTEM: c_uint = 0x8000_0000, "hipEventReleaseToSystem";
    /// A stream that does not wait for the default one.
    STREAM_NON_BLOCKING: c_uint = 1, "hipStreamNonBlocking";
    HOST_MALLOC_PORTABLE: c_uint = 1, "hipHostMallocPortable";
    /// With a device address.
    HOST_MALLOC_MAPPED: c_uint = 2, "hipHostMallocMapped";
    /// Coherent between host and device while both use it.
    HOST_MALLOC_COHERENT: c_uint = 0x4000_0000, "hipHostMallocCoherent";
    HOST_REGISTER_PORTABLE: c_uint = 1, "hipHostRegisterPortable";
    /// With a device address.
    HOST_REGISTER_MAPPED: c_uint = 2, "hipHostRegisterMapped";
    /// The one flag with which tokens are opened.
    IPC_LAZY_ENABLE_PEER_ACCESS: c_uint = 1, "hipIpcMemLazyEnablePeerAccess";
}
