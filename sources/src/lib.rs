//! Segments for a Cachette pool that come from a vendor's communication library or from C functions.
//!
//! | source | memory |
//! |---|---|
//! | [`Nccl`] | NCCL or RCCL can register it, so their collectives need no copy |
//! | [`Nvshmem`] | symmetric on NVIDIA devices: at the same offset in every rank |
//! | [`Rocshmem`] | symmetric on AMD devices |
//! | [`CFunctions`] | from two C functions of the program or of a shared library |
//!
//! No library is needed to build. A library that is missing at run time is an error that lists every name tried. Every
//! vendor library works on the calling thread's current device, so a source makes the request's device current for the
//! call and restores the previous one (`current_device.rs`).

mod c_functions;
mod convert;
mod current_device;
mod library;
mod named;
mod nccl;
mod nvshmem;
mod rocshmem;

pub use c_functions::{CAllocate, CFree, CFunctions};
pub use named::{NamedError, open_named};
pub use nccl::Nccl;
pub use nvshmem::Nvshmem;
pub use rocshmem::{Rocshmem, RocshmemFree, RocshmemMalloc};

use cachette::source::{AllocContext, SourceError};
use cachette_hal::Ordinal;

/// Refuses a request for another device than the one that the library `name` was initialised for.
fn check_device(name: &str, device: Ordinal, context: &AllocContext) -> Result<(), SourceError> {
    if context.device == device {
        return Ok(());
    }
    let asked = context.device;
    Err(SourceError::other(
        format!("{name} serves device {device} in this process, not device {asked}"),
        format!("use it on device {device} alone"),
    ))
}
