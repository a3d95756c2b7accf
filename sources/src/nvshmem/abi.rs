//! The structures of NVSHMEM's headers.

use std::ffi::{c_char, c_int, c_void};
use std::ptr;

/// The version field of a structure of `bytes` bytes: version 1.
///
/// Version 2 of two structures only adds the device's number. Without it the library uses the current device, and older
/// releases may support only version 1.
const fn version_of(bytes: usize) -> c_int {
    assert!(bytes < 1 << 16, "the size is the lower half of the version");
    #[expect(clippy::cast_possible_truncation, clippy::cast_possible_wrap, reason = "it is less than 65,536")]
    let bytes = bytes as c_int;
    (1 << 16) + bytes
}

/// The id that joins the ranks of one job: `nvshmemx_uniqueid_t`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct UniqueId {
    version: c_int,
    internal: [c_char; 124],
}

impl UniqueId {
    /// An id for the library to fill.
    pub(super) const fn empty() -> Self {
        Self { version: version_of(size_of::<Self>()), internal: [0; 124] }
    }

    /// The id from the bytes of [`to_bytes`](Self::to_bytes) in another process.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; 128]) -> Self {
        let (version, internal) = bytes.split_at(4);
        let mut id = Self::empty();
        id.internal.iter_mut().zip(internal).for_each(|(to, from)| *to = c_char::from_ne_bytes([*from]));
        id.version = version.iter().rev().fold(0, |all, byte| all << 8 | c_int::from(*byte));
        id
    }

    /// The id as bytes, to send to the other ranks.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; 128] {
        let mut bytes = [0; 128];
        let (version, internal) = bytes.split_at_mut(4);
        version.copy_from_slice(&self.version.to_le_bytes());
        internal.iter_mut().zip(&self.internal).for_each(|(to, from)| *to = from.to_ne_bytes()[0]);
        bytes
    }
}

/// `nvshmemx_uniqueid_args_t`.
#[derive(Debug)]
#[repr(C)]
struct UniqueIdArguments {
    version: c_int,
    id: *mut UniqueId,
    rank: c_int,
    ranks: c_int,
}

/// `nvshmemx_init_args_v1`.
#[derive(Debug)]
#[repr(C)]
struct InitArguments {
    version: c_int,
    unique_id: UniqueIdArguments,
    content: [c_char; 96],
}

/// `nvshmemx_init_attr_v1`.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct InitAttributes {
    version: c_int,
    mpi_communicator: *mut c_void,
    arguments: InitArguments,
}

// The headers assert the same sizes.
const _: () = assert!(size_of::<UniqueId>() == 128);
const _: () = assert!(size_of::<UniqueIdArguments>() == 24);
const _: () = assert!(size_of::<InitArguments>() == 128);
const _: () = assert!(size_of::<InitAttributes>() == 144);

impl InitAttributes {
    /// The attributes of one of `ranks` ranks that share `id`.
    pub(super) fn new(id: *mut UniqueId, rank: c_int, ranks: c_int) -> Self {
        let unique_id = UniqueIdArguments { version: version_of(size_of::<UniqueIdArguments>()), id, rank, ranks };
        let arguments = InitArguments { version: version_of(size_of::<InitArguments>()), unique_id, content: [0; 96] };
        Self { version: version_of(size_of::<Self>()), mpi_communicator: ptr::null_mut(), arguments }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_hold_the_size_as_the_headers_have_it() {
        assert_eq!(UniqueId::empty().version, 0x1_0080);
        let attributes = InitAttributes::new(ptr::null_mut(), 0, 1);
        assert_eq!(attributes.version, 0x1_0090);
        assert_eq!(attributes.arguments.version, 0x1_0080);
        assert_eq!(attributes.arguments.unique_id.version, 0x1_0018);
    }

    #[test]
    fn a_unique_id_survives_being_sent() {
        let mut id = UniqueId::empty();
        let numbers = id.internal.iter_mut().zip(0u8..);
        numbers.for_each(|(byte, number)| *byte = c_char::from_ne_bytes([number ^ 0x80]));
        let bytes = id.to_bytes();
        let sent = UniqueId::from_bytes(&bytes);
        assert_eq!((sent.version, sent.internal), (id.version, id.internal));
        assert_eq!(bytes[4..7], [0x80, 0x81, 0x82]);
    }
}
