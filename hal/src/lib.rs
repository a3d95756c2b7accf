//! The contract between Cachette and a GPU driver.
//!
//! A vendor is one implementation of [`Backend`] and [`Device`]. `Device` holds what every driver has: memory, streams
//! and events. Optional calls come in groups, each a separate trait. A device that lacks a group returns the reason:
//!
//! | group | accessor | what it is for |
//! |---|---|---|
//! | [`VirtualMemory`] | [`Device::virtual_memory`] | separate addresses and physical memory |
//! | [`StreamOrdered`] | [`Device::stream_ordered`] | the vendor's stream-ordered pool |
//! | [`HostMemory`] | [`Device::host_memory`] | page-locked host memory |
//! | [`Ipc`] | [`Device::ipc`] | memory shared with another process by a token |
//! | [`Capture`] | [`Device::capture`] | streams captured into graphs |
//! | [`PeerAccess`] | [`Device::peer_access`] | access to another device's memory |
//! | [`Transfer`] | [`Device::transfer`] | fills and copies in stream order |
//! | [`HostCalls`] | [`Device::host_calls`] | host functions in stream order |
//!
//! Handles are plain numbers in newtypes, so [`Device`] is dyn-compatible: generic code takes `D: Device`, and
//! [`AnyDevice`] is a device chosen at run time. No two methods of these traits share a name, so one type can implement
//! all of them.
//!
//! Sizes and addresses of device memory are `u64`, lengths of host memory are `usize`. A size of zero is
//! [`ErrorKind::InvalidValue`] everywhere.
//!
//! [`owned`] holds RAII owners, with which ordinary callers need no `unsafe`. With the
//! feature `traced`, `traced::Traced` reports every call of a device; `Checked` of `cachette-hal-testing` rejects misuse.
//!
//! # Safety contract
//!
//! Queries and creation are safe. Using a handle or an address is `unsafe` under these promises, to which every
//! `# Safety` section of this crate refers by number:
//!
//! 1. **Live.** Every handle and address comes from this device, or from the vendor's library for the same device. It
//!    has not been destroyed, freed, released or closed since. No other thread destroys it during the call.
//! 2. **Idle.** No unfinished or later work uses the memory or handle that is released.
//! 3. **Inside.** A range of addresses lies wholly inside memory that stays live and accessible to this device until
//!    the work has finished.
//! 4. **Still.** Host memory that queued work uses stays valid until the work has finished. Until then it is not
//!    written, nor read if the device writes it.
//!
//! A live handle of *another* device is not a breach: the call fails with [`ErrorKind::InvalidHandle`] or
//! [`ErrorKind::InvalidValue`].
//!
//! A stream that was *destroyed* is not a breach either, unless another thread destroys it during the call: the call
//! fails with [`ErrorKind::InvalidHandle`]. A program may destroy a stream that an allocator still knows. The handle of
//! a destroyed stream may return with a new stream, which the call then uses. NVIDIA's driver breaks this promise: there
//! every call with such a handle crashes, so the caller keeps the stream alive.
//!
//! # Guarantees of every call
//!
//! * Any thread may make any call.
//! * The caller's current device and context are the same after the call as before, on every path.
//! * A call that fails has changed nothing, unless its documentation says otherwise.
//! * Any call may report an earlier asynchronous failure ([`ErrorKind::Fault`], [`ErrorKind::DeviceLost`]).

mod backend;
mod call;
mod capture;
mod capture_lock;
mod device;
mod driver_calls;
mod enum_with_text;
mod error;
mod forward;
mod guarded;
mod handle;
mod host_calls;
mod host_memory;
mod info;
mod ipc;
#[cfg(feature = "load")]
pub mod load;
mod load_error;
mod missing;
pub mod owned;
mod peer_access;
mod stream_ordered;
#[cfg(feature = "traced")]
pub mod traced;
mod transfer;
mod virtual_memory;

pub use backend::{Backend, BackendInfo};
pub use call::Call;
pub use capture::{Capture, CaptureId, CaptureMode, CaptureNode, CaptureStatus};
pub use capture_lock::CaptureLock;
pub use device::{AnyDevice, Device, Use};
pub use driver_calls::{accept, sized_call};
pub use error::{Error, ErrorKind, Recovery, Result};
pub use guarded::Guarded;
pub use handle::{Backing, DevicePtr, Event, Graph, Progress, Stream, StreamRef};
pub use host_calls::{HostCalls, HostFunction, queue_host_function};
pub use host_memory::HostMemory;
pub use info::{DeviceInfo, MemoryInfo, Ordinal, Vendor, Version};
pub use ipc::{Ipc, IpcToken};
pub use load_error::{LoadError, Tried};
pub use missing::{Feature, Missing, Reason};
pub use peer_access::PeerAccess;
pub use stream_ordered::StreamOrdered;
pub use transfer::Transfer;
pub use virtual_memory::{Access, FabricHandle, Granularity, Sharing, VirtualMemory};

#[cfg(not(target_os = "linux"))]
compile_error!("Cachette supports Linux only");

// Device addresses and sizes are 64 bits wide, and so are all counts of them.
const _: () = assert!(usize::BITS == 64, "Cachette needs a 64-bit target");
