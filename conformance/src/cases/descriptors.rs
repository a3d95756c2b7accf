//! Backings exported as a file descriptor.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;

use cachette_hal::{ErrorKind, Result, Sharing};

use super::sharing;
use crate::rig::prelude::*;

cases! { descriptors:
    /// What is exported and imported in one process is the same memory.
    an_imported_backing_is_the_same_memory(VirtualMemory, Transfer) = |on| sharing::same_memory(on, WAY);
    /// Another process that imports a descriptor reads what the exporter wrote.
    a_child_reads_what_the_parent_wrote(VirtualMemory, Transfer).with_child() = |on| sharing::child_reads(on, WAY);
    /// The exporter reads what another process wrote through a descriptor.
    the_parent_reads_what_a_child_wrote(VirtualMemory, Transfer).with_child() = |on| sharing::child_writes(on, WAY);
    /// An imported backing stays when the exported one was unmapped and destroyed.
    imported_memory_outlives_the_exporters_handle(VirtualMemory, Transfer) = |on| sharing::outlives_handle(on, WAY);
    /// Importing leaves the descriptor open: it can be imported again.
    the_descriptor_stays_the_callers(VirtualMemory);
    /// A backing that was created private is not exported.
    private_backing_is_not_exported(VirtualMemory);
    /// A descriptor of something else is not imported.
    a_foreign_descriptor_is_an_invalid_value(VirtualMemory);
    /// A backing imported with more bytes than it has is refused, there or when it is mapped.
    a_wrong_size_is_noticed(VirtualMemory, Transfer) = |on| sharing::wrong_size(on, WAY, &WRONG_SIZE);
}

const WAY: Sharing = Sharing::FileDescriptor;
/// A driver that gives no reason is taken to be short of memory.
const WRONG_SIZE: [ErrorKind; 2] = [ErrorKind::InvalidValue, ErrorKind::OutOfMemory];

fn import(on: &Subject, descriptor: &impl AsFd) -> Result<Backing> {
    Backing::import(on.device.clone(), descriptor.as_fd(), on.chunk()?)
}

fn the_descriptor_stays_the_callers(on: &Subject) -> Verdict {
    let backing = on.shared_backing(WAY)?;
    let descriptor = backing.export()?;
    for _ in 0..3 {
        import(on, &descriptor)?.close()?;
    }
    Ok(())
}

fn private_backing_is_not_exported(on: &Subject) -> Verdict {
    let backing = on.chunk_backing()?;
    let kinds = [ErrorKind::InvalidValue, ErrorKind::Unsupported];
    refuse(backing.export(), &kinds, "the export of a private backing").map(drop)
}

fn a_foreign_descriptor_is_an_invalid_value(on: &Subject) -> Verdict {
    let backing = on.shared_backing(WAY)?;
    let null = File::open("/dev/null").map_err(|error| Stop::failed(error.to_string()))?;
    refuse(import(on, &null), &[ErrorKind::InvalidValue], "the descriptor of /dev/null")?;
    let (reader, writer) = io::pipe().map_err(|error| Stop::failed(error.to_string()))?;
    refuse(import(on, &reader), &[ErrorKind::InvalidValue], "the descriptor of a pipe")?;
    drop(writer);
    import(on, &backing.export()?)?.close()?;
    Ok(backing.close()?)
}
