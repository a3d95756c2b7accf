//! NVIDIA devices through libcuda, loaded at run time.
//!
//! [`CudaBackend::load`] finds the driver, which must support CUDA 12.0 or newer, and resolves its functions once. The
//! build needs no part of CUDA. A program also starts without a driver: a [`LoadError`](cachette_hal::LoadError) then
//! contains the attempts and the remedy.
//!
//! | file | contents |
//! |---|---|
//! | `library.rs`, `symbols.rs`, `types.rs` | the library, its functions, its C types |
//! | `status.rs` | the driver's statuses as errors |
//! | `context.rs` | the primary context, current during every call; the lock of the calls that use a capture |
//! | `backend.rs`, `device.rs`, `facts.rs` | the driver, a device, facts about it |
//! | `probe.rs` | the properties that decide whether a group is present |
//! | `mappings.rs` | the lock and the retries of calls that change mappings |
//! | one file for each group | the struct that implements the group |
//!
//! The crate `cachette-hal-hip` has the same files with the same structs.
//!
//! A device retains the primary context, which it shares with every other user of the device in the process, such as
//! the CUDA runtime. It can therefore use their streams and memory, and they can use its.
//!
//! # What the driver decides
//!
//! * A live handle of another device is passed on. The driver rejects it where mixing would do harm, and otherwise
//!   performs the call.
//! * The driver crashes if a capture ends while another thread uses its streams or events. The calls of this crate
//!   exclude each other then; other users of the driver must do so themselves.
//! * A call that the driver rejects because the process exits fails with
//!   [`ErrorKind::ShuttingDown`](cachette_hal::ErrorKind::ShuttingDown).
//! * In a forked child every call fails with [`ErrorKind::DeviceLost`](cachette_hal::ErrorKind::DeviceLost),
//!   except that `poll` may still succeed.
//!
//! # Features
//!
//! `cudarc`: `CudaDevice::accept` accepts streams of the crate cudarc.

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
pub use library::candidates;
