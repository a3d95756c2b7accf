//! A GPU made of host memory.
//!
//! It keeps every promise of [`cachette_hal`]. Streams are queues that run independently, events mark places in them,
//! and virtual memory maps the same pages at several addresses. A forbidden access is a fault that every later call
//! reports. It never crashes the process, because every access is first checked against a table of addresses.
//!
//! Time and failure are arguments:
//!
//! | setting | what it does |
//! |---|---|
//! | [`HostConfig::devices`] | the number of devices; all share one address space |
//! | [`HostConfig::capacity`] | bytes of each; beyond that calls fail with `OutOfMemory` |
//! | [`HostConfig::granularity`] | the granularity of virtual memory |
//! | [`HostConfig::base_alignment`] | the alignment of allocations |
//! | [`HostConfig::stepped`] | work runs only on request, in an order drawn from a seed |
//! | [`HostConfig::phantom`] | memory is accounted for and never touched |
//! | [`HostConfig::without`], [`HostConfig::without_sharing`] | features and kinds of sharing to lack |
//! | [`HostConfig::free_without_waiting`] | `free` does not wait; memory that queued work uses must not be freed |
//! | [`HostConfig::shared`] | a file by which several processes share the memory of the devices |
//! | [`HostConfig::peers`] | whether the devices can access each other's memory |
//! | [`HostDevice::fail_next`], [`HostDevice::fail_nth_call`] | calls to fail |
//! | [`HostDevice::hold`] | a stream to keep at a known point |
//! | [`HostDevice::step`], [`HostDevice::run_until_idle`] | steps in stepped mode |
//! | [`HostDevice::calls`], [`HostDevice::physical_bytes`], [`HostDevice::live`] | inspection |
//!
//! The feature `defects` adds devices that break one promise each, to prove that a suite detects it.
//!
//! # Choices where drivers differ
//!
//! * `free` and `free_pinned` wait until the whole device is idle, as most drivers do.
//! * Work after a fault is dropped, but its events complete, so that no thread waits forever.
//! * In stepped mode a call that blocks runs the steps that it needs. If no work can run, it fails with
//!   [`ErrorKind::Other`](cachette_hal::ErrorKind::Other) instead of hanging.
//! * In a forked child every call fails with [`ErrorKind::DeviceLost`](cachette_hal::ErrorKind::DeviceLost).
//! * A new allocation is zeroed. Memory of the stream-ordered pool keeps its content.
//!
//! # Example
//!
//! ```
//! use cachette_hal::owned::OwnedMemory;
//! use cachette_hal::{Device, Ordinal};
//! use cachette_hal_host::{HostBackend, HostConfig};
//!
//! let backend = HostBackend::new(HostConfig::default().capacity(64 << 20))?;
//! let device = backend.device(Ordinal(0))?;
//! let memory = OwnedMemory::allocate(device.clone(), 1 << 20)?;
//! assert_eq!(device.memory_info()?.free, 63 << 20);
//! memory.close()?;
//! assert_eq!(device.memory_info()?.free, 64 << 20);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod addresses;
mod backend;
mod backing;
mod capture;
mod checks;
mod config;
mod control;
mod defect;
mod device;
mod engine;
mod extent;
mod fork;
mod host_calls;
mod host_memory;
mod ipc;
mod mapping;
mod peer_access;
mod physical;
mod random;
mod script;
mod shared_memory;
mod sharing;
mod space;
mod stream_ordered;
mod token;
mod touch;
mod transfer;
mod virtual_defects;
mod virtual_memory;

pub use backend::HostBackend;
pub use config::{ConfigError, HostConfig};
pub use control::Live;
#[cfg(feature = "defects")]
pub use defect::Defect;
pub use device::HostDevice;
pub use engine::{Hold, StepRecord, WorkKind};
