//! Failures: their kinds, their remedies, and that they change nothing.

use cachette_hal::{Device, ErrorKind, Ordinal, Recovery};

use crate::rig::prelude::*;

cases! { errors:
    /// Opening a device that the driver does not show fails as no such device.
    an_ordinal_past_the_last_is_no_such_device();
    /// After a wrong ordinal, right ones still open.
    a_wrong_ordinal_leaves_the_backend_usable();
    /// Out of memory carries the remedy an allocator acts on.
    exhaustion_says_to_release_and_retry();
    /// An invalid value carries the remedy that the caller is at fault.
    a_wrong_size_says_to_fix_the_caller();
    /// An error names a call, and its text says what to do.
    they_name_the_call_that_failed();
    /// Many failed allocations leave free memory as it was.
    a_failed_allocation_takes_no_memory();
    /// After calls that failed, unrelated calls on the same device succeed.
    a_failure_does_not_stick(Transfer);
    /// After a map that failed, the reservation and the backing serve as before.
    a_failed_map_leaves_everything_usable(VirtualMemory, Transfer);
}

fn an_ordinal_past_the_last_is_no_such_device(on: &Subject) -> Verdict {
    let count = on.backend.device_count()?;
    for wrong in [count, count + 1, u32::MAX] {
        let opened = on.backend.open(Ordinal(wrong));
        refuse(opened, &[ErrorKind::NoSuchDevice], &format!("ordinal {wrong} of {count}"))?;
    }
    Ok(())
}

fn a_wrong_ordinal_leaves_the_backend_usable(on: &Subject) -> Verdict {
    for _ in 0..8 {
        let opened = on.backend.open(Ordinal(4000));
        refuse(opened, &[ErrorKind::NoSuchDevice], "ordinal 4000")?;
        let right = on.backend.open(on.ordinal)?;
        ensure_eq!(right.info().ordinal, on.ordinal, "the ordinal opened")?;
    }
    Ok(())
}

fn exhaustion_says_to_release_and_retry(on: &Subject) -> Verdict {
    let bytes = on.device.info().total_memory + 64 * MIB;
    let error = refuse(on.memory(bytes), &[ErrorKind::OutOfMemory], "too large a size")?;
    ensure_eq!(error.recovery(), Recovery::ReleaseAndRetry, "the remedy")
}

fn a_wrong_size_says_to_fix_the_caller(on: &Subject) -> Verdict {
    let error = refuse(on.memory(0), &[ErrorKind::InvalidValue], "a size of zero")?;
    ensure_eq!(error.recovery(), Recovery::FixCaller, "the remedy")
}

fn they_name_the_call_that_failed(on: &Subject) -> Verdict {
    let bytes = on.device.info().total_memory + 64 * MIB;
    for result in [on.memory(bytes), on.memory(0)] {
        let kinds = [ErrorKind::OutOfMemory, ErrorKind::InvalidValue];
        let error = refuse(result, &kinds, "a wrong size")?;
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
    }
    Ok(())
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
