//! Bad accesses, made in a child process because they may end it.

use cachette_hal::{Access, Device, DevicePtr, ErrorKind, Result};

use crate::rig::prelude::*;

cases! { faults:
    /// A copy from addresses that were unmapped is reported.
    reading_an_unmapped_address_is_reported(VirtualMemory, Transfer).with_child() = |on| in_child(on, "read_unmapped");
    /// A fill of addresses that were only reserved is reported.
    writing_an_unmapped_address_is_reported(VirtualMemory, Transfer).with_child() = |on| in_child(on, "write_reserved");
    /// A fill that runs over the end of a mapping is reported.
    writing_beyond_a_mapping_is_reported(VirtualMemory, Transfer).with_child() = |on| in_child(on, "write_beyond");
    /// An access to a mapping without rights does not go unnoticed.
    touching_without_a_right_is_reported(VirtualMemory, Transfer).with_child() = |on| in_child(on, "touch_ungranted");
    /// A mapping whose right was taken away cannot be touched in silence.
    touching_after_a_right_was_taken_is_reported(VirtualMemory, Transfer).with_child()
        = |on| in_child(on, "touch_revoked");
    /// A mapping that may only be read cannot be written in silence.
    writing_with_the_right_to_read_is_reported(VirtualMemory, Transfer).with_child()
        = |on| in_child(on, "write_read_only");
}

roles!(read_unmapped, write_reserved, write_beyond, touch_ungranted, touch_revoked, write_read_only);

/// Makes a child fault, and checks that this process continues.
fn in_child(on: &Subject, role: &str) -> Verdict {
    if !on.fixture.contains_faults {
        return Err(Stop::skipped("a fault may do harm outside its process"));
    }
    on.child(role, "", None)?;
    let area = on.filled(64 * KIB, 5)?;
    on.expect_byte(area.span(), 5, "memory of the process that did not fault")
}

/// Fills a range that may not be written, and expects an error.
fn write_badly(on: &Subject, at: DevicePtr, bytes: u64) -> Verdict<String> {
    let (stream, transfer) = (on.stream()?, on.device.transfer()?);
    // SAFETY: 1. the stream lives. 3. Violated on purpose: transfers are documented to report it.
    let queued = unsafe { transfer.fill(at, 1, bytes, stream.get()) };
    reported(queued, || stream.synchronize())
}

/// Expects a failure of the call itself, or a fault from a later one.
fn reported(queued: Result<()>, later: impl FnOnce() -> Result<()>) -> Verdict<String> {
    let error = match queued {
        Err(error) => error,
        Ok(()) => match later() {
            Err(error) if error.kind() == ErrorKind::Fault => error,
            Err(error) => return Err(Stop::failed(format!("reported as something else: {error}"))),
            Ok(()) => return Err(Stop::failed("the bad access passed in silence")),
        },
    };
    match error.kind() {
        ErrorKind::Fault | ErrorKind::InvalidValue => Ok(error.to_string()),
        kind => Err(Stop::failed(format!("reported as {kind:?}"))),
    }
}

fn read_unmapped(on: &Subject, _: &str) -> Verdict<String> {
    let (reservation, backing) = (on.chunk_reservation(1)?, on.chunk_backing()?);
    let (stream, to) = (on.stream()?, on.filled(64 * KIB, 1)?);
    on.map(&reservation, 0, &backing)?.close()?;
    let transfer = on.device.transfer()?;
    // SAFETY: 1. the stream lives. 3. Violated on purpose: transfers are documented to report it.
    let queued = unsafe { transfer.copy(to.ptr(), reservation.start(), 64 * KIB, stream.get()) };
    reported(queued, || stream.synchronize())
}

fn write_reserved(on: &Subject, _: &str) -> Verdict<String> {
    let reservation = on.chunk_reservation(1)?;
    write_badly(on, reservation.start(), 64 * KIB)
}

fn write_beyond(on: &Subject, _: &str) -> Verdict<String> {
    let (reservation, backing) = (on.chunk_reservation(2)?, on.chunk_backing()?);
    let mapping = on.map(&reservation, 0, &backing)?;
    write_badly(on, mapping.ptr(), mapping.bytes() + 64 * KIB)
}

fn touch_ungranted(on: &Subject, _: &str) -> Verdict<String> {
    let (reservation, backing) = (on.chunk_reservation(1)?, on.chunk_backing()?);
    let mapping = reservation.map(0, &backing)?;
    write_badly(on, mapping.ptr(), 64 * KIB)
}

fn touch_revoked(on: &Subject, _: &str) -> Verdict<String> {
    let (reservation, backing) = (on.chunk_reservation(1)?, on.chunk_backing()?);
    let mapping = on.map(&reservation, 0, &backing)?;
    on.put_pattern(mapping.span(), 1)?;
    mapping.set_access(&[Access::None(on.ordinal)])?;
    write_badly(on, mapping.ptr(), 64 * KIB)
}

fn write_read_only(on: &Subject, _: &str) -> Verdict<String> {
    let (reservation, backing) = (on.chunk_reservation(1)?, on.chunk_backing()?);
    let mapping = on.map(&reservation, 0, &backing)?;
    on.put_pattern(mapping.span(), 1)?;
    match mapping.set_access(&[Access::Read(on.ordinal)]) {
        Err(error) if error.kind() == ErrorKind::Unsupported => {
            return Err(Stop::skipped("the driver has no right to read alone"));
        }
        answer => answer?,
    }
    on.expect_pattern(mapping.span(), 1, "what may still be read")?;
    write_badly(on, mapping.ptr(), 64 * KIB)
}
