//! The promises of the sources, without a GPU.
//!
//! [`fake`] builds a shared library that imitates those of the vendors, if there is a C compiler.

mod absent;
mod c_functions;
mod fake;
mod loading;
mod nccl;
mod nvshmem;
mod rocshmem;

use cachette::hal::{Ordinal, StreamRef};
use cachette::source::AllocContext;

/// The default stream of the first device.
const HERE: AllocContext = AllocContext::new(Ordinal(0), StreamRef::DEFAULT);
