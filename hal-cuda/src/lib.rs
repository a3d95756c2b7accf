//! NVIDIA devices through libcuda, loaded at run time.
//!
//! [`CudaBackend::load`] finds the driver, which must be of CUDA 12.0 or newer, and resolves its functions
//! once. Nothing of CUDA is needed to build. A program starts without a driver, and is told by a
//! [`LoadError`](cachette_hal::LoadError) what was tried and what to do.
//!
//! | file | what it holds |
//! |---|---|
//! | `library.rs`, `symbols.rs`, `types.rs` | the library, its functions, its C types |
//! | `status.rs` | the driver's statuses as errors of the contract |
//! | `context.rs` | the primary context, made current around every call and put back |
//! | `backend.rs`, `device.rs`, `facts.rs` | the driver, a device, facts about it |
//! | `probe.rs` | why a group is missing |
//! | `mappings.rs` | one call at a time changes mappings, and is made again where the driver fails without a reason |
//! | one file a group | a group of calls, as the object that the contract asks for |
//!
//! A device retains the primary context, which it shares with every other user of the device in the
//! process, such as the CUDA runtime. Streams and memory of theirs are therefore ours too.
//!
//! # What the driver decides
//!
//! * A live handle of another device is passed on. The driver refuses it where mixing would do harm, and
//!   otherwise does what was meant.
//! * A call that the driver refuses because the process is leaving is
//!   [`ErrorKind::ShuttingDown`](cachette_hal::ErrorKind::ShuttingDown).
//! * In a forked child every call fails with [`ErrorKind::DeviceLost`](cachette_hal::ErrorKind::DeviceLost),
//!   except that `poll` may still answer.
//!
//! # Features
//!
//! `cudarc`: streams of the crate cudarc are accepted as ours by `CudaDevice::accept`.

mod backend;
mod capture;
mod context;
mod device;
mod facts;
mod host_calls;
mod host_memory;
#[cfg(feature = "cudarc")]
mod interop;
mod ipc;
mod library;
mod mappings;
mod peer_access;
mod probe;
mod status;
mod stream_ordered;
mod symbols;
mod transfer;
mod types;
mod virtual_memory;

pub use backend::CudaBackend;
pub use cachette_hal::load::Candidate;
pub use device::CudaDevice;
#[cfg(feature = "cudarc")]
pub use interop::stream_ref;
