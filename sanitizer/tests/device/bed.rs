//! An allocator on a stepped host device, with and without the sanitizer.

use std::cell::Cell;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use cachette::{Allocation, Allocator, Config, Stream};
use cachette_hal::{AnyDevice, Device, DevicePtr, Event, Ordinal, Use};
use cachette_hal_host::{HostBackend, HostConfig, HostDevice};
use cachette_sanitizer::{DeviceSanitizer, Finding, Options};

pub(crate) const MIB: u64 = 1 << 20;
/// The schedules in which a program runs.
const SEEDS: Range<u64> = 0..16;
/// The schedules that are tried until one shows the bug; some need many.
const MANY_SEEDS: Range<u64> = 0..400;

/// A program: it does something with a bed, with its bug or without it, and says whether contents were wrong.
pub(crate) type Program = fn(&Bed, fixed: bool) -> bool;

/// Three streams of an allocator.
pub(crate) struct Bed {
    pub(crate) host: HostDevice,
    pub(crate) device: AnyDevice,
    pub(crate) allocator: Allocator,
    pub(crate) a: Stream,
    pub(crate) b: Stream,
    pub(crate) c: Stream,
    sanitizer: Option<DeviceSanitizer>,
    faulted: Cell<bool>,
}

/// A device without a schedule, and the sanitizer around it.
pub(crate) fn sanitized(sanitizer: &DeviceSanitizer) -> AnyDevice {
    Arc::new(sanitizer.around(HostBackend::new(HostConfig::default()).unwrap().device(Ordinal(0)).unwrap()))
}

fn stepped_device(seed: u64) -> HostDevice {
    let config = HostConfig::default().capacity(64 * MIB).stepped(seed).free_without_waiting();
    HostBackend::new(config).unwrap().device(Ordinal(0)).unwrap()
}

impl Bed {
    fn new(host: HostDevice, device: AnyDevice, sanitizer: Option<DeviceSanitizer>, config: &str) -> Self {
        // The planted bugs reuse blocks of direct segments, unless they say otherwise.
        let mut direct = Config::builder().expandable_segments(false).build().unwrap();
        direct.update(config).unwrap();
        let allocator = Allocator::with_config(device.clone(), &direct);
        if let Some(sanitizer) = &sanitizer {
            sanitizer.track(&allocator);
        }
        let [a, b, c] = [(); 3].map(|()| allocator.create_stream().unwrap());
        Self { host, device, allocator, a, b, c, sanitizer, faulted: Cell::new(false) }
    }

    pub(crate) fn allocate(&self, stream: &Stream) -> Allocation {
        self.allocate_bytes(2 * MIB, stream)
    }

    pub(crate) fn allocate_bytes(&self, bytes: u64, stream: &Stream) -> Allocation {
        self.allocator.allocate(bytes, stream).unwrap()
    }

    /// Memory that is never freed early, for results.
    pub(crate) fn result(&self) -> Allocation {
        let memory = self.allocate_bytes(MIB, &self.c);
        self.fill(&self.c, &memory, 0);
        self.sync(&self.c);
        memory
    }

    pub(crate) fn fill(&self, stream: &Stream, memory: &Allocation, byte: u8) {
        let (transfer, at) = (self.device.transfer().unwrap(), memory.ptr().unwrap());
        // SAFETY: 1. the stream lives. 3. the memory is allocated; programs with a bug may break it.
        self.note(unsafe { transfer.fill(at, byte, memory.requested(), stream.handle()) });
    }

    /// Copies the first MiB.
    pub(crate) fn copy(&self, stream: &Stream, to: &Allocation, from: &Allocation) {
        self.copy_at(stream, to, from.ptr().unwrap());
    }

    pub(crate) fn copy_at(&self, stream: &Stream, to: &Allocation, from: DevicePtr) {
        let (transfer, to) = (self.device.transfer().unwrap(), to.ptr().unwrap());
        // SAFETY: 1. the stream lives. 3. the addresses are mapped; programs with a bug may break it.
        self.note(unsafe { transfer.copy(to, from, MIB, stream.handle()) });
    }

    pub(crate) fn upload(&self, stream: &Stream, to: &Allocation, from: NonNull<u8>) {
        let (transfer, to) = (self.device.transfer().unwrap(), to.ptr().unwrap());
        // SAFETY: 1. the stream lives. 3. 4. both live until the end of the program.
        self.note(unsafe { transfer.upload(to, from.as_ptr(), 1 << 20, stream.handle()) });
    }

    pub(crate) fn download(&self, stream: &Stream, to: NonNull<u8>, from: &Allocation) {
        let (transfer, from) = (self.device.transfer().unwrap(), from.ptr().unwrap());
        // SAFETY: 1. the stream lives. 3. 4. both live until the end of the program.
        self.note(unsafe { transfer.download(to.as_ptr(), from, 1 << 20, stream.handle()) });
    }

    pub(crate) fn pinned(&self) -> NonNull<u8> {
        self.device.host_memory().unwrap().allocate_pinned(1 << 20).unwrap()
    }

    /// Sets pinned memory from the host.
    pub(crate) fn host_fill(&self, at: NonNull<u8>, byte: u8) {
        if let Some(sanitizer) = &self.sanitizer {
            sanitizer.host_uses(at.as_ptr(), Use::Write);
        }
        // SAFETY: it has one MiB. The stepped device runs only inside calls, so nothing else touches it now.
        unsafe { at.as_ptr().write_bytes(byte, 1 << 20) };
    }

    /// The first byte of pinned memory, read by the host.
    pub(crate) fn host_read(&self, at: NonNull<u8>) -> u8 {
        if let Some(sanitizer) = &self.sanitizer {
            sanitizer.host_uses(at.as_ptr(), Use::Read);
        }
        // SAFETY: as above.
        unsafe { at.as_ptr().read() }
    }

    /// An event that lives as long as the device.
    pub(crate) fn event(&self) -> Event {
        self.device.create_event().unwrap()
    }

    /// Makes `stream` wait for all work that is queued in `other` now.
    pub(crate) fn wait_stream(&self, stream: &Stream, other: &Stream) {
        let event = self.event();
        self.record(&event, other);
        self.wait(stream, &event);
    }

    pub(crate) fn record(&self, event: &Event, stream: &Stream) {
        // SAFETY: 1. both live.
        self.note(unsafe { self.device.record(event, stream.handle()) });
    }

    pub(crate) fn wait(&self, stream: &Stream, event: &Event) {
        // SAFETY: 1. both live.
        self.note(unsafe { self.device.stream_wait(stream.handle(), event) });
    }

    pub(crate) fn sync(&self, stream: &Stream) {
        self.note(stream.synchronize());
    }

    /// Runs a few steps, as time passes.
    pub(crate) fn pass(&self) {
        for _ in 0..2 {
            let _ = self.host.step();
        }
    }

    /// Returns whether the first byte differs from `expected`, after all work.
    pub(crate) fn is_wrong(&self, memory: &Allocation, expected: u8) -> bool {
        self.host.run_until_idle();
        let (transfer, mut byte) = (self.device.transfer().unwrap(), 0_u8);
        // SAFETY: 1. 3. 4. all of them live until the wait below.
        let read = unsafe { transfer.download(&raw mut byte, memory.ptr().unwrap(), 1, self.a.handle()) };
        self.note(read);
        self.sync(&self.a);
        byte != expected
    }

    /// Keeps in mind that a call failed: the device faulted.
    pub(crate) fn note(&self, outcome: cachette_hal::Result<()>) {
        self.faulted.set(self.faulted.get() | outcome.is_err());
    }
}

/// Runs a program with its bug, without the sanitizer, until contents are wrong or the device faults in a schedule.
pub(crate) fn is_ever_corrupted(program: Program, config: &str) -> bool {
    MANY_SEEDS.into_iter().any(|seed| is_corrupted(program, false, config, seed))
}

/// Runs a correct program without the sanitizer. Returns whether contents are right and nothing faults in every
/// schedule.
pub(crate) fn is_always_right(program: Program, config: &str) -> bool {
    !SEEDS.into_iter().any(|seed| is_corrupted(program, true, config, seed))
}

fn is_corrupted(program: Program, fixed: bool, config: &str, seed: u64) -> bool {
    let host = stepped_device(seed);
    let bed = Bed::new(host.clone(), Arc::new(host), None, config);
    program(&bed, fixed) | bed.faulted.get()
}

/// Runs a program with the sanitizer, in one schedule after the other, and returns the findings of each.
pub(crate) fn findings(program: Program, fixed: bool, config: &str) -> Vec<Vec<Finding>> {
    SEEDS
        .map(|seed| {
            let (host, sanitizer) = (stepped_device(seed), DeviceSanitizer::new(Options::default()));
            let device = Arc::new(sanitizer.around(host.clone()));
            let bed = Bed::new(host, device, Some(sanitizer.clone()), config);
            program(&bed, fixed);
            sanitizer.findings()
        })
        .collect()
}
