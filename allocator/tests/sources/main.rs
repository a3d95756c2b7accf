//! The promises of custom sources, observed from outside and without a GPU.
//!
//! [`fake`] builds a shared library that imitates those of the vendors, where there is a C compiler.

mod absent;
mod c_functions;
mod closures;
mod fake;
mod loading;
mod nccl;
mod nvshmem;
mod rocshmem;

use cachette::hal::{Ordinal, StreamRef};
use cachette::source::AllocContext;

/// A place on the first device.
const HERE: AllocContext = AllocContext::new(Ordinal(0), StreamRef::DEFAULT);
