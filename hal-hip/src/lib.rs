//! AMD GPUs through libamdhip64, loaded at run time.
//!
//! [`HipBackend::load`] finds the driver, which must be HIP 6.0 or newer, and resolves its functions once. The build
//! needs no part of ROCm. A program also starts without a driver: a [`LoadError`](cachette_hal::LoadError) then
//! contains the attempts and the remedy.
//!
//! The crate `cachette-hal-cuda` has the same files with the same structs. What a driver or device lacks is a missing
//! group with its reason. Defects of drivers are handled here:
//!
//! | defect | where it is handled |
//! |---|---|
//! | the current device is used, even where another is named | `context.rs`: the device is current during every call |
//! | failures stay in the thread's last error, "not ready" too before 7.0 | `library.rs`: the error is cleared |
//! | granularities of 4 KiB, with a descriptor for every backing | `virtual_memory.rs`: at least 2 MiB; `limits.rs`: raises the limit on descriptors, and detects that they are exhausted |
//! | a failed map reports success before 7.14 | `virtual_memory.rs`: the driver is asked what is mapped |
//! | such a map keeps its reference to the backing | `virtual_memory.rs`: it is given back |
//! | every refused right has one status, also if the kernel has no memory | `virtual_memory.rs`: the driver is asked what is mapped |
//! | setting rights adds up all mappings of a reservation, 7.0 to 7.13 | `VirtualMemory::mixes_sizes`: mappings have one size |
//! | a descriptor leaks with every exportable backing, 7.14 | `limits.rs`: only so many backings are exportable |
//! | an unmap that fails reports success before 7.14 | `virtual_memory.rs`: the driver is asked, and the range is used no more |
//! | a second release of addresses crashes after the first has failed | `ledger.rs`: it does not reach the driver |
//! | an unmap of unmapped addresses crashes, or reports success | `ledger.rs`: only whole mappings are unmapped |
//! | a descriptor is passed by pointer before 7.1 and by value since, when 0 is null | `virtual_memory.rs`: passes a copy, which is never 0 |
//! | a capture that ends without a graph stays on its streams | `capture.rs`: a second, empty capture detaches it |
//! | no lock protects the state of a capture | `context.rs`: one call at a time uses it |
//! | a second end of such a capture crashes | `capture.rs`: it does not reach the driver |
//! | a call for a destroyed stream crashes, or reports success | `capture.rs`: a query that every version answers comes first, unless this crate owns the stream |
//! | a query of an event blocks while another thread waits for it | `device.rs`: a wait is a query with pauses |
//! | a query of an event breaks a capture that its stream has begun since | `device.rs`: the stream is asked first |
//! | a token of mapped memory crashes the kernel; one of an interior address names the whole allocation | `ipc.rs`: both are rejected |
//! | the stream-ordered pool returns memory that is not mapped | `stream_ordered.rs`: the pool is tested before it is offered |
//! | setting rights hangs on old kernels, and some architectures lose stores | `probe.rs`: the group is not offered |
//! | the stream `hipStreamLegacy` crashes | `device.rs`: zero is passed for it |
//!
//! # Environment
//!
//! | variable | meaning |
//! |---|---|
//! | `CACHETTE_HIP_LIBRARY` | path of the only library to use |
//! | `CACHETTE_HIP_FORCE_VIRTUAL_MEMORY` | 1: use virtual memory in spite of a guard |
//! | `CACHETTE_HIP_FORCE_ALIASES` | 1: let elastic memory move although the caches may be incoherent |
//! | `CACHETTE_HIP_FORCE_STREAM_ORDERED` | 1: use the stream-ordered pool without a test and in spite of a guard |
//!
//! The driver itself reads others, chiefly:
//!
//! | variable | meaning |
//! |---|---|
//! | `ROCR_VISIBLE_DEVICES`, then `HIP_VISIBLE_DEVICES` or `CUDA_VISIBLE_DEVICES` | devices to show; CUDA's variable can hide AMD devices |
//! | `HSA_XNACK` | 1: the device handles page faults, if it can |
//! | `DEBUG_HIP_MEM_POOL_VMHEAP` | 0: the stream-ordered pool does not use virtual memory |
//! | `AMD_LOG_LEVEL` | 3: logs every call of the runtime with its arguments |
//!
//! Every backing holds a descriptor, so `ulimit -n` limits their number. Opening a device with virtual memory raises
//! the soft limit to the hard one.
//!
//! # Example
//!
//! ```
//! use cachette_hal::{Backend, Device, Ordinal};
//! use cachette_hal_hip::HipBackend;
//!
//! match HipBackend::load() {
//!     Ok(backend) => {
//!         let device = backend.device(Ordinal(0))?;
//!         println!("{} ({})", device.info().name, device.info().architecture.as_deref().unwrap_or("unknown"));
//!     }
//!     Err(why) => println!("no AMD device: {why}"),
//! }
//! # Ok::<(), cachette_hal::Error>(())
//! ```

mod backend;
mod capture;
mod context;
mod device;
mod facts;
mod host_calls;
mod host_memory;
mod ipc;
pub mod last_error;
mod ledger;
mod library;
mod limits;
mod peer_access;
mod probe;
pub mod status;
mod stream_ordered;
pub mod symbols;
mod transfer;
pub mod types;
mod virtual_memory;

pub use backend::HipBackend;
pub use cachette_hal::load::Candidate;
pub use device::HipDevice;
pub use library::{LIBRARY_VARIABLE, OLDEST, candidates};
pub use probe::{FORCE_ALIASES, FORCE_STREAM_ORDERED, FORCE_VIRTUAL_MEMORY};
