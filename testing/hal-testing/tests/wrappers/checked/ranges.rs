//! Misuse of memory and of ranges in it.

use std::ptr::NonNull;

use cachette_hal::{
    Device, DevicePtr, HostMemory, Ipc, IpcToken, Ordinal, PeerAccess, StreamOrdered, StreamRef, Transfer,
};

use super::{subject, wrong};
use crate::fake::{STRIDE, call};

const DEFAULT: StreamRef = StreamRef::DEFAULT;

#[test]
fn memory_is_freed_once_whole_and_the_way_it_came() {
    let device = subject();
    let direct = device.allocate(4096).unwrap();
    let ordered = call!(device.allocate_on(4096, DEFAULT)).unwrap();
    let opened = device.open_token(&IpcToken([1; 64])).unwrap();
    wrong!(device.free_on(direct, DEFAULT) => WrongCall, "this memory is to be freed by free", "from allocate (call 1");
    wrong!(device.free(ordered) => WrongCall, "this stream-ordered memory is to be freed by free_on");
    wrong!(device.free(opened) => WrongCall, "this opened memory is to be closed by close_token", "from open_token");
    let around = "free(0x100200): it starts 512 bytes inside the memory at 0x100000 of 4096 bytes";
    wrong!(device.free(direct.add(512)) => Interior, around, "it came from allocate (call 1");
    // One past the end is no part of it.
    wrong!(device.free(direct.add(4096)) => Foreign);
    // A token may be asked for anywhere in it; the driver says whether there is one.
    call!(device.export_token(direct.add(512))).unwrap();
    call!(device.free(direct)).unwrap();
    wrong!(device.free(direct) => EndedTwice, "free(0x100000): this memory was already freed", "it was freed by free (call 9");
    wrong!(device.fill(direct.add(16), 0, 16, DEFAULT) => OutOfBounds,
        "16 bytes inside the memory at 0x100000", "came from allocate (call 1", "it was freed by free (call 9");
    wrong!(device.export_token(direct) => UsedAfterEnd, "export_token(0x100000): this memory is used after it was freed");
    call!(device.free_on(ordered, DEFAULT)).unwrap();
    wrong!(device.free_on(ordered, DEFAULT) => EndedTwice, "this stream-ordered memory was already freed", "allocate_on");
    let ptr = DevicePtr::new(0xabc0).unwrap();
    wrong!(device.free(ptr) => Foreign, "free(0xabc0): this memory was never seen here", "foreign");
    wrong!(device.close_token(ptr) => Foreign, "this opened memory was never seen");
    wrong!(device.export_token(ptr) => Foreign, "this memory was never seen here");
}

#[test]
fn pinned_and_registered_memory_end_once_and_by_their_own_calls() {
    let device = subject();
    let pinned = device.allocate_pinned(4096).unwrap();
    let mut bytes = [0_u8; 64];
    let registered = NonNull::from(&mut bytes).cast::<u8>();
    call!(device.register(registered, 64)).unwrap();
    wrong!(device.free_pinned(registered) => WrongCall, "this registered memory is to be unregistered by unregister");
    call!(device.free_pinned(pinned)).unwrap();
    call!(device.unregister(registered)).unwrap();
    wrong!(device.free_pinned(pinned) => EndedTwice, "this pinned memory was already freed", "allocate_pinned");
    wrong!(device.unregister(registered) => EndedTwice, "this registered memory was already unregistered", "from register");
    let unknown = NonNull::<u8>::dangling();
    wrong!(device.free_pinned(unknown) => Foreign, "free_pinned(0x1): this pinned memory was never seen here");
    wrong!(device.unregister(unknown) => Foreign, "unregister(0x1): this registered memory was never seen here");
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
    wrong!(device.close_token(base) => EndedTwice, "close_token(0x100000): this opened memory was already closed", "open_token");
    wrong!(device.fill(base, 0, 16, DEFAULT) => OutOfBounds, "in no live memory known here", "closed by close_token");
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
    // The neighbour is live too, but it is another allocation.
    wrong!(device.fill(ptr.add(2048), 0, 4096, DEFAULT) => OutOfBounds,
        "fill(0x100800, 4096 bytes): the range is not inside live memory",
        "it starts 2048 bytes inside the memory at 0x100000 of 4096 bytes", "from allocate (call 1");
    wrong!(device.copy(next, ptr, 4097, DEFAULT) => OutOfBounds, "copy(0x101000, 4097 bytes)");
    wrong!(device.copy(next, ptr.add(1), 4096, DEFAULT) => OutOfBounds, "copy(0x100001, 4096 bytes)");
    wrong!(device.upload(ptr.add(4095), &raw const byte, 2, DEFAULT) => OutOfBounds, "upload(0x100fff, 2 bytes)");
    wrong!(device.download(&raw mut byte, ptr.add(4095), 2, DEFAULT) => OutOfBounds, "download(0x100fff, 2 bytes)");
    let top = DevicePtr::new(u64::MAX).unwrap();
    wrong!(device.fill(top, 0, 2, DEFAULT) => OutOfBounds, "the range lies in no live memory known here");
}

#[test]
fn transfers_reach_pinned_opened_adopted_and_stream_ordered_memory() {
    let device = subject();
    let pinned = device.allocate_pinned(64).unwrap();
    let same = DevicePtr::new(pinned.addr().get() as u64).unwrap();
    let alias = same.add(1000 * STRIDE);
    call!(device.fill(same, 0, 64, DEFAULT)).unwrap();
    wrong!(device.fill(alias, 0, 64, DEFAULT) => OutOfBounds);
    assert_eq!(device.device_address(pinned), Ok(alias));
    call!(device.fill(alias, 0, 64, DEFAULT)).unwrap();
    wrong!(device.fill(alias, 0, 65, DEFAULT) => OutOfBounds);

    let ordered = call!(device.allocate_on(64, DEFAULT)).unwrap();
    call!(device.fill(ordered, 0, 64, DEFAULT)).unwrap();
    let opened = device.open_token(&IpcToken([1; 64])).unwrap();
    call!(device.fill(opened.add(4096), 0, 64, DEFAULT)).unwrap();
    let after = device.allocate(64).unwrap();
    // The size of opened memory is not known, but it ends before the next known resource.
    wrong!(device.fill(opened, 0, 2 * STRIDE, DEFAULT) => OutOfBounds);
    call!(device.fill(after, 0, 64, DEFAULT)).unwrap();
}

#[test]
fn a_peers_memory_is_believed_in_while_the_peer_is_enabled() {
    let device = subject();
    let ptr = device.allocate(64).unwrap();
    let peers = DevicePtr::new(0x7000_0000_0000).unwrap();
    wrong!(device.copy(ptr, peers, 64, DEFAULT) => OutOfBounds, "no live memory");
    device.enable_peer(Ordinal(1)).unwrap();
    call!(device.copy(ptr, peers, 64, DEFAULT)).unwrap();
    // What is known here is still held to its bounds.
    wrong!(device.copy(ptr, peers, 65, DEFAULT) => OutOfBounds, "at 0x100000 of 64 bytes");
    // Where memory of this device was once, a peer's may be now.
    let gone = device.allocate(64).unwrap();
    call!(device.free(gone)).unwrap();
    call!(device.copy(ptr, gone, 64, DEFAULT)).unwrap();
    device.disable_peer(Ordinal(1)).unwrap();
    wrong!(device.copy(ptr, peers, 64, DEFAULT) => OutOfBounds, "no live memory");
}
