//! Backings of one process in another, by a descriptor or by a fabric handle.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use cachette_hal::{Device, ErrorKind, FabricHandle, Result, Sharing};

use crate::rig::prelude::*;

roles!(read_backing, write_backing);

/// What another process imports a backing by.
pub(super) enum Name {
    Descriptor(OwnedFd),
    Fabric(FabricHandle),
}

impl Name {
    /// The name of a backing that was created for this kind of sharing.
    pub(super) fn of(backing: &Backing, sharing: Sharing) -> Result<Self> {
        match sharing {
            Sharing::Fabric => backing.export_fabric().map(Self::Fabric),
            _ => backing.export().map(Self::Descriptor),
        }
    }

    pub(super) fn import(&self, on: &Subject, chunks: u64) -> Result<Backing> {
        let (device, bytes) = (on.device.clone(), chunks * on.chunk()?);
        match self {
            Self::Descriptor(descriptor) => Backing::import(device, descriptor.as_fd(), bytes),
            Self::Fabric(name) => Backing::import_fabric(device, name, bytes),
        }
    }

    fn child(self, on: &Subject, role: &str) -> Verdict {
        let (text, stdin) = match self {
            Self::Descriptor(descriptor) => (String::new(), Some(descriptor)),
            Self::Fabric(name) => (to_hex(&name.0), None),
        };
        on.child(role, &text, stdin).map(drop)
    }
}

/// Maps the memory that this child received by its standard input or by a fabric handle, and calls `act` with it.
fn with_backing(on: &Subject, name: &str, act: impl FnOnce(Span<'_>) -> Verdict) -> Verdict<String> {
    let reservation = on.chunk_reservation(1)?;
    let backing = if name.is_empty() {
        Backing::import(on.device.clone(), io::stdin().as_fd(), on.chunk()?)?
    } else {
        Name::Fabric(FabricHandle(from_hex(name)?)).import(on, 1)?
    };
    let mapping = on.map(&reservation, 0, &backing)?;
    act(mapping.span())?;
    Ok(String::new())
}

fn read_backing(on: &Subject, name: &str) -> Verdict<String> {
    with_backing(on, name, |all| on.expect_pattern(all, 1, "the imported memory"))
}

fn write_backing(on: &Subject, name: &str) -> Verdict<String> {
    with_backing(on, name, |all| on.put_pattern(all, 2))
}

pub(super) fn same_memory(on: &Subject, sharing: Sharing) -> Verdict {
    let (reservation, backing) = (on.chunk_reservation(2)?, on.shared_backing(sharing)?);
    let exported = on.map(&reservation, 0, &backing)?;
    on.put_pattern(exported.span(), 1)?;
    let again = Name::of(&backing, sharing)?.import(on, 1)?;
    let imported = on.map(&reservation, on.chunk()?, &again)?;
    on.expect_pattern(imported.span(), 1, "the imported memory")?;
    on.put_pattern(imported.span(), 2)?;
    on.expect_pattern(exported.span(), 2, "the exported memory")
}

pub(super) fn child_reads(on: &Subject, sharing: Sharing) -> Verdict {
    let (reservation, backing) = (on.chunk_reservation(1)?, on.shared_backing(sharing)?);
    let mapping = on.map(&reservation, 0, &backing)?;
    on.put_pattern(mapping.span(), 1)?;
    Name::of(&backing, sharing)?.child(on, "read_backing")?;
    on.expect_pattern(mapping.span(), 1, "the memory after the child")
}

pub(super) fn child_writes(on: &Subject, sharing: Sharing) -> Verdict {
    let (reservation, backing) = (on.chunk_reservation(1)?, on.shared_backing(sharing)?);
    let mapping = on.map(&reservation, 0, &backing)?;
    on.put_pattern(mapping.span(), 1)?;
    Name::of(&backing, sharing)?.child(on, "write_backing")?;
    on.expect_pattern(mapping.span(), 2, "what the child wrote")
}

pub(super) fn outlives_handle(on: &Subject, sharing: Sharing) -> Verdict {
    let (reservation, backing) = (on.chunk_reservation(2)?, on.shared_backing(sharing)?);
    let exported = on.map(&reservation, 0, &backing)?;
    on.put_pattern(exported.span(), 1)?;
    let again = Name::of(&backing, sharing)?.import(on, 1)?;
    exported.close()?;
    backing.close()?;
    let imported = on.map(&reservation, on.chunk()?, &again)?;
    on.expect_pattern(imported.span(), 1, "the imported memory")
}

/// `kinds` are the errors of a size that is wrong.
pub(super) fn wrong_size(on: &Subject, sharing: Sharing, kinds: &[ErrorKind]) -> Verdict {
    let (reservation, fresh) = (on.chunk_reservation(4)?, on.chunk_reservation(1)?);
    let backing = on.shared_backing(sharing)?;
    let imported = Name::of(&backing, sharing)?.import(on, 2);
    let mapped = imported.and_then(|double| on.map(&reservation, 0, &double).map(drop));
    let error = refuse(mapped, kinds, "twice the size")?;
    ensure!(!error.call().is_empty(), "the error names no call")?;
    let is_spoiled = on.device.virtual_memory()?.mixes_sizes().is_err();
    let mapping = on.map(if is_spoiled { &fresh } else { &reservation }, 0, &backing)?;
    on.round_trip(mapping.span().part(0, 64 * KIB), 1, "the exported memory")
}
