//! Rows that are crashes, or about a library without devices: each in a child process.

use std::env;
use std::ffi::c_void;
use std::process::{Command, ExitCode, Output};
use std::ptr;

use cachette_emulated_hip::Personality;
use libtest_mimic::{Failed, Trial};

use crate::descriptors::token;
use crate::hip::{Hip, call};
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

impl Crash {
    const fn of(name: &'static str, crashes: [bool; 3], status: i32, act: fn(&Hip) -> i32) -> Self {
        Self { name, act, crashes, status }
    }
}

const CRASHES: &[Crash] = &[
    Crash::of("unmapping_nothing", [true, false, false], 1, |hip| {
        hip.unmap(hip.reserve(CHUNK, 0).expect("there are addresses"), CHUNK)
    }),
    Crash::of("unmapping_what_failed_to_map", [true, false, false], 1, |hip| {
        let at = hip.reserve(2 * CHUNK, 0).expect("there are addresses");
        // More than the handle has, which fails whatever is said of it.
        hip.map(at, 2 * CHUNK, hip.create(CHUNK));
        hip.unmap(at, 2 * CHUNK)
    }),
    Crash::of("retaining_plain_memory", [true, true, false], 1, |hip| {
        let mut handle = 0;
        call!(hip.extra.retain(&raw mut handle, hip.malloc(CHUNK)))
    }),
    Crash::of("a_token_of_mapped_memory", [true, true, false], 1, |hip| {
        token(hip, hip.mapped(&[CHUNK]).0).err().unwrap_or(0)
    }),
    Crash::of("a_descriptor_by_value", [true, false, false], 1, |hip| {
        let (mut handle, descriptor) = (0, ptr::without_provenance_mut::<c_void>(2));
        call!(hip.virtual_memory.hipMemImportFromShareableHandle(&raw mut handle, descriptor, 1))
    }),
    Crash::of("the_legacy_stream", [true, true, true], 0, |hip| hip.synchronize(1)),
    Crash::of("a_record_in_a_destroyed_stream", [false, true, true], 709, |hip| {
        call!(hip.core.hipEventRecord(calls::event(hip), hip.destroyed_stream()))
    }),
    Crash::of("a_query_of_a_destroyed_stream", [false, true, true], 709, |hip| {
        call!(hip.extra.query(hip.destroyed_stream()))
    }),
    Crash::of("a_wait_of_a_destroyed_stream", [false, true, true], 400, |hip| {
        call!(hip.core.hipStreamWaitEvent(hip.destroyed_stream(), calls::event(hip), 0))
    }),
    Crash::of("a_fill_in_a_destroyed_stream", [true, true, true], 0, |hip| {
        captures::fill(hip, hip.malloc(64), hip.destroyed_stream())
    }),
    Crash::of("a_second_end_of_a_broken_capture", [true, true, true], 0, |hip| {
        let stream = hip.stream();
        assert_eq!(captures::begin_as(hip, stream, 2), 0);
        assert_eq!(hip.synchronize(stream), 900);
        assert_eq!(captures::end(hip, stream), 901);
        captures::end(hip, stream)
    }),
    Crash::of("a_range_written_to_null", [true, true, true], 0, |hip| {
        call!(hip.addresses.hipMemGetAddressRange(ptr::null_mut(), ptr::null_mut(), 4096))
    }),
];

/// Statuses of calls that need no device elsewhere: starting, the last error, and freeing nothing.
fn without_devices(hip: &Hip) -> String {
    let mut version = 0;
    let calls = [
        call!(hip.core.hipInit(0)),
        call!(hip.core.hipGetLastError()),
        call!(hip.core.hipFree(0)),
        call!(hip.extra.version(&raw mut version)),
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
