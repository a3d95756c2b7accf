//! Backings exported through the fabric.

use cachette_hal::{Device, ErrorKind, FabricHandle, Recovery, Result, Sharing};

use crate::rig::prelude::*;

cases! { fabric:
    /// A kind of sharing that the device lacks is refused, and a fabric by naming what else there is.
    a_kind_of_sharing_is_there_or_refused_with_a_remedy(VirtualMemory);
    /// What is named and imported in one process is the same memory.
    an_imported_backing_is_the_same_memory(VirtualMemory, Transfer);
    /// Another process that imports a name reads what the exporter wrote.
    a_child_reads_what_the_parent_wrote(VirtualMemory, Transfer).with_child();
    /// The exporter reads what another process wrote through a name.
    the_parent_reads_what_a_child_wrote(VirtualMemory, Transfer).with_child();
    /// An imported backing stays when the exported one was unmapped and destroyed.
    imported_memory_outlives_the_exporters_handle(VirtualMemory, Transfer);
    /// A backing that was made private, or for descriptors, is not named; nor the other way round.
    only_what_was_made_for_it_is_named(VirtualMemory);
    /// Random bytes, and a name with a byte changed, are not imported, and the device goes on.
    a_forged_handle_is_refused(VirtualMemory);
    /// A backing imported with more bytes than it has is refused, there or when it is mapped.
    a_wrong_size_is_noticed(VirtualMemory, Transfer);
}

roles!(read_fabric, write_fabric);

impl Subject {
    /// Returns a backing of one chunk that can have a fabric handle.
    fn nameable(&self) -> Verdict<Backing> {
        self.shared_backing(Sharing::Fabric)
    }

    /// Imports a backing of one chunk by its fabric handle.
    fn import_named(&self, name: &FabricHandle) -> Result<Backing> {
        Backing::import_fabric(self.device().clone(), name, self.chunk()?)
    }
}

fn a_kind_of_sharing_is_there_or_refused_with_a_remedy(on: &Subject) -> Verdict {
    let memory = on.device().virtual_memory()?;
    ensure_eq!(memory.shares(Sharing::Private), Ok(()), "private backing")?;
    for sharing in Sharing::ALL {
        let made = on.backing(on.chunk()?, sharing);
        match (sharing, memory.shares(sharing)) {
            (Sharing::Fabric, Ok(())) if made.is_ok() => {}
            (Sharing::Fabric, _) => {
                let error = refuse(made, &[ErrorKind::NoFabric], "backing for a fabric")?;
                ensure_eq!(error.recovery(), Recovery::UseDescriptor, "the remedy")?;
            }
            (_, Ok(())) => made?.close()?,
            (_, Err(_)) => {
                refuse(made, &[ErrorKind::Unsupported], sharing.name())?;
            }
        }
    }
    Ok(())
}

fn an_imported_backing_is_the_same_memory(on: &Subject) -> Verdict {
    let (reservation, backing) = (on.chunk_reservation(2)?, on.nameable()?);
    let exported = on.map(&reservation, 0, &backing)?;
    on.put_pattern(exported.span(), 1)?;
    let again = on.import_named(&backing.export_fabric()?)?;
    let imported = on.map(&reservation, on.chunk()?, &again)?;
    on.expect_pattern(imported.span(), 1, "the imported memory")?;
    on.put_pattern(imported.span(), 2)?;
    on.expect_pattern(exported.span(), 2, "the exported memory")
}

/// Maps the memory of the handle that this child received, and calls `act` with it.
fn with_name(on: &Subject, name: &str, act: impl FnOnce(Span<'_>) -> Verdict) -> Verdict<String> {
    let reservation = on.chunk_reservation(1)?;
    let backing = on.import_named(&FabricHandle(from_hex(name)?))?;
    let mapping = on.map(&reservation, 0, &backing)?;
    act(mapping.span())?;
    Ok(String::new())
}

fn read_fabric(on: &Subject, name: &str) -> Verdict<String> {
    with_name(on, name, |all| on.expect_pattern(all, 1, "the imported memory"))
}

fn write_fabric(on: &Subject, name: &str) -> Verdict<String> {
    with_name(on, name, |all| on.put_pattern(all, 2))
}

fn a_child_reads_what_the_parent_wrote(on: &Subject) -> Verdict {
    let (reservation, backing) = (on.chunk_reservation(1)?, on.nameable()?);
    let mapping = on.map(&reservation, 0, &backing)?;
    on.put_pattern(mapping.span(), 1)?;
    on.child("read_fabric", &to_hex(&backing.export_fabric()?.0), None)?;
    on.expect_pattern(mapping.span(), 1, "the memory after the child")
}

fn the_parent_reads_what_a_child_wrote(on: &Subject) -> Verdict {
    let (reservation, backing) = (on.chunk_reservation(1)?, on.nameable()?);
    let mapping = on.map(&reservation, 0, &backing)?;
    on.put_pattern(mapping.span(), 1)?;
    on.child("write_fabric", &to_hex(&backing.export_fabric()?.0), None)?;
    on.expect_pattern(mapping.span(), 2, "what the child wrote")
}

fn imported_memory_outlives_the_exporters_handle(on: &Subject) -> Verdict {
    let (reservation, backing) = (on.chunk_reservation(2)?, on.nameable()?);
    let exported = on.map(&reservation, 0, &backing)?;
    on.put_pattern(exported.span(), 1)?;
    let again = on.import_named(&backing.export_fabric()?)?;
    exported.close()?;
    backing.close()?;
    let imported = on.map(&reservation, on.chunk()?, &again)?;
    on.expect_pattern(imported.span(), 1, "the imported memory")
}

fn only_what_was_made_for_it_is_named(on: &Subject) -> Verdict {
    let named = on.nameable()?;
    let kinds = [ErrorKind::InvalidValue, ErrorKind::Unsupported];
    refuse(on.chunk_backing()?.export_fabric(), &kinds, "the name of a private backing")?;
    refuse(
        on.shared_backing(Sharing::FileDescriptor)?.export_fabric(),
        &kinds,
        "the name of a backing made for descriptors",
    )?;
    refuse(named.export(), &kinds, "the descriptor of a backing made for the fabric")?;
    named.export_fabric()?;
    Ok(())
}

fn a_forged_handle_is_refused(on: &Subject) -> Verdict {
    let backing = on.nameable()?;
    let mut random = [0; 64];
    random.copy_from_slice(&pattern(5, 64));
    let mut changed = backing.export_fabric()?;
    changed.0[0] ^= 0x55;
    let forged = [FabricHandle(random), FabricHandle([0; 64]), FabricHandle([0xff; 64]), changed];
    for name in forged {
        refuse(on.import_named(&name), &[ErrorKind::InvalidValue, ErrorKind::NoFabric], "a forged name")?;
    }
    on.import_named(&backing.export_fabric()?)?.close()?;
    Ok(())
}

fn a_wrong_size_is_noticed(on: &Subject) -> Verdict {
    let (reservation, backing) = (on.chunk_reservation(4)?, on.nameable()?);
    let name = backing.export_fabric()?;
    let double = Backing::import_fabric(on.device().clone(), &name, 2 * on.chunk()?);
    let mapped = double.and_then(|double| on.map(&reservation, 0, &double).map(drop));
    let error = refuse(mapped, &[ErrorKind::InvalidValue], "twice the size")?;
    ensure!(!error.call().is_empty(), "the error names no call")?;
    let mapping = on.map(&reservation, 0, &backing)?;
    on.round_trip(mapping.span().part(0, 64 * KIB), 1, "the exported memory")
}
