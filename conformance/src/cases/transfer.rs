//! Fills and copies: exact ranges, exact content, in stream order.

use cachette_hal::{Device, ErrorKind};

use crate::rig::prelude::*;

cases! { transfer:
    /// A fill sets every byte of its range, the first and the last among them.
    fill_sets_every_byte(Transfer);
    /// A fill leaves the bytes before and behind its range, at any offset and size.
    fill_touches_nothing_else(Transfer);
    /// A copy brings every byte to its place, at any offset and size. It leaves its source, and the bytes around its target.
    copy_is_exact(Transfer);
    /// A copy between two ranges of one allocation is as good as any.
    copy_works_within_one_allocation(Transfer);
    /// Bytes that went to the device and back are the same, from one byte to eight mebibytes.
    uploads_and_downloads_make_a_round_trip(Transfer);
    /// An upload leaves the bytes around its range.
    upload_touches_nothing_else(Transfer);
    /// A download leaves host memory around its range.
    download_touches_nothing_else(Transfer, HostMemory);
    /// A download brings what earlier work of its stream wrote, not what was there when it was queued.
    download_happens_in_stream_order(Transfer, HostMemory, HostCalls);
    /// An upload comes after earlier work of its stream and before later work.
    upload_happens_in_stream_order(Transfer, HostMemory, HostCalls);
    /// Fills and copies return while their stream is held.
    fills_and_copies_do_not_block_the_host(Transfer, HostCalls);
    /// Nothing queued behind a held point of a stream, or behind a host function that runs, has happened.
    held_work_has_not_happened(Transfer, HostCalls);
    /// A fill, copy, upload or download of no bytes is an invalid value.
    zero_bytes_is_an_invalid_value(Transfer);
}

/// Offsets and sizes around word, page and line boundaries.
const ODD: [(u64, u64); 8] = [(0, 1), (1, 1), (3, 5), (7, 64), (15, 4097), (512, 511), (4095, 4098), (1, 65_533)];
const AREA: u64 = 72 * KIB;

fn fill_sets_every_byte(on: &Subject) -> Verdict {
    let stream = on.stream()?;
    for bytes in [1, 2, 15, 4096, 65_537, 3 * MIB + 1] {
        let area = on.memory(bytes)?;
        on.put_pattern(area.span(), bytes)?;
        on.fill(area.span(), 0x5a, &stream)?;
        stream.synchronize()?;
        on.expect_byte(area.span(), 0x5a, "the filled range")?;
    }
    Ok(())
}

/// Checks bytes that were `pattern(seed)` and in which one range was replaced.
fn expect_replaced(found: &[u8], seed: u64, at: u64, new: &[u8]) -> Verdict {
    let mut promised = pattern(seed, found.len() as u64);
    let start = usize::try_from(at).map_err(|_| Stop::failed("the offset fits"))?;
    promised[start..start + new.len()].copy_from_slice(new);
    let what = format!("an area with {} bytes replaced at {at}", new.len());
    same(found, &promised, &what).map_err(Stop::failed)
}

fn fill_touches_nothing_else(on: &Subject) -> Verdict {
    let (area, stream) = (on.memory(AREA)?, on.stream()?);
    for (at, bytes) in ODD {
        on.put_pattern(area.span(), at)?;
        on.fill(area.span().part(at, bytes), 0xc3, &stream)?;
        stream.synchronize()?;
        let new: Vec<u8> = (0..bytes).map(|_| 0xc3).collect();
        expect_replaced(&on.get(area.span())?, at, at, &new)?;
    }
    Ok(())
}

fn copy_is_exact(on: &Subject) -> Verdict {
    let (from, to, stream) = (on.memory(AREA)?, on.memory(AREA)?, on.stream()?);
    on.put_pattern(from.span(), 1)?;
    for (at, bytes) in ODD {
        for (source, target) in [(at, 3), (0, at)] {
            let part = from.span().part(source, bytes);
            on.put_pattern(to.span(), 2)?;
            on.copy(to.span().part(target, bytes), part, &stream)?;
            stream.synchronize()?;
            expect_replaced(&on.get(to.span())?, 2, target, &on.get(part)?)?;
        }
    }
    on.expect_pattern(from.span(), 1, "the source")
}

fn copy_works_within_one_allocation(on: &Subject) -> Verdict {
    let (area, stream) = (on.memory(2 * MIB)?, on.stream()?);
    on.put_pattern(area.span().part(0, MIB), 1)?;
    on.put_pattern(area.span().part(MIB, MIB), 2)?;
    on.copy(area.span().part(MIB, MIB), area.span().part(0, MIB), &stream)?;
    stream.synchronize()?;
    on.expect_pattern(area.span().part(0, MIB), 1, "the source half")?;
    on.expect_pattern(area.span().part(MIB, MIB), 1, "the target half")
}

fn uploads_and_downloads_make_a_round_trip(on: &Subject) -> Verdict {
    for bytes in [1, 2, 3, 127, 4 * KIB, 64 * KIB + 1, MIB - 1, 8 * MIB] {
        let area = on.memory(bytes)?;
        on.round_trip(area.span(), bytes, "the round trip")?;
    }
    Ok(())
}

fn upload_touches_nothing_else(on: &Subject) -> Verdict {
    let area = on.memory(AREA)?;
    for (at, bytes) in ODD {
        on.put_pattern(area.span(), 1)?;
        on.put_pattern(area.span().part(at, bytes), 2)?;
        expect_replaced(&on.get(area.span())?, 1, at, &pattern(2, bytes))?;
    }
    Ok(())
}

fn download_touches_nothing_else(on: &Subject) -> Verdict {
    let (area, stream, host) = (on.memory(AREA)?, on.stream()?, on.pinned(72 << 10)?);
    on.put_pattern(area.span(), 2)?;
    for (at, bytes) in ODD {
        write_pinned(&host, &pattern(1, AREA));
        on.download_into(&host, at, area.span().part(0, bytes), &stream)?;
        stream.synchronize()?;
        expect_replaced(&read_pinned(&host), 1, at, &pattern(2, bytes))?;
    }
    Ok(())
}

fn download_happens_in_stream_order(on: &Subject) -> Verdict {
    let (area, host) = (on.filled(64 * KIB, 1)?, on.pinned(64 << 10)?);
    write_pinned(&host, &vec![0; 64 << 10]);
    let stream = on.stream()?;
    let gate = on.hold_warm(&stream)?;
    on.fill(area.span(), 7, &stream)?;
    on.download_into(&host, 0, area.span(), &stream)?;
    on.fill(area.span(), 8, &stream)?;
    settle();
    gate.release_and_wait(&stream)?;
    ensure_eq!(read_pinned(&host), vec![7; 64 << 10], "what was downloaded")
}

fn upload_happens_in_stream_order(on: &Subject) -> Verdict {
    let (area, copy, host) = (on.filled(64 * KIB, 1)?, on.filled(64 * KIB, 2)?, on.pinned(64 << 10)?);
    write_pinned(&host, &pattern(3, 64 * KIB));
    let stream = on.stream()?;
    let gate = on.hold_warm(&stream)?;
    on.fill(area.span(), 7, &stream)?;
    on.upload_pinned(area.span(), &host, &stream)?;
    on.copy(copy.span(), area.span(), &stream)?;
    on.fill(area.span(), 9, &stream)?;
    settle();
    gate.release_and_wait(&stream)?;
    on.expect_pattern(copy.span(), 3, "what was uploaded between two fills")?;
    on.expect_byte(area.span(), 9, "the last fill")
}

fn fills_and_copies_do_not_block_the_host(on: &Subject) -> Verdict {
    let (x, y) = (on.filled(MIB, 1)?, on.filled(MIB, 2)?);
    let (stream, event) = (on.stream()?, on.event()?);
    let _gate = on.hold_warm(&stream)?;
    for byte in 0..16 {
        on.fill(x.span(), byte, &stream)?;
        on.copy(y.span(), x.span(), &stream)?;
    }
    event.record(&stream)?;
    ensure!(!event.poll()?.is_done(), "the stream was not held any more")
}

fn held_work_has_not_happened(on: &Subject) -> Verdict {
    let (x, y, stream) = (on.filled(64 * KIB, 1)?, on.filled(64 * KIB, 2)?, on.stream()?);
    let gate = on.hold_warm(&stream)?;
    on.fill(x.span(), 7, &stream)?;
    on.copy(y.span(), x.span(), &stream)?;
    settle();
    on.expect_byte(x.span(), 1, "the target of a held fill")?;
    on.expect_byte(y.span(), 2, "the target of a held copy")?;
    gate.release_and_wait(&stream)?;
    on.expect_byte(y.span(), 7, "the target of the copy afterwards")
}

fn zero_bytes_is_an_invalid_value(on: &Subject) -> Verdict {
    let (x, y, stream) = (on.filled(KIB, 1)?, on.filled(KIB, 2)?, on.stream()?);
    let invalid = [ErrorKind::InvalidValue];
    let (nothing_x, nothing_y) = (x.span().part(0, 0), y.span().part(0, 0));
    refuse(on.fill(nothing_x, 9, &stream), &invalid, "a fill of no bytes")?;
    refuse(on.copy(nothing_y, nothing_x, &stream), &invalid, "a copy of no bytes")?;
    let transfer = on.device.transfer()?;
    let mut byte = 0_u8;
    // SAFETY: 1. the stream lives. 3 and 4. The range is empty, and nothing is read.
    let up = unsafe { transfer.upload(x.ptr(), &raw const byte, 0, stream.get()) };
    refuse(up, &invalid, "an upload of no bytes")?;
    // SAFETY: 1. the stream lives. 3 and 4. The range is empty, and nothing is written.
    let down = unsafe { transfer.download(&raw mut byte, x.ptr(), 0, stream.get()) };
    refuse(down, &invalid, "a download of no bytes")?;
    stream.synchronize()?;
    on.expect_byte(x.span(), 1, "memory named by empty ranges")
}
