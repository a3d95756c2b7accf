//! Backings exported as a file descriptor.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;

use cachette_hal::{ErrorKind, Result, Sharing};

use crate::rig::prelude::*;

cases! { descriptors:
    /// What is exported and imported in one process is the same memory.
    an_imported_backing_is_the_same_memory(VirtualMemory, Transfer);
    /// Another process that imports a descriptor reads what the exporter wrote.
    a_child_reads_what_the_parent_wrote(VirtualMemory, Transfer).with_child();
    /// The exporter reads what another process wrote through a descriptor.
    the_parent_reads_what_a_child_wrote(VirtualMemory, Transfer).with_child();
    /// An imported backing stays when the exported one was unmapped and destroyed.
    imported_memory_outlives_the_exporters_handle(VirtualMemory, Transfer);
    /// Importing leaves the descriptor open: it can be imported again.
    the_descriptor_stays_the_callers(VirtualMemory);
    /// A backing that was created private is not exported.
    private_backing_is_not_exported(VirtualMemory);
    /// A descriptor of something else is not imported.
    a_foreign_descriptor_is_an_invalid_value(VirtualMemory);
    /// A backing imported with more bytes than it has is refused, there or when it is mapped.
    a_wrong_size_is_noticed(VirtualMemory, Transfer);
}

roles!(read_descriptor, write_descriptor);

impl Subject {
    /// Returns a backing of one chunk that can be exported.
    fn exportable(&self) -> Verdict<Backing> {
        self.shared_backing(Sharing::FileDescriptor)
    }

    /// Imports a backing of one chunk from a descriptor.
    fn import(&self, descriptor: &impl AsFd) -> Result<Backing> {
        Backing::import(self.device().clone(), descriptor.as_fd(), self.chunk()?)
    }
}

fn an_imported_backing_is_the_same_memory(on: &Subject) -> Verdict {
    let (reservation, backing) = (on.chunk_reservation(2)?, on.exportable()?);
    let exported = on.map(&reservation, 0, &backing)?;
    on.put_pattern(exported.span(), 1)?;
    let again = on.import(&backing.export()?)?;
    let imported = on.map(&reservation, on.chunk()?, &again)?;
    on.expect_pattern(imported.span(), 1, "the imported memory")?;
    on.put_pattern(imported.span(), 2)?;
    on.expect_pattern(exported.span(), 2, "the exported memory")
}

/// Maps the descriptor in this child's standard input, and calls `act` with it.
fn with_descriptor(on: &Subject, act: impl FnOnce(Span<'_>) -> Verdict) -> Verdict<String> {
    let reservation = on.chunk_reservation(1)?;
    let backing = on.import(&io::stdin())?;
    let mapping = on.map(&reservation, 0, &backing)?;
    act(mapping.span())?;
    Ok(String::new())
}

fn read_descriptor(on: &Subject, _: &str) -> Verdict<String> {
    with_descriptor(on, |all| on.expect_pattern(all, 1, "the imported memory"))
}

fn write_descriptor(on: &Subject, _: &str) -> Verdict<String> {
    with_descriptor(on, |all| on.put_pattern(all, 2))
}

fn a_child_reads_what_the_parent_wrote(on: &Subject) -> Verdict {
    let (reservation, backing) = (on.chunk_reservation(1)?, on.exportable()?);
    let mapping = on.map(&reservation, 0, &backing)?;
    on.put_pattern(mapping.span(), 1)?;
    on.child("read_descriptor", "", Some(backing.export()?))?;
    on.expect_pattern(mapping.span(), 1, "the memory after the child")
}

fn the_parent_reads_what_a_child_wrote(on: &Subject) -> Verdict {
    let (reservation, backing) = (on.chunk_reservation(1)?, on.exportable()?);
    let mapping = on.map(&reservation, 0, &backing)?;
    on.put_pattern(mapping.span(), 1)?;
    on.child("write_descriptor", "", Some(backing.export()?))?;
    on.expect_pattern(mapping.span(), 2, "what the child wrote")
}

fn imported_memory_outlives_the_exporters_handle(on: &Subject) -> Verdict {
    let (reservation, backing) = (on.chunk_reservation(2)?, on.exportable()?);
    let exported = on.map(&reservation, 0, &backing)?;
    on.put_pattern(exported.span(), 1)?;
    let again = on.import(&backing.export()?)?;
    exported.close()?;
    backing.close()?;
    let imported = on.map(&reservation, on.chunk()?, &again)?;
    on.expect_pattern(imported.span(), 1, "the imported memory")
}

fn the_descriptor_stays_the_callers(on: &Subject) -> Verdict {
    let backing = on.exportable()?;
    let descriptor = backing.export()?;
    for _ in 0..3 {
        on.import(&descriptor)?.close()?;
    }
    Ok(())
}

fn private_backing_is_not_exported(on: &Subject) -> Verdict {
    let backing = on.chunk_backing()?;
    let kinds = [ErrorKind::InvalidValue, ErrorKind::Unsupported];
    refuse(backing.export(), &kinds, "the export of a private backing").map(drop)
}

fn a_foreign_descriptor_is_an_invalid_value(on: &Subject) -> Verdict {
    let backing = on.exportable()?;
    let null = File::open("/dev/null").map_err(|error| Stop::failed(error.to_string()))?;
    refuse(on.import(&null), &[ErrorKind::InvalidValue], "the descriptor of /dev/null")?;
    let (reader, writer) = io::pipe().map_err(|error| Stop::failed(error.to_string()))?;
    refuse(on.import(&reader), &[ErrorKind::InvalidValue], "the descriptor of a pipe")?;
    drop(writer);
    on.import(&backing.export()?)?.close()?;
    Ok(backing.close()?)
}

fn a_wrong_size_is_noticed(on: &Subject) -> Verdict {
    let (reservation, fresh, backing) = (on.chunk_reservation(4)?, on.chunk_reservation(1)?, on.exportable()?);
    let descriptor = backing.export()?;
    let double = 2 * on.chunk()?;
    let imported = Backing::import(on.device().clone(), descriptor.as_fd(), double);
    let mapped = imported.and_then(|double| on.map(&reservation, 0, &double).map(drop));
    // A driver that gives no reason is taken to be short of memory.
    let kinds = [ErrorKind::InvalidValue, ErrorKind::OutOfMemory];
    let error = refuse(mapped, &kinds, "twice the size")?;
    ensure!(!error.call().is_empty(), "the error names no call")?;
    let is_spoiled = on.device().virtual_memory()?.mixes_sizes().is_err();
    let mapping = on.map(if is_spoiled { &fresh } else { &reservation }, 0, &backing)?;
    on.round_trip(mapping.span().part(0, 64 * KIB), 1, "the exported memory")
}
