//! Segments for a Cachette pool that come from a vendor's communication library.
//!
//! | source | memory |
//! |---|---|
//! | [`Nccl`] | NCCL or RCCL can register it, so their collectives need no copy |
//! | [`Nvshmem`] | symmetric on NVIDIA devices: at the same offset in every rank |
//! | [`Rocshmem`] | symmetric on AMD devices |
//!
//! No library is needed to build. A library that is missing at run time is an error that lists every name tried. Every
//! vendor library works on the calling thread's current device, which is that of the request by a promise of
//! [`Source`](cachette::source::Source).

mod convert;
mod library;
mod named;
mod nccl;
mod nvshmem;
mod rocshmem;

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
