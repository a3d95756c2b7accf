//! Tokens, opened by a child process.

use std::fmt::Write;
use std::process::Command;

use cachette_hal::{Device, DevicePtr, ErrorKind, Ipc, IpcToken, StreamRef};

use crate::rig::{Rig, rig, threaded};

/// Tells the child its token, in hexadecimal digits.
const TOKEN: &str = "CACHETTE_TEST_TOKEN";

fn export(device: &Rig, base: DevicePtr) -> cachette_hal::Result<IpcToken> {
    // SAFETY: 1. the device looks the address up.
    unsafe { device.export_token(base) }
}

fn close(device: &Rig, base: DevicePtr) -> cachette_hal::Result<()> {
    // SAFETY: 1. and 2. the device looks the address up, and the tests' work is over.
    unsafe { device.close_token(base) }
}

/// Runs [`child`] in a separate process; `Err` is its output.
fn run_child(token: &IpcToken) -> Result<(), String> {
    let digits = token.0.iter().fold(String::new(), |mut digits, byte| {
        write!(digits, "{byte:02x}").unwrap();
        digits
    });
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["ipc::child", "--exact", "--ignored"])
        .env(TOKEN, digits)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("running 1 test"), "{text}");
    output.status.success().then_some(()).ok_or(text.into_owned())
}

/// Opens the token twice, checks what the parent wrote, and writes its own.
#[test]
#[ignore = "the other tests run it in a separate process"]
fn child() {
    let digits = std::env::var(TOKEN).unwrap();
    let digit = |i: usize| u8::from_str_radix(&digits[2 * i..2 * i + 2], 16).unwrap();
    let token = IpcToken(std::array::from_fn(digit));
    let device = rig(threaded());
    let first = device.open_token(&token).unwrap();
    assert_eq!(device.open_token(&token), Ok(first), "opened twice");
    assert_eq!((device.live().tokens, device.physical_bytes()), (2, 0));
    close(&device, first).unwrap();
    assert_eq!(device.read(first, 100), [1; 100]);
    device.fill(first, 2, 50, StreamRef::DEFAULT).unwrap();
    device.synchronize_device().unwrap();
    close(&device, first).unwrap();
    assert_eq!(close(&device, first).unwrap_err().kind(), ErrorKind::InvalidValue);
}

#[test]
fn a_child_sees_and_changes_what_a_token_names() {
    let device = rig(threaded());
    let memory = device.allocate(100).unwrap();
    device.fill(memory, 1, 100, StreamRef::DEFAULT).unwrap();
    device.synchronize_device().unwrap();
    run_child(&export(&device, memory).unwrap()).unwrap();
    assert_eq!(device.read(memory, 100), [[2; 50], [1; 50]].concat());
}

#[test]
fn a_token_ends_with_its_allocation() {
    let device = rig(threaded());
    let memory = device.allocate(100).unwrap();
    let token = export(&device, memory).unwrap();
    device.free(memory).unwrap();
    let _other = device.allocate(100).unwrap();
    let text = run_child(&token).unwrap_err();
    assert!(text.contains("kind: InvalidValue, call: \"open_token\""), "{text}");
}

#[test]
fn only_the_start_of_an_allocation_has_a_token_and_its_owner_cannot_open_it() {
    let device = rig(threaded());
    let memory = device.allocate(100).unwrap();
    let inside = export(&device, memory.add(1)).unwrap_err();
    assert_eq!(inside.kind(), ErrorKind::InvalidValue);
    let pooled = device.allocate_on(100, StreamRef::DEFAULT).unwrap();
    assert_eq!(export(&device, pooled).unwrap_err().kind(), ErrorKind::InvalidValue);
    let token = export(&device, memory).unwrap();
    assert_eq!(device.open_token(&token).unwrap_err().kind(), ErrorKind::InvalidValue);
    let garbage = IpcToken([0x5a; 64]);
    assert_eq!(device.open_token(&garbage).unwrap_err().kind(), ErrorKind::InvalidValue);
}
