//! AMD GPUs through libamdhip64, loaded at run time.
//!
//! The library is opened by name and its functions are resolved once; nothing of ROCm is needed to build.
//! HIP 6.0 and newer is supported. What a driver or device cannot do is a missing feature with its reason,
//! and what it does wrong is hidden here:
//!
//! | what drivers do | what absorbs it |
//! |---|---|
//! | the current device decides, even where one is named | `context.rs`: every call makes its own device current and puts the caller's back |
//! | failures stay in the thread's last error, "not ready" too before 7.0 | `library.rs`: they are taken away |
//! | granularities of 4 KiB, with a descriptor for every backing | `probe.rs`: a floor of 2 MiB; `limits.rs`: the limit on descriptors is raised, and their end told from that of memory |
//! | a failed map reports success before 7.14 | `ledger.rs`: it is proven by setting rights |
//! | unmapping what is not mapped crashes, or lies | `ledger.rs`: only what is mapped, and only whole |
//! | a descriptor is passed by pointer before 7.1 and by value since, when 0 is null | `virtual_memory.rs`: a copy is passed, which is never 0 |
//! | a capture that ends without a graph stays on its streams | `capture.rs`: a second, empty capture takes it off them |
//! | a second end of such a capture crashes | `ends.rs`: it does not reach the driver |
//! | a query of an event blocks while another thread waits for it | `device.rs`: to wait is to query with pauses |
//! | a token of mapped memory brings the kernel down; one of an interior address names the whole | `ipc.rs`: neither is made |
//! | the stream-ordered pool gives out memory that is not there | `stream_ordered.rs`: it is tested before it is offered |
//! | setting rights hangs on old kernels, some architectures lose stores | `probe.rs`: held back |
//! | the stream `hipStreamLegacy` crashes | `device.rs`: zero is passed for it |
//!
//! # Environment
//!
//! | variable | meaning |
//! |---|---|
//! | `CACHETTE_HIP_LIBRARY` | path of the library to use, and no other |
//! | `CACHETTE_HIP_FORCE_VIRTUAL_MEMORY` | 1: use virtual memory although it is held back |
//! | `CACHETTE_HIP_FORCE_ALIASES` | 1: let elastic memory move although caches may not agree on it |
//! | `CACHETTE_HIP_FORCE_STREAM_ORDERED` | 1: use the stream-ordered pool although it is held back, and untested |
//!
//! The driver itself listens to others, chiefly:
//!
//! | variable | meaning |
//! |---|---|
//! | `ROCR_VISIBLE_DEVICES`, then `HIP_VISIBLE_DEVICES` or `CUDA_VISIBLE_DEVICES` | devices to show; on a machine with both vendors CUDA's can hide AMD's |
//! | `HSA_XNACK` | 1: page faults of the device are served, where it can |
//! | `DEBUG_HIP_MEM_POOL_VMHEAP` | 0: the stream-ordered pool maps no memory of its own |
//! | `AMD_LOG_LEVEL` | 3: every call of the runtime with its arguments, for reports of bugs |
//!
//! Every backing holds a descriptor, so `ulimit -n` limits their number; the soft limit is raised to the hard
//! one when a device with virtual memory is opened.
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
//!         println!("{} ({})", device.info().name, device.facts().architecture);
//!     }
//!     Err(why) => println!("no AMD device: {why}"),
//! }
//! # Ok::<(), cachette_hal::Error>(())
//! ```

mod backend;
mod capture;
mod context;
mod device;
mod ends;
mod facts;
mod host_calls;
mod host_memory;
mod ipc;
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
pub use device::{AllocationKind, HipDevice};
pub use facts::HipFacts;
pub use library::{LIBRARY_VARIABLE, OLDEST, candidates};
pub use probe::{FORCE_ALIASES, FORCE_STREAM_ORDERED, FORCE_VIRTUAL_MEMORY};
