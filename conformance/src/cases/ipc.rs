//! Memory shared with another process by a token.

use cachette_hal::owned::OpenedToken;
use cachette_hal::{AnyDevice, Device, DevicePtr, ErrorKind, IpcToken, Result};

use crate::rig::prelude::*;

cases! { ipc:
    /// The exporter reads what another process wrote through a token.
    the_parent_reads_what_a_child_wrote(Ipc, Transfer).with_child();
    /// Tokens of two allocations open together, each to its own content.
    two_tokens_open_side_by_side(Ipc, Transfer).with_child();
    /// Another process that opens a token reads what the exporter wrote. What it has closed can be opened again, and the
    /// exporter's memory is as before.
    a_token_opens_again_after_it_was_closed(Ipc, Transfer).with_child();
    /// A token whose allocation was freed is an invalid value.
    a_token_of_freed_memory_is_refused(Ipc, Transfer).with_child();
    /// A token whose process has ended is an invalid value.
    a_token_of_a_dead_process_is_refused(Ipc).with_child();
    /// Random bytes, and none at all, are an invalid value, and the device goes on.
    a_token_no_driver_made_is_refused(Ipc);
    /// An address inside an allocation is an invalid value.
    an_interior_address_has_no_token(Ipc);
    /// Mapped backing is an invalid value.
    mapped_backing_has_no_token(Ipc, VirtualMemory);
    /// Two live allocations have different tokens.
    tokens_of_different_allocations_differ(Ipc);
}

roles!(write_token, read_two_tokens, reopen_token, be_refused_token, export_token);

/// Drivers may place several small allocations in one page; these have separate pages.
const BYTES: u64 = 4 * MIB;

fn export(on: &Subject, base: DevicePtr) -> Result<IpcToken> {
    let ipc = on.device.ipc()?;
    // SAFETY: 1. callers pass an address of an owner that lives.
    unsafe { ipc.export_token(base) }
}

fn open(on: &Subject, text: &str) -> Verdict<OpenedToken<AnyDevice>> {
    Ok(OpenedToken::open(on.device.clone(), &IpcToken(from_hex(text)?))?)
}

/// Memory with the pattern of `seed`, and its token as text.
fn exported(on: &Subject, seed: u64) -> Verdict<(Memory, String)> {
    let memory = on.memory(BYTES)?;
    on.put_pattern(memory.span(), seed)?;
    let token = export(on, memory.ptr())?;
    Ok((memory, to_hex(&token.0)))
}

fn write_token(on: &Subject, token: &str) -> Verdict<String> {
    let opened = open(on, token)?;
    on.put_pattern(Span::opened(&opened, BYTES), 2)?;
    opened.close()?;
    Ok(String::new())
}

fn read_two_tokens(on: &Subject, tokens: &str) -> Verdict<String> {
    let (one, two) = tokens.split_once(' ').unwrap_or((tokens, ""));
    let (one, two) = (open(on, one)?, open(on, two)?);
    on.expect_pattern(Span::opened(&one, BYTES), 1, "the first")?;
    on.expect_pattern(Span::opened(&two, BYTES), 2, "the second")?;
    one.close()?;
    on.expect_pattern(Span::opened(&two, BYTES), 2, "the second alone")?;
    Ok(String::new())
}

fn reopen_token(on: &Subject, token: &str) -> Verdict<String> {
    for _ in 0..3 {
        let opened = open(on, token)?;
        on.expect_pattern(Span::opened(&opened, BYTES), 1, "the opened memory")?;
        opened.close()?;
    }
    Ok(String::new())
}

fn be_refused_token(on: &Subject, token: &str) -> Verdict<String> {
    refuse_token(on, &IpcToken(from_hex(token)?))?;
    Ok(String::new())
}

fn export_token(on: &Subject, _: &str) -> Verdict<String> {
    let memory = on.memory(BYTES)?;
    Ok(to_hex(&export(on, memory.ptr())?.0))
}

/// Checks that a token does not open, that the error blames the caller, and that the device stays usable.
fn refuse_token(on: &Subject, token: &IpcToken) -> Verdict {
    let opened = OpenedToken::open(on.device.clone(), token);
    refuse(opened, &[ErrorKind::InvalidValue], "the token")?;
    on.memory(MIB)?.close()?;
    Ok(())
}

fn the_parent_reads_what_a_child_wrote(on: &Subject) -> Verdict {
    let (memory, token) = exported(on, 1)?;
    on.child("write_token", &token, None)?;
    on.expect_pattern(memory.span(), 2, "what the child wrote")
}

fn two_tokens_open_side_by_side(on: &Subject) -> Verdict {
    let (_one, first) = exported(on, 1)?;
    let (_two, second) = exported(on, 2)?;
    on.child("read_two_tokens", &format!("{first} {second}"), None).map(drop)
}

fn a_token_opens_again_after_it_was_closed(on: &Subject) -> Verdict {
    let (memory, token) = exported(on, 1)?;
    on.child("reopen_token", &token, None)?;
    on.expect_pattern(memory.span(), 1, "the memory after the child")?;
    on.round_trip(memory.span(), 3, "the memory written again")?;
    Ok(memory.close()?)
}

fn a_token_of_freed_memory_is_refused(on: &Subject) -> Verdict {
    let (memory, token) = exported(on, 1)?;
    memory.close()?;
    on.child("be_refused_token", &token, None).map(drop)
}

fn a_token_of_a_dead_process_is_refused(on: &Subject) -> Verdict {
    let token = from_hex(&on.child("export_token", "", None)?)?;
    refuse_token(on, &IpcToken(token))
}

fn a_token_no_driver_made_is_refused(on: &Subject) -> Verdict {
    let mut random = [0; 64];
    random.copy_from_slice(&pattern(5, 64));
    refuse_token(on, &IpcToken(random))?;
    refuse_token(on, &IpcToken([0; 64]))?;
    refuse_token(on, &IpcToken([0xff; 64]))
}

fn an_interior_address_has_no_token(on: &Subject) -> Verdict {
    let memory = on.memory(BYTES)?;
    for offset in [512, MIB, BYTES - 512] {
        let token = export(on, memory.ptr().add(offset));
        refuse(token, &[ErrorKind::InvalidValue], "the token of an interior address")?;
    }
    export(on, memory.ptr())?;
    Ok(())
}

fn mapped_backing_has_no_token(on: &Subject) -> Verdict {
    let (reservation, backing) = (on.chunk_reservation(1)?, on.chunk_backing()?);
    let mapping = on.map(&reservation, 0, &backing)?;
    let token = export(on, mapping.ptr());
    refuse(token, &[ErrorKind::InvalidValue], "the token of mapped backing").map(drop)
}

fn tokens_of_different_allocations_differ(on: &Subject) -> Verdict {
    let (one, two) = (on.memory(BYTES)?, on.memory(BYTES)?);
    let (first, second) = (export(on, one.ptr())?, export(on, two.ptr())?);
    ensure!(first != second, "both are {first:?}")
}
