//! Page-locked host memory.

use std::marker::PhantomData;
use std::ptr::NonNull;
use std::slice;

use cachette_hal::{Device, ErrorKind, HostMemory, Result};

use crate::rig::prelude::*;

cases! { host_memory:
    /// Page-locked memory is ordinary memory to the host, over its whole length.
    the_host_reads_what_it_wrote(HostMemory);
    /// No two live page-locked allocations share a byte.
    live_ranges_do_not_overlap(HostMemory);
    /// An upload from page-locked memory and a download into it bring every byte.
    content_goes_to_the_device_and_back(HostMemory, Transfer);
    /// A copy from the device address brings what the host wrote.
    the_device_reads_it_at_its_device_address(HostMemory, Transfer);
    /// A fill at the device address is seen by the host.
    the_device_writes_it_at_its_device_address(HostMemory, Transfer);
    /// The device address of an interior pointer is as far from that of the first.
    an_interior_pointer_has_an_interior_address(HostMemory);
    /// A pointer that is not page-locked has no device address.
    an_unknown_pointer_has_no_device_address(HostMemory);
    /// An allocation of no bytes is an invalid value.
    zero_bytes_is_an_invalid_value(HostMemory);
    /// Memory of the caller's that was registered is read and written by the device.
    registered_memory_is_reached_by_the_device(HostMemory, Transfer);
    /// After unregistering, memory has no device address and can be registered again.
    unregistered_memory_is_unknown_again(HostMemory);
    /// Freeing one page-locked allocation leaves the content of others.
    freeing_keeps_the_neighbours(HostMemory);
}

const BYTES: usize = 64 << 10;

fn the_host_reads_what_it_wrote(on: &Subject) -> Verdict {
    for bytes in [1, 4095, BYTES + 3, 3 << 20] {
        let pinned = on.pinned(bytes)?;
        let content = pattern(7, bytes as u64);
        write_pinned(&pinned, &content);
        same(&read_pinned(&pinned), &content, "page-locked memory").map_err(Stop::failed)?;
    }
    Ok(())
}

fn live_ranges_do_not_overlap(on: &Subject) -> Verdict {
    let live = (1..24).map(|i| on.pinned(i * 1000)).collect::<Result<Vec<_>, _>>()?;
    none_overlap(live.iter().map(|pinned| (pinned.ptr().addr().get() as u64, pinned.bytes() as u64)))
}

fn content_goes_to_the_device_and_back(on: &Subject) -> Verdict {
    let (out, back) = (on.pinned(BYTES)?, on.pinned(BYTES)?);
    let (area, stream) = (on.filled(64 * KIB, 0)?, on.stream()?);
    let content = pattern(3, 64 * KIB);
    write_pinned(&out, &content);
    write_pinned(&back, &vec![0; BYTES]);
    on.upload_pinned(area.span(), &out, &stream)?;
    on.download_into(&back, 0, area.span(), &stream)?;
    stream.synchronize()?;
    same(&read_pinned(&back), &content, "the round trip").map_err(Stop::failed)?;
    on.expect_pattern(area.span(), 3, "what was uploaded")
}

fn the_device_reads_it_at_its_device_address(on: &Subject) -> Verdict {
    let (area, stream, pinned) = (on.filled(64 * KIB, 0)?, on.stream()?, on.pinned(BYTES)?);
    write_pinned(&pinned, &pattern(3, 64 * KIB));
    let transfer = on.device.transfer()?;
    let from = pinned.device_address()?;
    // SAFETY: 1. the stream lives. 3. Both owners live, and wait before they free.
    unsafe { transfer.copy(area.ptr(), from, 64 * KIB, stream.get()) }?;
    stream.synchronize()?;
    on.expect_pattern(area.span(), 3, "what the device read")
}

fn the_device_writes_it_at_its_device_address(on: &Subject) -> Verdict {
    let (stream, pinned) = (on.stream()?, on.pinned(BYTES)?);
    write_pinned(&pinned, &vec![1; BYTES]);
    let transfer = on.device.transfer()?;
    let middle = pinned.device_address()?.add(100);
    // SAFETY: 1. the stream lives. 3. The owner lives, and waits before it frees.
    unsafe { transfer.fill(middle, 9, 1000, stream.get()) }?;
    stream.synchronize()?;
    let mut promised = vec![1; BYTES];
    promised[100..1100].fill(9);
    same(&read_pinned(&pinned), &promised, "what the host sees").map_err(Stop::failed)
}

fn an_interior_pointer_has_an_interior_address(on: &Subject) -> Verdict {
    let pinned = on.pinned(BYTES)?;
    let first = pinned.device_address()?;
    let host = on.device.host_memory()?;
    for offset in [1, 512, 4097, BYTES - 1] {
        // SAFETY: the offset lies inside the owner's memory.
        let interior = unsafe { pinned.ptr().add(offset) };
        let address = host.device_address(interior)?;
        ensure_eq!(address, first.add(offset as u64), "the address {offset} bytes inside")?;
    }
    Ok(())
}

fn an_unknown_pointer_has_no_device_address(on: &Subject) -> Verdict {
    let _pinned = on.pinned(BYTES)?;
    let mut heap = vec![0_u8; 4 * BYTES];
    let unknown = NonNull::from(heap.as_mut_slice()).cast();
    let address = on.device.host_memory()?.device_address(unknown);
    refuse(address, &[ErrorKind::InvalidValue], "the address of unknown memory").map(drop)
}

fn zero_bytes_is_an_invalid_value(on: &Subject) -> Verdict {
    refuse(on.pinned(0), &[ErrorKind::InvalidValue], "a size of zero").map(drop)
}

/// Whole pages of the caller with `content`, and the offset of the first of them.
fn whole_pages(content: &[u8]) -> (Vec<u8>, usize) {
    let mut pages = vec![0; BYTES + (64 << 10)];
    let skip = pages.as_ptr().align_offset(64 << 10);
    pages[skip..skip + BYTES].copy_from_slice(content);
    (pages, skip)
}

/// `BYTES` bytes of the caller, registered while this value lives.
struct Registered<'m> {
    host: &'m dyn HostMemory,
    ptr: NonNull<u8>,
    memory: PhantomData<&'m mut [u8]>,
}

impl<'m> Registered<'m> {
    fn new(on: &'m Subject, memory: &'m mut [u8]) -> Result<Self> {
        let (host, ptr) = (on.device.host_memory()?, NonNull::from(&mut *memory).cast());
        // SAFETY: the range lies inside memory that this value borrows, and its drop unregisters.
        unsafe { host.register(ptr, BYTES) }?;
        Ok(Self { host, ptr, memory: PhantomData })
    }

    /// The content for the host; no queued work writes it.
    fn content(&self) -> &[u8] {
        // SAFETY: the memory is as long, and borrowed as long as this value lives.
        unsafe { slice::from_raw_parts(self.ptr.as_ptr(), BYTES) }
    }
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        // A destructor cannot return an error.
        // SAFETY: 1. this value registered it. 2. Cases synchronise before they drop it.
        let _ = unsafe { self.host.unregister(self.ptr) };
    }
}

fn registered_memory_is_reached_by_the_device(on: &Subject) -> Verdict {
    let (area, stream) = (on.filled(64 * KIB, 0)?, on.stream()?);
    let (mut pages, skip) = whole_pages(&pattern(3, 64 * KIB));
    let registered = Registered::new(on, &mut pages[skip..skip + BYTES])?;
    let address = on.device.host_memory()?.device_address(registered.ptr)?;
    let transfer = on.device.transfer()?;
    // SAFETY: 1. the stream lives. 3. Both ranges live until the stream is synchronised.
    unsafe { transfer.copy(area.ptr(), address, 64 * KIB, stream.get()) }?;
    // SAFETY: 1. the stream lives. 3. The range lives until the stream is synchronised.
    unsafe { transfer.fill(address, 6, 100, stream.get()) }?;
    stream.synchronize()?;
    on.expect_pattern(area.span(), 3, "what the device read")?;
    let mut promised = pattern(3, 64 * KIB);
    promised[..100].fill(6);
    same(registered.content(), &promised, "what the host sees").map_err(Stop::failed)
}

fn unregistered_memory_is_unknown_again(on: &Subject) -> Verdict {
    let host = on.device.host_memory()?;
    let (mut pages, skip) = whole_pages(&vec![0; BYTES]);
    for _ in 0..4 {
        let registered = Registered::new(on, &mut pages[skip..skip + BYTES])?;
        let ptr = registered.ptr;
        host.device_address(ptr)?;
        drop(registered);
        refuse(host.device_address(ptr), &[ErrorKind::InvalidValue], "the address of unregistered memory")?;
    }
    Ok(())
}

fn freeing_keeps_the_neighbours(on: &Subject) -> Verdict {
    let kept = on.pinned(BYTES)?;
    write_pinned(&kept, &pattern(1, 64 * KIB));
    for _ in 0..4 {
        let other = on.pinned(BYTES)?;
        write_pinned(&other, &pattern(2, 64 * KIB));
        other.close()?;
    }
    same(&read_pinned(&kept), &pattern(1, 64 * KIB), "the neighbour").map_err(Stop::failed)
}
