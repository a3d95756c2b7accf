//! Tokens of what has none.

use cachette_hal::{Device, ErrorKind, Ipc, StreamRef};

use crate::rig::{rig, threaded};

#[test]
fn pooled_memory_has_no_token_and_an_owner_cannot_open_its_own() {
    let device = rig(threaded());
    let pooled = device.allocate_on(100, StreamRef::DEFAULT).unwrap();
    // SAFETY: 1. the device looks the address up.
    let exported = unsafe { device.export_token(pooled) };
    assert_eq!(exported.unwrap_err().kind(), ErrorKind::InvalidValue);
    let memory = device.allocate(100).unwrap();
    // SAFETY: 1. the device looks the address up.
    let token = unsafe { device.export_token(memory) }.unwrap();
    assert_eq!(device.open_token(&token).unwrap_err().kind(), ErrorKind::InvalidValue);
}
