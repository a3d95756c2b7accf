//! What all workers of a round share: a device, an allocator, streams, pools, and memory to exchange.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use cachette::hal::{AnyDevice, Call, Device, DevicePtr, ErrorKind, Ordinal};
use cachette::pool::PoolProblem;
use cachette::source::{AllocContext, FunctionSource, SourceError};
use cachette::{Allocator, Buffer, Config, Error, Pool, PoolOptions};
use cachette_hal::traced::Traced;
use cachette_hal_host::{HostBackend, HostDevice, Live};
use cachette_hal_testing::Checked;

use crate::bytes::assert_filled;
use crate::kind::{Extra, Kind};
use crate::trace::{CallLog, Line};

pub(crate) use cachette::Stream;

/// How many streams the workers share.
const STREAMS: usize = 5;
/// Streams of the second allocator.
const SECOND_STREAMS: usize = 2;
/// A round that has not returned its memory after this time hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a tracker panics with.
pub(crate) struct SinkPanic;

/// A buffer that holds one byte everywhere.
#[derive(Debug)]
pub(crate) struct Held {
    pub(crate) buffer: Buffer<u8>,
    pub(crate) byte: u8,
}

/// What all workers of a round share.
pub(crate) struct Fixture {
    pub(crate) kind: Kind,
    pub(crate) host: HostDevice,
    /// The device of the allocator: it knows every handle, and tells of every call.
    checked: Arc<Checked<Traced<HostDevice>>>,
    pub(crate) log: Arc<CallLog>,
    pub(crate) allocator: Allocator,
    pub(crate) streams: Vec<Stream>,
    /// Another allocator on the same device.
    pub(crate) second: Allocator,
    pub(crate) second_streams: Vec<Stream>,
    /// A stream of a device that may read the memory of both allocators.
    peer: Option<(HostDevice, Stream)>,
    /// The last one has a source.
    pub(crate) pools: [Pool; 3],
    /// Whether the device is stepped: it runs only when a test steps it.
    pub(crate) stepped: bool,
    exchange: Arc<Mutex<Vec<Held>>>,
    /// So many events until the tracker panics; it does not if this is zero.
    pub(crate) armed: Arc<AtomicU64>,
    next: AtomicU64,
}

/// What a round has done.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) steps: u64,
    /// Failed calls, by their kind.
    pub(crate) failed: Vec<u64>,
    pub(crate) lines: Vec<Line>,
}

impl Fixture {
    /// A device whose streams have threads, or a stepped device that records every call.
    pub(crate) fn new(kind: Kind, stepped: bool) -> Self {
        let host = kind.host();
        let host = if stepped { host.stepped(kind.seed) } else { host };
        let backend = HostBackend::new(host).expect("such a device can be made");
        let host = backend.device(Ordinal(0)).expect("there is a first device");
        let log = Arc::new(CallLog::new(stepped));
        let checked = Arc::new(Checked::new(Traced::new(host.clone(), Arc::clone(&log))));
        let config: Config = kind.setting.config.parse().expect("it is right");
        let [allocator, second] = [(); 2].map(|()| Allocator::with_config(Arc::clone(&checked) as AnyDevice, &config));
        let streams = |allocator: &Allocator, count| {
            (0..count).map(|_| allocator.create_stream().expect("nothing fails yet")).collect()
        };
        let source = PoolOptions::new().source(Arc::new(source(&checked)));
        let source = allocator.create_pool_with(source).expect("nothing fails yet");
        let peer = kind.has(Extra::Peer).then(|| {
            let peer = backend.device(Ordinal(1)).expect("there is a second device");
            for allocator in [&allocator, &second] {
                allocator.allow_peer(&peer).expect("nothing fails yet");
            }
            let stream = Allocator::new(Arc::new(peer.clone()) as AnyDevice).create_stream();
            (peer, stream.expect("nothing fails yet"))
        });
        let fixture = Self {
            kind,
            host,
            checked,
            log,
            streams: streams(&allocator, STREAMS),
            second_streams: streams(&second, SECOND_STREAMS),
            pools: [allocator.create_pool(), allocator.create_pool(), source],
            allocator,
            second,
            peer,
            stepped,
            exchange: Arc::default(),
            armed: Arc::default(),
            next: AtomicU64::new(0),
        };
        fixture.watch();
        fixture
    }

    /// Some rounds have a tracker that panics, and a helper that frees memory under pressure.
    fn watch(&self) {
        if self.kind.has(Extra::Tracker) {
            let armed = Arc::clone(&self.armed);
            self.allocator.track(move |_| {
                // A second panic of a thread would end the process.
                let left = if thread::panicking() { None } else { Some(&armed) };
                let left = left.and_then(|left| left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).ok());
                if left == Some(1) {
                    resume_unwind(Box::new(SinkPanic));
                }
            });
        }
        if self.kind.has(Extra::Reliever) {
            let exchange = Arc::clone(&self.exchange);
            self.allocator.on_pressure(move || {
                let spare = exchange.try_lock().ok().and_then(|mut held| held.pop());
                spare.is_some()
            });
        }
    }

    /// Every stream that may use memory of another one.
    pub(crate) fn users(&self) -> Vec<&Stream> {
        let peer = self.peer.iter().map(|(_, stream)| stream);
        self.streams.iter().chain(&self.second_streams).chain(peer).collect()
    }

    /// The allocator of one of the streams.
    pub(crate) fn allocator_of(&self, stream: &Stream) -> &Allocator {
        let is_second = self.second_streams.iter().any(|second| second.handle() == stream.handle());
        if is_second { &self.second } else { &self.allocator }
    }

    /// Memory that any worker may take.
    pub(crate) fn exchange(&self) -> MutexGuard<'_, Vec<Held>> {
        self.exchange.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A byte that the last 250 pieces of memory were not filled with.
    pub(crate) fn byte(&self) -> u8 {
        let next = self.next.fetch_add(1, Relaxed) % 251 + 1;
        u8::try_from(next).expect("it is at most 251")
    }

    /// Whether a request may fail like this.
    pub(crate) fn allows(&self, error: &Error) -> bool {
        match error {
            Error::OutOfMemory(_) | Error::OutOfPinnedMemory { .. } => true,
            // Past the cache nothing is tried to make room.
            Error::Device(error) if error.kind() == ErrorKind::OutOfMemory => {
                self.kind.fails || self.kind.skips_cache()
            }
            Error::Device(error) => self.allows_failure(error.kind()),
            Error::Source(_) => self.kind.fails,
            Error::Pool { why, .. } => matches!(
                why,
                PoolProblem::Asleep
                    | PoolProblem::NotElastic
                    | PoolProblem::Captured
                    | PoolProblem::NoMemory { .. }
                    | PoolProblem::NoHostMemory
                    | PoolProblem::Waiting { .. }
            ),
            _ => false,
        }
    }

    /// Whether a call of the driver may fail like this.
    pub(crate) fn allows_failure(&self, kind: ErrorKind) -> bool {
        let breaks = matches!(kind, ErrorKind::CaptureForbids | ErrorKind::CaptureBroken);
        let injected = matches!(kind, ErrorKind::OutOfMemory | ErrorKind::Other);
        // A wait for all streams may meet a capture that another thread begins at that moment; then both fail.
        (breaks && !self.stepped) || (injected && self.kind.fails)
    }

    /// What came of a request; `None` if it failed in a way that may be.
    #[track_caller]
    pub(crate) fn done<T>(&self, outcome: Result<T, impl Into<Error>>) -> Option<T> {
        match outcome.map_err(Into::into) {
            Ok(done) => Some(done),
            Err(error) => {
                assert!(self.allows(&error), "{error}");
                None
            }
        }
    }

    /// Ends the round: nothing is in use, every figure is zero, and the device has everything back.
    pub(crate) fn finish(self) -> Tally {
        let held = std::mem::take(&mut *self.exchange());
        for item in held {
            let read = item.buffer.read().expect("no call fails any more");
            assert_filled(&read, item.byte, "exchanged memory");
        }
        let Self { kind, host, checked, log, allocator, second, streams, second_streams, pools, peer, .. } = self;
        drop(pools);
        for allocator in [&allocator, &second] {
            assert_empty(allocator, &host, kind.has(Extra::Sharing));
        }
        let pinned = allocator.pinned().stats();
        // Memory of which the driver could not say whether a graph uses it is kept until the end.
        let kept = log.failed(Call::CaptureStatus);
        let active = pinned.active_requests.current;
        assert!(active <= kept, "{active} pieces of pinned memory in use");
        let kept = kind.withholds();
        assert!(kept || host.physical_bytes() == 0, "{} bytes are left on the device", host.physical_bytes());
        drop((streams, allocator, second_streams, second));
        assert_nothing_left(&host, &log);
        if let Some((peer, stream)) = peer {
            drop(stream);
            assert_eq!(peer.live(), Live::default(), "left on the second device");
        }
        let misuses = checked.misuses();
        assert!(misuses.is_empty(), "{misuses:?}");
        Tally { steps: 0, failed: Call::ALL.iter().map(|call| log.failed(*call)).collect(), lines: log.lines() }
    }
}

/// A source that asks the device.
fn source(device: &Arc<Checked<Traced<HostDevice>>>) -> FunctionSource {
    let (allocates, returns) = (Arc::clone(device), Arc::clone(device));
    let allocate = move |bytes: u64, _: &AllocContext| {
        allocates.allocate(bytes).map_err(|error| match error.kind() {
            ErrorKind::OutOfMemory => SourceError::out_of_memory("the device has none"),
            _ => SourceError::other(error.to_string(), "none"),
        })
    };
    let free = move |ptr: DevicePtr, _: u64, _: &AllocContext| {
        // SAFETY: 1. 2. the allocator promises both of every free.
        let freed = unsafe { returns.free(ptr) };
        freed.map_err(|error| SourceError::other(error.to_string(), "none"))
    };
    // SAFETY: 1. 2. 3. the device keeps the same promises.
    unsafe { FunctionSource::new("the device", allocate, free) }
}

/// The allocator returns everything, and every figure is zero.
fn assert_empty(allocator: &Allocator, host: &HostDevice, is_shared: bool) {
    let begun = Instant::now();
    // With `never_block`, one call records events in the streams, and the next one frees what has passed. The thread
    // that serves shared memory may be about to free some.
    for turn in 0.. {
        host.synchronize_device().expect("no call fails any more");
        allocator.empty_cache().expect("no call fails any more");
        let pinned = allocator.pinned().empty_cache();
        pinned.expect("no call fails any more");
        let stats = allocator.stats();
        let is_empty = stats.arrays().iter().all(|(_, array)| array.all.current == 0);
        if (turn >= 2 && is_empty) || (turn >= 10 && (!is_shared || begun.elapsed() > PATIENCE)) {
            break;
        }
        thread::yield_now();
    }
    allocator.release_contents();
    allocator.check().expect("every invariant holds");
    let stats = allocator.stats();
    for (name, array) in stats.arrays() {
        let is_now = array.all.current;
        assert_eq!(is_now, 0, "{name} when nothing is in use");
    }
}

/// The device has everything back, but for handles and host memory whose last call failed.
fn assert_nothing_left(host: &HostDevice, log: &CallLog) {
    let mut live = host.live();
    let excuse = |left: &mut usize, call: Call| {
        let failed = usize::try_from(log.failed(call)).expect("it is small");
        *left = left.saturating_sub(failed);
    };
    excuse(&mut live.streams, Call::DestroyStream);
    excuse(&mut live.events, Call::DestroyEvent);
    excuse(&mut live.graphs, Call::DestroyGraph);
    // Addresses that the driver did not take back are lost; they cost no memory.
    excuse(&mut live.reservations, Call::Release);
    // Host memory that the driver still knows must stay.
    excuse(&mut live.pinned, Call::Unregister);
    assert_eq!(live, Live::default(), "left on the device");
    assert_eq!(host.physical_bytes(), 0, "left on the device");
}
