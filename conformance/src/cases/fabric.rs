//! Backings exported through the fabric.

use cachette_hal::{Device, ErrorKind, FabricHandle, Recovery, Sharing};

use super::sharing::{self, Name};
use crate::rig::prelude::*;

cases! { fabric:
    /// A kind of sharing that the device lacks is refused, and a fabric by naming what else there is.
    a_kind_of_sharing_is_there_or_refused_with_a_remedy(VirtualMemory);
    /// What is named and imported in one process is the same memory.
    an_imported_backing_is_the_same_memory(VirtualMemory, Transfer) = |on| sharing::same_memory(on, WAY);
    /// Another process that imports a name reads what the exporter wrote.
    a_child_reads_what_the_parent_wrote(VirtualMemory, Transfer).with_child() = |on| sharing::child_reads(on, WAY);
    /// The exporter reads what another process wrote through a name.
    the_parent_reads_what_a_child_wrote(VirtualMemory, Transfer).with_child() = |on| sharing::child_writes(on, WAY);
    /// An imported backing stays when the exported one was unmapped and destroyed.
    imported_memory_outlives_the_exporters_handle(VirtualMemory, Transfer) = |on| sharing::outlives_handle(on, WAY);
    /// A backing that was made private, or for descriptors, is not named; nor the other way round.
    only_what_was_made_for_it_is_named(VirtualMemory);
    /// Random bytes, and a name with a byte changed, are not imported, and the device goes on.
    a_forged_handle_is_refused(VirtualMemory);
    /// A backing imported with more bytes than it has is refused, there or when it is mapped.
    a_wrong_size_is_noticed(VirtualMemory, Transfer) = |on| sharing::wrong_size(on, WAY, &[ErrorKind::InvalidValue]);
}

const WAY: Sharing = Sharing::Fabric;

fn a_kind_of_sharing_is_there_or_refused_with_a_remedy(on: &Subject) -> Verdict {
    let memory = on.device.virtual_memory()?;
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

fn only_what_was_made_for_it_is_named(on: &Subject) -> Verdict {
    let named = on.shared_backing(WAY)?;
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
    let backing = on.shared_backing(WAY)?;
    let mut random = [0; 64];
    random.copy_from_slice(&pattern(5, 64));
    let mut changed = backing.export_fabric()?;
    changed.0[0] ^= 0x55;
    let forged = [FabricHandle(random), FabricHandle([0; 64]), FabricHandle([0xff; 64]), changed];
    for name in forged {
        refuse(Name::Fabric(name).import(on, 1), &[ErrorKind::InvalidValue, ErrorKind::NoFabric], "a forged name")?;
    }
    Name::Fabric(backing.export_fabric()?).import(on, 1)?.close()?;
    Ok(())
}
