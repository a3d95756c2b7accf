//! Why memory cannot be exported or imported.

use crate::abi::{DLDevice, VERSION};

/// Why memory cannot be exported or imported.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A shape does not fit the memory.
    #[error("a tensor of shape {shape:?} needs {}, and the memory has {bytes} bytes; pass a shape that fits",
        needed.map_or("more bytes than can be counted".to_owned(), |bytes| format!("{bytes} bytes")))]
    Shape {
        /// The shape.
        shape: Vec<i64>,
        /// The bytes that it needs, if they can be counted.
        needed: Option<u64>,
        /// The bytes that there are.
        bytes: u64,
    },
    /// A length is negative, or there are too many.
    #[error("{shape:?} is no shape; pass at most {} lengths of 0 or more", i32::MAX)]
    NoShape {
        /// The shape.
        shape: Vec<i64>,
    },
    /// A tensor has a layout of another major version.
    #[error("the tensor has version {major} of DLPack, and this library reads version {}; ask its producer for that",
        VERSION.major)]
    Version {
        /// Its major version.
        major: u32,
    },
    /// A structure of the producer is incomplete.
    #[error("the tensor has {missing}; report it to the library that made it")]
    Malformed {
        /// What is wrong.
        missing: &'static str,
    },
    /// A tensor has gaps, or is not in row-major order.
    #[error("the tensor of shape {shape:?} has strides {strides:?}; make a compact copy of it first")]
    NotCompact {
        /// Its shape.
        shape: Vec<i64>,
        /// Its steps, in elements.
        strides: Vec<i64>,
    },
    /// A tensor must not be written.
    #[error("the tensor must not be written; make a copy of it first")]
    ReadOnly,
    /// A tensor is on another device.
    #[error("the tensor is on {}, and the allocator's memory is on {}; copy it there first", named(*found), named(*wanted))]
    Device {
        /// Where it is.
        found: DLDevice,
        /// Where it should be.
        wanted: DLDevice,
    },
}

fn named(device: DLDevice) -> String {
    format!("device ({}, {}) of DLPack", device.device_type, device.device_id)
}
