//! The driver's calls, one by one.
//!
//! What Cachette saves is the cost of these. A call that has an opposite is measured together with it. A group of
//! calls that the device lacks is left out, with the reason.

use std::error::Error;
use std::hint::black_box;
use std::time::{Duration, Instant};

use cachette_hal::owned::{OwnedBacking, OwnedEvent, OwnedMemory, OwnedReservation, OwnedStream};
use cachette_hal::{Access, AnyDevice, Device, Missing, Result, Sharing};
use criterion::Criterion;

mod setup;

const MIB: u64 = 1 << 20;
/// Bytes of a fill and of a copy.
const PAGE: usize = 4 << 10;
/// Bytes of page-locked memory.
const PINNED: usize = 64 << 10;
/// Calls queued in a row, so few that no driver's queue is full.
const BATCH: u64 = 256;
const ANSWERS: &str = "the device does what it is asked";

fn main() -> Result<(), Box<dyn Error>> {
    let target = setup::target()?;
    let device = target.device;
    let stream = OwnedStream::create(device.clone())?;
    let mut bench = Bench { criterion: setup::criterion(), backend: target.backend, device, stream };
    bench.memory();
    bench.handles();
    bench.events()?;
    bench.virtual_memory()?;
    bench.stream_ordered()?;
    bench.host_memory()?;
    bench.capture();
    bench.transfer()?;
    bench.host_calls();
    bench.criterion.final_summary();
    Ok(())
}

/// What every measurement needs.
struct Bench {
    criterion: Criterion,
    backend: String,
    device: AnyDevice,
    /// Idle between measurements.
    stream: OwnedStream<AnyDevice>,
}

impl Bench {
    /// The group of calls, if the device has it; says why where it has not.
    fn present<G>(&self, group: Result<G, Missing>) -> Option<G> {
        group.inspect_err(|missing| println!("{}: skipped, {missing}", self.backend)).ok()
    }

    /// Measures a call that leaves no work behind.
    fn call<T>(&mut self, name: &str, mut call: impl FnMut() -> Result<T>) {
        let name = format!("{}/hal/{name}", self.backend);
        self.criterion.bench_function(&name, |bencher| {
            bencher.iter(|| black_box(call().expect(ANSWERS)));
        });
    }

    /// Measures a call that queues work in the stream; the time until the work is done does not count.
    fn queued(&mut self, name: &str, mut call: impl FnMut() -> Result<()>) {
        let name = format!("{}/hal/{name}", self.backend);
        let stream = &self.stream;
        self.criterion.bench_function(&name, |bencher| {
            bencher.iter_custom(|iterations| {
                let mut took = Duration::ZERO;
                let mut left = iterations;
                while left > 0 {
                    let batch = left.min(BATCH);
                    let start = Instant::now();
                    (0..batch).try_for_each(|_| call()).expect(ANSWERS);
                    took += start.elapsed();
                    stream.synchronize().expect(ANSWERS);
                    left -= batch;
                }
                took
            });
        });
    }

    fn memory(&mut self) {
        let device = self.device.clone();
        self.call("memory_info", || device.memory_info());
        for mib in [2, 20] {
            self.call(&format!("allocate + free/{mib}MiB"), || {
                let ptr = device.allocate(mib * MIB)?;
                // SAFETY: 1. it was allocated in the line above. 2. Nothing has used it.
                unsafe { device.free(ptr) }
            });
        }
    }

    fn handles(&mut self) {
        let device = self.device.clone();
        self.call("create_stream + destroy_stream", || {
            let stream = device.create_stream()?;
            // SAFETY: 1. it was created in the line above.
            unsafe { device.destroy_stream(stream) }
        });
        self.call("create_event + destroy_event", || {
            let event = device.create_event()?;
            // SAFETY: 1. it was created in the line above.
            unsafe { device.destroy_event(event) }
        });
    }

    fn events(&mut self) -> Result<()> {
        let device = self.device.clone();
        let owned = OwnedEvent::create(&device)?;
        let (event, stream) = (owned.get(), self.stream.get());
        // SAFETY: 1. the owners of the event and of the stream live longer than the closure.
        self.queued("record", || unsafe { device.record(event, stream) });
        // Each batch was waited for, so the event has passed.
        // SAFETY: 1. as above.
        self.call("poll/passed", || unsafe { device.poll(event) });
        // SAFETY: 1. as above.
        self.call("wait/passed", || unsafe { device.wait(event) });
        // SAFETY: 1. as above.
        self.queued("stream_wait/passed", || unsafe { device.stream_wait(stream, event) });
        // SAFETY: 1. as above.
        self.call("synchronize/idle", || unsafe { device.synchronize(stream) });
        self.call("synchronize_device/idle", || device.synchronize_device());
        owned.close()
    }

    fn virtual_memory(&mut self) -> Result<()> {
        let device = self.device.clone();
        let Some(memory) = self.present(device.virtual_memory()) else { return Ok(()) };
        let bytes = (2 * MIB).next_multiple_of(memory.granularity().recommended);
        let size = format!("{}MiB", bytes / MIB);
        self.call(&format!("reserve + release/{size}"), || {
            let start = memory.reserve(bytes, None)?;
            // SAFETY: 1. it is the reservation of the line above, whole.
            unsafe { memory.release(start, bytes) }
        });
        self.call(&format!("create_backing + destroy_backing/{size}"), || {
            let backing = memory.create_backing(bytes, Sharing::Private, false)?;
            // SAFETY: 1. it was created in the line above.
            unsafe { memory.destroy_backing(backing) }
        });
        let access = [Access::ReadWrite(device.info().ordinal)];
        let backing = OwnedBacking::create(&device, bytes, Sharing::Private)?;
        let reservation = OwnedReservation::reserve(&device, bytes)?;
        let at = reservation.start();
        self.call(&format!("map + set_access + unmap/{size}"), || {
            // SAFETY: 1. the backing's owner lives longer than the closure.
            unsafe { memory.map(at, backing.get()) }?;
            // SAFETY: 2. no right is taken away.
            let granted = unsafe { memory.set_access(at, bytes, &access) };
            // SAFETY: 2. nothing has used it.
            let unmapped = unsafe { memory.unmap(at, bytes) };
            granted.and(unmapped)
        });
        reservation.close()?;
        backing.close()
    }

    fn stream_ordered(&mut self) -> Result<()> {
        let device = self.device.clone();
        let Some(pool) = self.present(device.stream_ordered()) else { return Ok(()) };
        let stream = self.stream.get();
        for mib in [2, 20] {
            self.queued(&format!("allocate_on + free_on/{mib}MiB"), || {
                // SAFETY: 1. the stream's owner is `self`.
                let ptr = unsafe { pool.allocate_on(mib * MIB, stream) }?;
                // SAFETY: 1. it was allocated in the line above. 2. Nothing has used it.
                unsafe { pool.free_on(ptr, stream) }
            });
        }
        pool.trim(0)
    }

    fn host_memory(&mut self) -> Result<()> {
        let device = self.device.clone();
        let Some(memory) = self.present(device.host_memory()) else { return Ok(()) };
        self.call("allocate_pinned + free_pinned/64KiB", || {
            let ptr = memory.allocate_pinned(PINNED)?;
            // SAFETY: 1. it was allocated in the line above. 2. Nothing has used it.
            unsafe { memory.free_pinned(ptr) }
        });
        let ptr = memory.allocate_pinned(PINNED)?;
        self.call("device_address", || memory.device_address(ptr));
        // SAFETY: 1. it was allocated above. 2. Nothing has used it.
        unsafe { memory.free_pinned(ptr) }
    }

    fn capture(&mut self) {
        let device = self.device.clone();
        let Some(capture) = self.present(device.capture()) else { return };
        let stream = self.stream.get();
        // SAFETY: 1. the stream's owner is `self`.
        self.call("capture_status/idle", || unsafe { capture.capture_status(stream) });
    }

    fn transfer(&mut self) -> Result<()> {
        let device = self.device.clone();
        let Some(transfer) = self.present(device.transfer()) else { return Ok(()) };
        // Before the memory, which waits for the device when it goes: work never outlives what it names.
        let mut host = vec![0_u8; PAGE];
        let bytes = PAGE as u64;
        let from = OwnedMemory::allocate(&device, bytes)?;
        let to = OwnedMemory::allocate(&device, bytes)?;
        let stream = self.stream.get();
        // SAFETY: 1. the stream's owner is `self`. 3. The owner of the memory waits for the device.
        self.queued("fill/4KiB", || unsafe { transfer.fill(from.ptr(), 7, bytes, stream) });
        // SAFETY: 1. and 3. as above; the two owners have a range each.
        self.queued("copy/4KiB", || unsafe { transfer.copy(to.ptr(), from.ptr(), bytes, stream) });
        // SAFETY: 1. and 3. as above. 4. No thread writes `host`, and it is dropped after the memory.
        self.queued("upload/4KiB", || unsafe { transfer.upload(to.ptr(), host.as_ptr(), PAGE, stream) });
        // SAFETY: 1. and 3. as above. 4. No other thread uses `host`, and it is dropped after the memory.
        self.queued("download/4KiB", || unsafe { transfer.download(host.as_mut_ptr(), from.ptr(), PAGE, stream) });
        to.close()?;
        Ok(from.close()?)
    }

    fn host_calls(&mut self) {
        let device = self.device.clone();
        let Some(calls) = self.present(device.host_calls()) else { return };
        let stream = self.stream.get();
        // SAFETY: 1. the stream's owner is `self`.
        self.queued("call_host", || unsafe { calls.call_host(stream, Box::new(|| ())) });
    }
}
