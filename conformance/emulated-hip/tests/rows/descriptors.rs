//! Rows about descriptors, tokens and what is known of an address.

use std::ffi::{c_int, c_void};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr;

use cachette_hal_hip::types::{BackingHandle, IpcMemHandle, PointerAttribute, Status};

use crate::hip::Hip;

pub(crate) const ROWS: &[super::Row] = &[
    ("a_descriptor_is_imported_as_the_version_wants_it", import),
    ("descriptor_0_by_value_is_null", descriptor_0),
    ("a_foreign_descriptor_is_refused", foreign),
    ("a_private_handle_is_not_exported", private),
    ("a_token_of_this_process_is_not_opened", own_token),
    ("a_token_is_opened_with_one_flag_alone", token_flags),
    ("an_interior_address_has_a_token", interior_token),
    ("what_plain_host_memory_is", plain_memory),
    ("what_null_is", null),
    ("what_mapped_memory_is", mapped_memory),
];

const CHUNK: u64 = 2 << 20;

fn export(hip: &Hip, handle: BackingHandle) -> Result<OwnedFd, Status> {
    let mut descriptor: c_int = -1;
    let out = (&raw mut descriptor).cast::<c_void>();
    // SAFETY: the out-parameter is an `int` that outlives the call.
    let status = unsafe { (hip.vm().hipMemExportToShareableHandle)(out, handle, 1, 0) };
    if status != 0 {
        return Err(status);
    }
    // SAFETY: the library has opened it for this call.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// Imports a descriptor in the way of 7.1 and later, or in that of earlier versions.
fn import_descriptor(hip: &Hip, descriptor: &impl AsRawFd, by_value: bool) -> Result<BackingHandle, Status> {
    let mut number: c_int = descriptor.as_raw_fd();
    let argument = if by_value {
        ptr::without_provenance_mut(usize::try_from(number).expect("it is open"))
    } else {
        (&raw mut number).cast::<c_void>()
    };
    let mut handle = 0;
    // SAFETY: the out-parameter and the descriptor outlive the call.
    let status = unsafe { (hip.vm().hipMemImportFromShareableHandle)(&raw mut handle, argument, 1) };
    if status == 0 { Ok(handle) } else { Err(status) }
}

/// By a pointer it is a descriptor like any other: here, one of something else.
fn descriptor_0(hip: &Hip) {
    let by_value = hip.seen([false, true, true]);
    assert_eq!(import_descriptor(hip, &io::stdin(), by_value), Err(1));
}

fn import(hip: &Hip) {
    let handle = hip.create_on(0, CHUNK, 1).expect("there is memory");
    let descriptor = export(hip, handle).expect("it is shareable");
    let by_value = hip.seen([false, true, true]);
    let imported = import_descriptor(hip, &descriptor, by_value);
    hip.destroy(imported.expect("it was exported"));
    if by_value {
        assert_eq!(import_descriptor(hip, &descriptor, false), Err(1), "a pointer is no descriptor");
    }
    hip.destroy(handle);
}

fn foreign(hip: &Hip) {
    let null = File::open("/dev/null").expect("every system has it");
    let by_value = hip.seen([false, true, true]);
    assert_eq!(import_descriptor(hip, &null, by_value), Err(1));
}

fn private(hip: &Hip) {
    let handle = hip.create(CHUNK);
    assert_eq!(export(hip, handle).err(), Some(1));
    hip.destroy(handle);
}

fn token(hip: &Hip, at: u64) -> Result<IpcMemHandle, Status> {
    let ipc = hip.symbols.ipc.as_ref().expect("it has every function");
    let mut token = IpcMemHandle { reserved: [0; 64] };
    // SAFETY: the out-parameter outlives the call.
    let status = unsafe { (ipc.hipIpcGetMemHandle)(&raw mut token, at) };
    if status == 0 { Ok(token) } else { Err(status) }
}

fn open(hip: &Hip, token: IpcMemHandle, flags: u32) -> Status {
    let ipc = hip.symbols.ipc.as_ref().expect("it has every function");
    let mut at = 0;
    // SAFETY: the out-parameter outlives the call.
    unsafe { (ipc.hipIpcOpenMemHandle)(&raw mut at, token, flags) }
}

fn own_token(hip: &Hip) {
    let at = hip.malloc(CHUNK);
    assert_eq!(open(hip, token(hip, at).expect("it is plain memory"), 1), 201);
    hip.free(at);
}

fn token_flags(hip: &Hip) {
    let at = hip.malloc(CHUNK);
    for flags in [0, 2] {
        assert_eq!(open(hip, token(hip, at).expect("it is plain memory"), flags), 1, "flags {flags}");
    }
    hip.free(at);
}

fn interior_token(hip: &Hip) {
    let at = hip.malloc(CHUNK);
    assert!(token(hip, at + 4096).is_ok());
    assert_eq!(token(hip, 4096).err(), Some(1), "an address of nothing");
    hip.free(at);
}

fn attributes(hip: &Hip, at: u64) -> (Status, c_int, c_int) {
    let pool = hip.symbols.stream_ordered.as_ref().expect("it has every function");
    let mut found = PointerAttribute {
        kind: -1,
        device: -1,
        device_pointer: 0,
        host_pointer: ptr::null_mut(),
        is_managed: 0,
        allocation_flags: 0,
    };
    // SAFETY: the out-parameter outlives the call.
    let status = unsafe { (pool.hipPointerGetAttributes)(&raw mut found, at) };
    (status, found.kind, found.device)
}

fn plain_memory(hip: &Hip) {
    let plain = Box::new(0_u8);
    let (status, kind, _) = attributes(hip, (&raw const *plain).addr() as u64);
    assert_eq!((status, kind), (0, 0));
}

fn null(hip: &Hip) {
    assert_eq!(attributes(hip, 0).0, hip.seen([1, 0, 0]));
}

fn mapped_memory(hip: &Hip) {
    let (at, handle) = (hip.reserve(CHUNK, 0).expect("there are addresses"), hip.create(CHUNK));
    assert_eq!(hip.map(at, CHUNK, handle), 0);
    assert_eq!(attributes(hip, at + 8), (0, 2, 0));
    assert_eq!(hip.unmap(at, CHUNK), 0);
    hip.destroy(handle);
    assert_eq!(hip.release(at, CHUNK), 0);
}
