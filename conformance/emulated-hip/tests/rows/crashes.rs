//! Rows that are crashes, or about a library without devices: each in a child process.

use std::env;
use std::ffi::c_void;
use std::process::{Command, ExitCode, Output};
use std::ptr;

use cachette_emulated_hip::Personality;
use cachette_hal_hip::types::IpcMemHandle;
use libtest_mimic::{Failed, Trial};

use crate::hip::Hip;
use crate::{calls, captures};

const PART: &str = "CACHETTE_ROW_PART";
const VERSION: &str = "CACHETTE_ROW_VERSION";
const CHUNK: u64 = 2 << 20;

/// What a child does, the versions that crash on it, and the status that the others answer with.
struct Crash {
    name: &'static str,
    act: fn(&Hip) -> i32,
    crashes: [bool; 3],
    status: i32,
}

const CRASHES: &[Crash] = &[
    Crash { name: "unmapping_nothing", act: unmap_nothing, crashes: [true, false, false], status: 1 },
    Crash { name: "unmapping_what_failed_to_map", act: unmap_failed, crashes: [true, false, false], status: 1 },
    Crash {
        name: "retaining_plain_memory",
        act: |hip| {
            let (plain, mut handle) = (hip.malloc(CHUNK), 0);
            // SAFETY: the out-parameter outlives the call.
            unsafe { (hip.extra.retain)(&raw mut handle, plain) }
        },
        crashes: [true, true, false],
        status: 1,
    },
    Crash { name: "a_token_of_mapped_memory", act: mapped_token, crashes: [true, true, false], status: 1 },
    Crash {
        name: "a_descriptor_by_value",
        act: |hip| {
            let mut handle = 0;
            let argument = ptr::without_provenance_mut::<c_void>(2);
            // SAFETY: descriptor 2 is open, and the out-parameter outlives the call.
            unsafe { (hip.vm().hipMemImportFromShareableHandle)(&raw mut handle, argument, 1) }
        },
        crashes: [true, false, false],
        status: 1,
    },
    Crash { name: "the_legacy_stream", act: |hip| hip.synchronize(1), crashes: [true, true, true], status: 0 },
    Crash {
        name: "a_record_in_a_destroyed_stream",
        act: |hip| {
            let (event, stream) = (calls::event(hip), hip.destroyed_stream());
            // SAFETY: the library notices that the stream is gone, or ends the process.
            unsafe { (hip.symbols.core.hipEventRecord)(event, stream) }
        },
        crashes: [false, true, true],
        status: 709,
    },
    Crash {
        name: "a_query_of_a_destroyed_stream",
        // SAFETY: as above.
        act: |hip| unsafe { (hip.extra.query)(hip.destroyed_stream()) },
        crashes: [false, true, true],
        status: 709,
    },
    Crash {
        name: "a_wait_of_a_destroyed_stream",
        act: |hip| {
            let (event, stream) = (calls::event(hip), hip.destroyed_stream());
            // SAFETY: as above.
            unsafe { (hip.symbols.core.hipStreamWaitEvent)(stream, event, 0) }
        },
        crashes: [false, true, true],
        status: 400,
    },
    Crash {
        name: "a_fill_in_a_destroyed_stream",
        act: |hip| captures::fill(hip, hip.malloc(64), hip.destroyed_stream()),
        crashes: [true, true, true],
        status: 0,
    },
    Crash { name: "a_second_end_of_a_broken_capture", act: end_twice, crashes: [true, true, true], status: 0 },
    Crash {
        name: "a_range_written_to_null",
        act: |hip| {
            let addresses = hip.symbols.addresses.as_ref().expect("it has every function");
            // SAFETY: the library ends the process before it writes.
            unsafe { (addresses.hipMemGetAddressRange)(ptr::null_mut(), ptr::null_mut(), 4096) }
        },
        crashes: [true, true, true],
        status: 0,
    },
];

fn end_twice(hip: &Hip) -> i32 {
    let (stream, capture) = (hip.stream(), &hip.symbols.capture);
    let capture = capture.as_ref().expect("it has every function");
    // SAFETY: the stream lives. 2 is the relaxed mode.
    assert_eq!(unsafe { (capture.hipStreamBeginCapture)(stream, 2) }, 0);
    assert_eq!(hip.synchronize(stream), 900);
    assert_eq!(captures::end(hip, stream), 901);
    captures::end(hip, stream)
}

fn unmap_nothing(hip: &Hip) -> i32 {
    let at = hip.reserve(CHUNK, 0).expect("there are addresses");
    hip.unmap(at, CHUNK)
}

/// Maps more than a handle has, which fails whatever is said of it.
fn unmap_failed(hip: &Hip) -> i32 {
    let at = hip.reserve(2 * CHUNK, 0).expect("there are addresses");
    hip.map(at, 2 * CHUNK, hip.create(CHUNK));
    hip.unmap(at, 2 * CHUNK)
}

fn mapped_token(hip: &Hip) -> i32 {
    let ipc = hip.symbols.ipc.as_ref().expect("it has every function");
    let at = hip.reserve(CHUNK, 0).expect("there are addresses");
    assert_eq!(hip.map(at, CHUNK, hip.create(CHUNK)), 0);
    let mut token = IpcMemHandle { reserved: [0; 64] };
    // SAFETY: the out-parameter outlives the call.
    unsafe { (ipc.hipIpcGetMemHandle)(&raw mut token, at) }
}

/// Statuses of calls that need no device elsewhere: starting, the last error, and freeing nothing.
fn without_devices(hip: &Hip) -> String {
    let core = &hip.symbols.core;
    let mut version = 0;
    let calls = [
        // SAFETY: it takes numbers alone.
        unsafe { (core.hipInit)(0) },
        // SAFETY: it takes nothing.
        unsafe { (core.hipGetLastError)() },
        // SAFETY: there is nothing to free.
        unsafe { (core.hipFree)(0) },
        // SAFETY: the out-parameter outlives the call.
        unsafe { (hip.extra.version)(&raw mut version) },
    ];
    format!("{calls:?} {version}")
}

/// In a child process, does its part; `None` in an ordinary process.
pub(crate) fn play_if_child() -> Option<ExitCode> {
    let part = env::var(PART).ok()?;
    let version = env::var(VERSION).ok()?.parse().ok()?;
    let hip = Hip::load(version);
    match CRASHES.iter().find(|crash| crash.name == part) {
        Some(crash) => println!("status {}", (crash.act)(&hip)),
        None => println!("{}", without_devices(&hip)),
    }
    Some(ExitCode::SUCCESS)
}

fn child(part: &str, personality: Personality, variables: &[(&str, &str)]) -> Output {
    let program = env::current_exe().expect("a program knows where it is");
    Command::new(program)
        .env(PART, part)
        .env(VERSION, personality.name())
        .envs(variables.iter().copied())
        .output()
        .expect("a child starts")
}

fn expect(holds: bool, output: &Output) -> Result<(), Failed> {
    if holds { Ok(()) } else { Err(format!("{output:?}").into()) }
}

fn crash(crash: &Crash, personality: Personality) -> Result<(), Failed> {
    let output = child(crash.name, personality, &[]);
    if crash.crashes[(personality as usize).min(2)] {
        let said = String::from_utf8_lossy(&output.stderr);
        let loudly = said.contains("emulated HIP: the real library would crash here");
        return expect(!output.status.success() && loudly, &output);
    }
    let promised = format!("status {}\n", crash.status);
    expect(output.stdout == promised.as_bytes(), &output)
}

fn no_devices(personality: Personality) -> Result<(), Failed> {
    let none = ("CACHETTE_EMULATED_DEVICES", "0");
    let output = child("", personality, &[none]);
    let said = String::from_utf8_lossy(&output.stdout);
    expect(said.starts_with("[100, 100, 100, 0] "), &output)?;
    let old = ("CACHETTE_EMULATED_VERSION", "50221153");
    let output = child("", personality, &[none, old]);
    expect(output.stdout == b"[101, 100, 100, 0] 50221153\n", &output)
}

pub(crate) fn trials(personality: Personality) -> Vec<Trial> {
    let crashes = CRASHES.iter().map(|row| {
        let name = format!("{personality}::{}", row.name);
        Trial::test(name, move || crash(row, personality))
    });
    let name = format!("{personality}::without_devices_nothing_works_but_the_version");
    crashes.chain([Trial::test(name, move || no_devices(personality))]).collect()
}
