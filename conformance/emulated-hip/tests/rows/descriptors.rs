//! Rows about descriptors, tokens and what is known of an address.

use std::ffi::{c_int, c_void};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr;

use cachette_hal_hip::types::{BackingHandle, IpcMemHandle, PointerAttribute, Status};

use crate::hip::{Hip, call};

pub(crate) const ROWS: &[super::Row] = &[
    ("a_descriptor_is_imported_as_the_version_wants_it", import),
    ("a_descriptor_of_something_else_is_refused", foreign),
    ("an_interior_address_has_a_token", interior_token),
    ("what_is_known_of_an_address", attributes),
];

const CHUNK: u64 = 2 << 20;

fn export(hip: &Hip, handle: BackingHandle) -> Result<OwnedFd, Status> {
    let mut descriptor: c_int = -1;
    let out = (&raw mut descriptor).cast::<c_void>();
    let status = call!(hip.virtual_memory.hipMemExportToShareableHandle(out, handle, 1, 0));
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
    let status = call!(hip.virtual_memory.hipMemImportFromShareableHandle(&raw mut handle, argument, 1));
    if status == 0 { Ok(handle) } else { Err(status) }
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
    let private = hip.create(CHUNK);
    assert_eq!(export(hip, private).err(), Some(1));
    hip.destroy(private);
}

/// Descriptor 0 by value is null; by a pointer it is a descriptor like any other: here, one of something else.
fn foreign(hip: &Hip) {
    let null = File::open("/dev/null").expect("every system has it");
    let by_value = hip.seen([false, true, true]);
    assert_eq!(import_descriptor(hip, &null, by_value), Err(1));
    assert_eq!(import_descriptor(hip, &io::stdin(), by_value), Err(1));
}

pub(crate) fn token(hip: &Hip, at: u64) -> Result<IpcMemHandle, Status> {
    let mut token = IpcMemHandle { reserved: [0; 64] };
    let status = call!(hip.ipc.hipIpcGetMemHandle(&raw mut token, at));
    if status == 0 { Ok(token) } else { Err(status) }
}

fn interior_token(hip: &Hip) {
    let at = hip.malloc(CHUNK);
    assert!(token(hip, at + 4096).is_ok());
    assert_eq!(token(hip, 4096).err(), Some(1), "an address of nothing");
    hip.free(at);
}

fn attributes(hip: &Hip) {
    let ask = |at: u64| {
        let mut found = PointerAttribute {
            kind: -1,
            device: -1,
            device_pointer: 0,
            host_pointer: ptr::null_mut(),
            is_managed: 0,
            allocation_flags: 0,
        };
        let status = call!(hip.stream_ordered.hipPointerGetAttributes(&raw mut found, at));
        (status, found.kind, found.device)
    };
    let plain = Box::new(0_u8);
    let (status, kind, _) = ask((&raw const *plain).addr() as u64);
    assert_eq!((status, kind), (0, 0), "plain memory of the host");
    assert_eq!(ask(0).0, hip.seen([1, 0, 0]), "null");
    let (at, handles) = hip.mapped(&[CHUNK]);
    assert_eq!(ask(at + 8), (0, 2, 0), "mapped memory");
    hip.unmapped(at, &[CHUNK], &handles);
}
