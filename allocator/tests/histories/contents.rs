//! No byte of a live allocation is overwritten, in any order in which the device runs its streams.
//!
//! Every allocation is filled with a distinct byte on its stream. Its contents are downloaded in stream order before it
//! is freed, and wherever another stream uses it. At the end every download must contain only that byte.

use cachette::hal::{Call, Device, DevicePtr, ErrorKind, StreamRef};
use cachette::{Allocator, Error};
use cachette_hal_host::{HostConfig, HostDevice, Live};
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

use crate::fixture::{Allocation, KIB, Stream, TestAllocator};
use crate::{ELASTIC_HISTORIES, HISTORIES};

const STREAMS: usize = 3;

#[derive(Clone, Debug)]
enum Step {
    Allocate {
        stream: usize,
        bytes: u64,
    },
    Free(usize),
    /// Another stream reads the allocation, which is recorded.
    Use {
        index: usize,
        stream: usize,
    },
    /// Frees, although another stream still reads.
    ReleaseAfter {
        index: usize,
        stream: usize,
    },
    /// The device runs some of what is queued.
    Run(usize),
    EmptyCache,
    /// The next driver call of a kind fails.
    Fail(Call, ErrorKind),
}

/// Histories on segments of the device's own.
fn steps() -> impl Strategy<Value = Vec<Step>> {
    let sizes = prop_oneof![3 => 1..=8 * KIB, 2 => 100 * KIB..=1100 * KIB];
    steps_of(sizes, &[Call::Allocate, Call::Free])
}

/// Histories on elastic segments: blocks of several chunks, so that chunks come free and move.
fn elastic_steps() -> impl Strategy<Value = Vec<Step>> {
    let sizes = prop_oneof![3 => 1..=8 * KIB, 1 => 100 * KIB..=1100 * KIB, 3 => 1100 * KIB..=3000 * KIB];
    let calls = [Call::Reserve, Call::CreateBacking, Call::DestroyBacking, Call::Map, Call::Unmap, Call::SetAccess];
    steps_of(sizes, &calls)
}

fn steps_of<S: Strategy<Value = u64>>(sizes: S, calls: &[Call]) -> impl Strategy<Value = Vec<Step>> + use<S> {
    let always = [Call::CreateEvent, Call::Record, Call::Poll, Call::Wait, Call::StreamWait];
    let calls = prop::sample::select([calls, &always].concat());
    let kinds = prop::sample::select(vec![ErrorKind::OutOfMemory, ErrorKind::Other]);
    let step = prop_oneof![
        10 => (0..STREAMS, sizes).prop_map(|(stream, bytes)| Step::Allocate { stream, bytes }),
        5 => any::<usize>().prop_map(Step::Free),
        4 => (any::<usize>(), 0..STREAMS).prop_map(|(index, stream)| Step::Use { index, stream }),
        3 => (any::<usize>(), 0..STREAMS)
            .prop_map(|(index, stream)| Step::ReleaseAfter { index, stream }),
        4 => (1..12_usize).prop_map(Step::Run),
        1 => Just(Step::EmptyCache),
        1 => (calls, kinds).prop_map(|(call, kind)| Step::Fail(call, kind)),
    ];
    prop::collection::vec(step, 1..40)
}

/// A download that must contain only one byte value, once the device has run.
struct Download {
    into: Box<[u8]>,
    byte: u8,
}

struct History {
    device: HostDevice,
    allocator: Allocator,
    streams: [Stream; STREAMS],
    live: Vec<(Allocation, usize, u8)>,
    downloads: Vec<Download>,
    next: u8,
}

impl History {
    fn new(seed: u64, config: &str) -> Self {
        let host = HostConfig::default().capacity(48 << 20).stepped(seed);
        let test = TestAllocator::on(host, config);
        let streams = test.streams();
        let TestAllocator { device, allocator, .. } = test;
        Self { device, allocator, streams, live: Vec::new(), downloads: Vec::new(), next: 1 }
    }

    fn run(&mut self, step: &Step) -> Result<(), TestCaseError> {
        match *step {
            Step::Allocate { stream, bytes } => self.allocate(stream, bytes)?,
            Step::Free(index) => {
                if let Some((allocation, stream, byte)) = self.pick(index) {
                    self.download(&allocation, byte, self.streams[stream].handle());
                    drop(allocation);
                }
            }
            Step::Use { index, stream } => {
                if let Some((allocation, home, byte)) = self.pick(index) {
                    self.use_on(&allocation, home, stream, byte);
                    allocation.record_stream(&self.streams[stream]);
                    self.live.push((allocation, home, byte));
                }
            }
            Step::ReleaseAfter { index, stream } => {
                if let Some((allocation, home, byte)) = self.pick(index) {
                    self.use_on(&allocation, home, stream, byte);
                    // A failed driver call is the history's own doing.
                    let _ = allocation.release_after(&[&self.streams[stream]]);
                }
            }
            Step::Run(count) => (0..count).for_each(|_| {
                let _ = self.device.step();
            }),
            Step::EmptyCache => {
                let _ = self.allocator.empty_cache();
            }
            Step::Fail(call, kind) => self.device.fail_next(call, 1, kind),
        }
        self.allocator.check().map_err(TestCaseError::fail)
    }

    fn pick(&mut self, index: usize) -> Option<(Allocation, usize, u8)> {
        if self.live.is_empty() {
            return None;
        }
        let index = index % self.live.len();
        Some(self.live.swap_remove(index))
    }

    fn allocate(&mut self, stream: usize, bytes: u64) -> Result<(), TestCaseError> {
        let allocation = match self.allocator.allocate(bytes, &self.streams[stream]) {
            Ok(allocation) => allocation,
            Err(Error::OutOfMemory(_) | Error::Device(_)) => return Ok(()),
            Err(error) => return Err(TestCaseError::fail(error.to_string())),
        };
        let byte = self.next;
        self.next = self.next.checked_add(1).unwrap_or(1);
        let at = allocation.ptr().unwrap();
        let transfer = self.device.transfer().unwrap();
        // SAFETY: 1. the stream is live. 3. the allocation is live, and freed in stream order.
        unsafe { transfer.fill(at, byte, bytes, self.streams[stream].handle()) }.unwrap();
        self.live.push((allocation, stream, byte));
        Ok(())
    }

    /// Lets `stream` read the allocation after its own stream has come so far.
    fn use_on(&mut self, allocation: &Allocation, home: usize, stream: usize, byte: u8) {
        let order = || -> cachette::hal::Result<()> {
            let event = cachette::hal::owned::OwnedEvent::create(&self.device)?;
            // SAFETY: 1. both streams live as long as the allocator.
            unsafe { event.record_raw(self.streams[home].handle()) }?;
            // SAFETY: as above.
            unsafe { self.device.stream_wait(self.streams[stream].handle(), event.get()) }
        };
        // Without the order the read would be wrong, and not the allocator's fault.
        if order().is_ok() {
            self.download(allocation, byte, self.streams[stream].handle());
        }
    }

    fn download(&mut self, allocation: &Allocation, byte: u8, stream: StreamRef) {
        let bytes = usize::try_from(allocation.requested()).unwrap();
        let mut into = vec![0; bytes].into_boxed_slice();
        let from: DevicePtr = allocation.ptr().unwrap();
        let transfer = self.device.transfer().unwrap();
        // SAFETY: 1. the stream is live. 3. the memory is live until the stream has come so far, which is what
        // is tested. 4. the buffer is kept until the device is idle.
        unsafe { transfer.download(into.as_mut_ptr(), from, bytes, stream) }.unwrap();
        self.downloads.push(Download { into, byte });
    }

    fn finish(mut self) -> Result<(), TestCaseError> {
        self.device.clear_failures();
        for (allocation, stream, byte) in std::mem::take(&mut self.live) {
            self.download(&allocation, byte, self.streams[stream].handle());
            drop(allocation);
        }
        self.device.synchronize_device().unwrap();
        for download in &self.downloads {
            let intact = *download.into == vec![download.byte; download.into.len()];
            prop_assert!(intact, "{} was overwritten", download.byte);
        }
        // What could not be marked while calls failed is marked by the first, and past by the second.
        for _ in 0..2 {
            self.allocator.empty_cache().unwrap();
            self.device.synchronize_device().unwrap();
        }
        self.allocator.empty_cache().unwrap();
        self.allocator.check().map_err(TestCaseError::fail)?;
        let stats = self.allocator.stats();
        prop_assert_eq!(stats.active.all.current, 0);
        prop_assert_eq!(stats.requested_bytes.all.current, 0);
        prop_assert_eq!(stats.reserved_bytes.all.current, 0);
        let device = self.device.clone();
        drop(self);
        prop_assert_eq!(device.physical_bytes(), 0);
        prop_assert_eq!(device.live(), Live::default());
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(HISTORIES / 2))]

    #[test]
    fn no_live_byte_is_ever_overwritten(steps in steps(), seed in any::<u64>()) {
        let mut history = History::new(seed, "");
        for step in &steps {
            history.run(step)?;
        }
        history.finish()?;
    }
}

/// Runs a history on elastic segments.
fn run_elastic(steps: &[Step], seed: u64, settings: &str) -> Result<(), TestCaseError> {
    let mut history = History::new(seed, &format!("expandable_segments:True{settings}"));
    for step in steps {
        history.run(step)?;
    }
    history.finish()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ELASTIC_HISTORIES))]

    #[test]
    fn no_live_byte_is_ever_overwritten_when_chunks_move(steps in elastic_steps(), seed in any::<u64>()) {
        run_elastic(&steps, seed, "")?;
    }

    #[test]
    fn no_live_byte_is_overwritten_when_chunks_move_under_a_limit(
        steps in elastic_steps(),
        seed in any::<u64>(),
    ) {
        run_elastic(&steps, seed, ",memory_limit:10M")?;
    }

    #[test]
    fn no_live_byte_is_ever_overwritten_when_memory_is_compact(
        steps in elastic_steps(),
        seed in any::<u64>(),
    ) {
        run_elastic(&steps, seed, ",elastic_setting:compact,memory_limit:16M,never_block:True")?;
    }
}
