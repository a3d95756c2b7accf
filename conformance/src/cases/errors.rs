//! Failures: their kinds, their remedies, and that they change nothing.

use cachette_hal::{Device, ErrorKind, Ordinal, Recovery};

use crate::rig::prelude::*;

cases! { errors:
    /// Opening a device that the driver does not show fails as no such device, and right ordinals still open.
    an_ordinal_past_the_last_is_no_such_device();
    /// Out of memory carries the remedy an allocator acts on, an invalid value that the caller is at fault. The text of
    /// each names the call and the remedy.
    they_name_the_call_and_the_remedy();
    /// Many failed allocations leave free memory as it was.
    a_failed_allocation_takes_no_memory();
    /// After calls that failed, unrelated calls on the same device succeed, and old content is kept.
    a_failure_does_not_stick(Transfer);
    /// Mapping where something is mapped fails and leaves what is there; the reservation and the backing serve as before.
    a_failed_map_leaves_everything_usable(VirtualMemory, Transfer);
}

fn an_ordinal_past_the_last_is_no_such_device(on: &Subject) -> Verdict {
    let count = on.backend.device_count()?;
    for wrong in [count, count + 1, u32::MAX] {
        let opened = on.backend.open(Ordinal(wrong));
        refuse(opened, &[ErrorKind::NoSuchDevice], &format!("ordinal {wrong} of {count}"))?;
        let right = on.backend.open(on.ordinal)?;
        ensure_eq!(right.info().ordinal, on.ordinal, "the ordinal opened")?;
    }
    Ok(())
}

fn they_name_the_call_and_the_remedy(on: &Subject) -> Verdict {
    let exhausting = on.device.info().total_memory + 64 * MIB;
    for (bytes, kind, remedy) in [
        (exhausting, ErrorKind::OutOfMemory, Recovery::ReleaseAndRetry),
        (0, ErrorKind::InvalidValue, Recovery::FixCaller),
    ] {
        let error = refuse(on.memory(bytes), &[kind], "a wrong size")?;
        ensure_eq!(error.recovery(), remedy, "the remedy")?;
        ensure!(!error.call().is_empty(), "{error:?} names no call")?;
        let text = error.to_string();
        ensure!(text.contains(error.call()), "{text} does not name {}", error.call())?;
        ensure!(text.contains(error.recovery().advice()), "{text} gives no advice")?;
    }
    Ok(())
}

fn a_failed_allocation_takes_no_memory(on: &Subject) -> Verdict {
    let bytes = on.device.info().total_memory + 64 * MIB;
    eventually("free memory fell", || {
        let before = on.free_memory()?;
        for _ in 0..32 {
            refuse(on.memory(bytes), &[ErrorKind::OutOfMemory], "too large a size")?;
        }
        let fall = before.saturating_sub(on.free_memory()?);
        Ok((fall < 32 * MIB, fall))
    })
}

fn a_failure_does_not_stick(on: &Subject) -> Verdict {
    let (area, stream, event) = (on.filled(64 * KIB, 1)?, on.stream()?, on.event()?);
    let bytes = on.device.info().total_memory + 64 * MIB;
    let old = on.filled(MIB, 9)?;
    for byte in 2..6 {
        refuse(on.memory(bytes), &[ErrorKind::OutOfMemory], "too large a size")?;
        refuse(on.memory(0), &[ErrorKind::InvalidValue], "a size of zero")?;
        on.fill(area.span(), byte, &stream)?;
        event.record(&stream)?;
        event.wait()?;
        ensure!(event.poll()?.is_done(), "the event is pending")?;
        on.device.synchronize_device()?;
        on.device.memory_info()?;
        on.expect_byte(area.span(), byte, "what was written after a failure")?;
        on.round_trip(on.memory(MIB)?.span(), byte.into(), "memory from after a failure")?;
    }
    on.expect_byte(old.span(), 9, "memory from before the failures")
}

fn a_failed_map_leaves_everything_usable(on: &Subject) -> Verdict {
    let (chunk, reservation) = (on.chunk()?, on.chunk_reservation(3)?);
    let (first, second) = (on.chunk_backing()?, on.chunk_backing()?);
    let middle = on.map(&reservation, chunk, &first)?;
    on.put_pattern(middle.span(), 1)?;
    for _ in 0..4 {
        let over = on.map(&reservation, chunk, &second).map(drop);
        refuse(over, &[ErrorKind::InvalidValue], "a map over a mapping")?;
    }
    let left = on.map(&reservation, 0, &second)?;
    let right = on.map(&reservation, 2 * chunk, &second)?;
    on.put_pattern(left.span(), 2)?;
    on.expect_pattern(right.span(), 2, "the alias of the refused backing")?;
    on.expect_pattern(middle.span(), 1, "what was mapped before")?;
    for mapping in [left, middle, right] {
        mapping.close()?;
    }
    Ok(reservation.close()?)
}
