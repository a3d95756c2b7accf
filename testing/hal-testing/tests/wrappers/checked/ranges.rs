//! Misuse of memory and of ranges in it.

use std::ptr::NonNull;

use cachette_hal::{
    Device, DevicePtr, ErrorKind, HostMemory, Ipc, IpcToken, Ordinal, PeerAccess, StreamOrdered, StreamRef, Transfer,
};
use cachette_hal_testing::checked::MisuseKind;

use super::{caught, subject};
use crate::fake::{STRIDE, call};

const DEFAULT: StreamRef = StreamRef::DEFAULT;

#[test]
fn a_double_free_is_caught() {
    let device = subject();
    let ptr = device.allocate(4096).unwrap();
    call!(device.free(ptr)).unwrap();
    let parts = [
        "free(0x100000): this memory was already freed",
        "it came from allocate (call 1, thread ",
        "it was freed by free (call 2, thread ",
    ];
    caught(&device, MisuseKind::EndedTwice, &parts, || call!(device.free(ptr)));

    let ptr = call!(device.allocate_on(4096, DEFAULT)).unwrap();
    call!(device.free_on(ptr, DEFAULT)).unwrap();
    let parts = ["this stream-ordered memory was already freed", "allocate_on"];
    caught(&device, MisuseKind::EndedTwice, &parts, || call!(device.free_on(ptr, DEFAULT)));
}

#[test]
fn memory_never_seen_here_is_foreign() {
    let device = subject();
    let ptr = DevicePtr::new(0xabc0).unwrap();
    let parts = ["free(0xabc0): this memory was never seen here", "foreign"];
    caught(&device, MisuseKind::Foreign, &parts, || call!(device.free(ptr)));
    let parts = ["close_token(0xabc0): this opened memory was never seen"];
    caught(&device, MisuseKind::Foreign, &parts, || call!(device.close_token(ptr)));
    let parts = ["export_token(0xabc0): this memory was never seen here"];
    caught(&device, MisuseKind::Foreign, &parts, || call!(device.export_token(ptr)));
}

#[test]
fn an_interior_address_names_the_allocation_around_it() {
    let device = subject();
    let ptr = device.allocate(4096).unwrap();
    let parts = [
        "free(0x100200): it starts 512 bytes inside the memory at 0x100000 of 4096 bytes",
        "it came from allocate (call 1",
    ];
    caught(&device, MisuseKind::Interior, &parts, || call!(device.free(ptr.add(512))));
    // One past the end is no part of it.
    caught(&device, MisuseKind::Foreign, &[], || call!(device.free(ptr.add(4096))));
    // A token may be asked for anywhere; the driver says whether there is one.
    call!(device.export_token(ptr.add(512))).unwrap();
    call!(device.free(ptr)).unwrap();
}

#[test]
fn memory_goes_back_the_way_it_came() {
    let device = subject();
    let direct = device.allocate(4096).unwrap();
    let ordered = call!(device.allocate_on(4096, DEFAULT)).unwrap();
    let opened = device.open_token(&IpcToken([1; 64])).unwrap();
    let parts = ["this memory is to be freed by free", "from allocate (call 1"];
    caught(&device, MisuseKind::WrongCall, &parts, || call!(device.free_on(direct, DEFAULT)));
    let parts = ["this stream-ordered memory is to be freed by free_on"];
    caught(&device, MisuseKind::WrongCall, &parts, || call!(device.free(ordered)));
    let parts = ["this opened memory is to be closed by close_token", "from open_token"];
    caught(&device, MisuseKind::WrongCall, &parts, || call!(device.free(opened)));
}

#[test]
fn pinned_and_registered_memory_end_once_and_by_their_own_calls() {
    let device = subject();
    let pinned = device.allocate_pinned(4096).unwrap();
    let mut bytes = [0_u8; 64];
    let registered = NonNull::from(&mut bytes).cast::<u8>();
    call!(device.register(registered, 64)).unwrap();

    let parts = ["free_pinned(", "this registered memory is to be unregistered by unregister"];
    caught(&device, MisuseKind::WrongCall, &parts, || call!(device.free_pinned(registered)));
    call!(device.free_pinned(pinned)).unwrap();
    call!(device.unregister(registered)).unwrap();
    let parts = ["this pinned memory was already freed", "allocate_pinned"];
    caught(&device, MisuseKind::EndedTwice, &parts, || call!(device.free_pinned(pinned)));
    let parts = ["this registered memory was already unregistered", "from register"];
    caught(&device, MisuseKind::EndedTwice, &parts, || call!(device.unregister(registered)));
    let unknown = NonNull::<u8>::dangling();
    let parts = ["free_pinned(0x1): this pinned memory was never seen here"];
    caught(&device, MisuseKind::Foreign, &parts, || call!(device.free_pinned(unknown)));
    let parts = ["unregister(0x1): this registered memory was never seen here"];
    caught(&device, MisuseKind::Foreign, &parts, || call!(device.unregister(unknown)));
}

#[test]
fn a_token_opened_twice_is_closed_twice() {
    let device = subject();
    let base = device.open_token(&IpcToken([1; 64])).unwrap();
    device.device().reuse(base.address());
    assert_eq!(device.open_token(&IpcToken([1; 64])), Ok(base));
    call!(device.close_token(base)).unwrap();
    assert_eq!(device.leaks().len(), 1);
    call!(device.close_token(base)).unwrap();
    let parts = ["close_token(0x100000): this opened memory was already closed", "open_token"];
    caught(&device, MisuseKind::EndedTwice, &parts, || call!(device.close_token(base)));
    let parts = ["in no live memory known here", "open_token", "closed by close_token"];
    caught(&device, MisuseKind::OutOfBounds, &parts, || call!(device.fill(base, 0, 16, DEFAULT)));
}

#[test]
fn a_transfer_stays_inside_one_allocation() {
    let device = subject();
    let ptr = device.allocate(4096).unwrap();
    device.device().reuse(ptr.address() + 4096);
    let next = device.allocate(4096).unwrap();
    call!(device.fill(ptr, 0, 4096, DEFAULT)).unwrap();
    call!(device.copy(next, ptr, 4096, DEFAULT)).unwrap();
    let mut byte = 0_u8;

    let out = MisuseKind::OutOfBounds;
    let parts = [
        "fill(0x100800, 4096 bytes): the range is not inside live memory",
        "it starts 2048 bytes inside the memory at 0x100000 of 4096 bytes",
        "from allocate (call 1",
    ];
    // The neighbour is live too, but it is another allocation.
    caught(&device, out, &parts, || call!(device.fill(ptr.add(2048), 0, 4096, DEFAULT)));
    let parts = ["copy(0x101000, 4097 bytes)"];
    caught(&device, out, &parts, || call!(device.copy(next, ptr, 4097, DEFAULT)));
    let parts = ["copy(0x100001, 4096 bytes)"];
    caught(&device, out, &parts, || call!(device.copy(next, ptr.add(1), 4096, DEFAULT)));
    let parts = ["upload(0x100fff, 2 bytes)"];
    caught(&device, out, &parts, || call!(device.upload(ptr.add(4095), &raw const byte, 2, DEFAULT)));
    let parts = ["download(0x100fff, 2 bytes)"];
    caught(&device, out, &parts, || call!(device.download(&raw mut byte, ptr.add(4095), 2, DEFAULT)));
    let top = DevicePtr::new(u64::MAX).unwrap();
    let parts = ["the range lies in no live memory known here"];
    caught(&device, out, &parts, || call!(device.fill(top, 0, 2, DEFAULT)));
}

#[test]
fn a_transfer_into_freed_memory_says_who_freed_it() {
    let device = subject();
    let ptr = device.allocate(4096).unwrap();
    call!(device.free(ptr)).unwrap();
    let parts =
        ["16 bytes inside the memory at 0x100000", "came from allocate (call 1", "it was freed by free (call 2"];
    caught(&device, MisuseKind::OutOfBounds, &parts, || call!(device.fill(ptr.add(16), 0, 16, DEFAULT)));
    let parts = ["export_token(0x100000): this memory is used after it was freed"];
    caught(&device, MisuseKind::UsedAfterEnd, &parts, || call!(device.export_token(ptr)));
}

#[test]
fn transfers_reach_pinned_opened_adopted_and_stream_ordered_memory() {
    let device = subject();
    let pinned = device.allocate_pinned(64).unwrap();
    let same = DevicePtr::new(pinned.addr().get() as u64).unwrap();
    let alias = same.add(1000 * STRIDE);
    call!(device.fill(same, 0, 64, DEFAULT)).unwrap();
    caught(&device, MisuseKind::OutOfBounds, &[], || call!(device.fill(alias, 0, 64, DEFAULT)));
    assert_eq!(device.device_address(pinned), Ok(alias));
    call!(device.fill(alias, 0, 64, DEFAULT)).unwrap();
    caught(&device, MisuseKind::OutOfBounds, &[], || call!(device.fill(alias, 0, 65, DEFAULT)));

    let ordered = call!(device.allocate_on(64, DEFAULT)).unwrap();
    call!(device.fill(ordered, 0, 64, DEFAULT)).unwrap();
    let opened = device.open_token(&IpcToken([1; 64])).unwrap();
    call!(device.fill(opened.add(4096), 0, 64, DEFAULT)).unwrap();
    let after = device.allocate(64).unwrap();
    // The size of opened memory is not known, but it ends before the next known resource.
    caught(&device, MisuseKind::OutOfBounds, &[], || call!(device.fill(opened, 0, 2 * STRIDE, DEFAULT)));
    call!(device.fill(after, 0, 64, DEFAULT)).unwrap();

    let elsewhere = DevicePtr::new(0x7000_0000_0000).unwrap();
    device.adopt_memory(elsewhere, 64);
    call!(device.fill(elsewhere, 0, 64, DEFAULT)).unwrap();
    caught(&device, MisuseKind::WrongCall, &["only adopted"], || call!(device.free(elsewhere)));
}

#[test]
fn a_peers_memory_is_believed_in_while_the_peer_is_enabled() {
    let device = subject();
    let ptr = device.allocate(64).unwrap();
    let peers = DevicePtr::new(0x7000_0000_0000).unwrap();
    let copy = || call!(device.copy(ptr, peers, 64, DEFAULT));
    caught(&device, MisuseKind::OutOfBounds, &["no live memory"], copy);
    device.enable_peer(Ordinal(1)).unwrap();
    copy().unwrap();
    // What is known here is still held to its bounds.
    caught(&device, MisuseKind::OutOfBounds, &["at 0x100000 of 64 bytes"], || {
        call!(device.copy(ptr, peers, 65, DEFAULT))
    });
    // Where memory of this device was once, a peer's may be now.
    let gone = device.allocate(64).unwrap();
    call!(device.free(gone)).unwrap();
    call!(device.copy(ptr, gone, 64, DEFAULT)).unwrap();
    device.disable_peer(Ordinal(1)).unwrap();
    caught(&device, MisuseKind::OutOfBounds, &["no live memory"], copy);
}

#[test]
fn requests_for_zero_bytes_are_the_drivers_to_refuse() {
    let device = subject();
    let nowhere = DevicePtr::new(0xdead_0000).unwrap();
    device.device().fail_next();
    assert_eq!(device.allocate(0).unwrap_err().kind(), ErrorKind::Other);
    call!(device.fill(nowhere, 0, 0, DEFAULT)).unwrap();
    assert!(device.misuses().is_empty());
    assert_eq!(device.device().calls().len(), 2);
}
