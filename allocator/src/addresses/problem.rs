//! The errors of saved addresses, each with its remedy.

use std::{fmt, io};

/// Why addresses could not be read or restored. Nothing has changed then.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddressesProblem {
    /// The text is not one of saved addresses.
    #[error("this is no file of saved addresses; save them by Pool::save_addresses")]
    NotAddresses,
    /// Another version of this library wrote the text.
    #[error("the file has format {0}, and this version reads format 1; save the addresses again with this version")]
    OtherFormat(String),
    /// The text was cut or changed.
    #[error("the file was cut or changed; copy it again, or save the addresses again")]
    Damaged,
    /// A line of the text makes no sense.
    #[error("line {line} of the file is wrong: {why}; save the addresses again")]
    Malformed {
        /// The number of the line, from one on.
        line: usize,
        /// What is wrong.
        why: &'static str,
    },
    /// The file could not be read or written.
    #[error("the file {path} failed: {kind}; check that its folder exists and is yours")]
    File {
        /// The path.
        path: String,
        /// The error.
        kind: io::ErrorKind,
    },
    /// The addresses were saved on another card, or with another driver.
    #[error(
        "they were saved where the {fact} is {saved}, and here it is {here}; restore them on such a machine, or capture \
         the graph here and save its addresses again"
    )]
    OtherDevice {
        /// The fact that differs.
        fact: &'static str,
        /// As it was saved.
        saved: String,
        /// As it is here.
        here: String,
    },
    /// Other memory has the addresses.
    #[error(
        "the addresses {start:#x} to {end:#x} are taken by {holder}; restore before anything else allocates on the \
         device, or in a new process"
    )]
    Taken {
        /// The first address of the segment.
        start: u64,
        /// The address after its last.
        end: u64,
        /// What has them.
        holder: AddressHolder,
    },
    /// A range is not one of whole pages, is empty, or overlaps another.
    #[error(
        "the segment of {bytes} bytes at {base:#x} cannot be restored: segments are whole pages of {page} bytes, in order, \
         and do not overlap; pass those that were saved"
    )]
    Unusable {
        /// The first address.
        base: u64,
        /// Its bytes.
        bytes: u64,
        /// The bytes of a page.
        page: u64,
    },
    /// Requests of the stream get direct segments in this pool.
    #[error("only elastic segments have given addresses; set expandable_segments:True, and use a pool that may split")]
    NotElastic,
}

/// What has addresses that a restore needs.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AddressHolder {
    /// A segment of this allocator.
    Segment {
        /// The pool.
        pool: String,
        /// The first address.
        start: u64,
        /// The address after the last.
        end: u64,
    },
    /// A mapping of the process, as the kernel lists it.
    Mapping(String),
    /// Memory of which only the driver knows.
    Driver,
}

impl fmt::Display for AddressHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Segment { pool, start, end } => {
                write!(f, "the segment {start:#x} to {end:#x} of pool {pool} of this process")
            }
            Self::Mapping(line) => write!(f, "the mapping \"{line}\" of this process"),
            Self::Driver => {
                f.write_str("the driver, which reserved others although no mapping of the process has them")
            }
        }
    }
}
