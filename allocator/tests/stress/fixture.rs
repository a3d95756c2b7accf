//! What all workers of a round share: a device, an allocator, streams, pools, and memory to exchange.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cachette::hal::{AnyDevice, Call, Device, ErrorKind, Ordinal};
use cachette::pool::PoolProblem;
use cachette::{Allocator, Buffer, Config, Error, Pool};
use cachette_hal::traced::Traced;
use cachette_hal_host::{HostBackend, HostDevice, Live};
use cachette_hal_testing::Checked;

use crate::bytes::assert_filled;
use crate::kind::Kind;
use crate::trace::{CallLog, Line};

pub(crate) use cachette::Stream;

/// How many streams the workers share.
const STREAMS: usize = 3;

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
    pub(crate) pools: [Pool; 2],
    /// Whether the device is stepped: it runs only when a test steps it.
    pub(crate) stepped: bool,
    exchange: Arc<Mutex<Vec<Held>>>,
    told: Arc<AtomicU64>,
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
        let allocator = Allocator::with_config(Arc::clone(&checked) as AnyDevice, &config);
        let streams = (0..STREAMS).map(|_| allocator.create_stream().expect("nothing fails yet"));
        let fixture = Self {
            kind,
            host,
            checked,
            log,
            streams: streams.collect(),
            pools: [allocator.create_pool(), allocator.create_pool()],
            allocator,
            stepped,
            exchange: Arc::default(),
            told: Arc::default(),
            next: AtomicU64::new(0),
        };
        fixture.watch();
        fixture
    }

    /// Some rounds have a tracker, and a helper that frees memory under pressure.
    fn watch(&self) {
        if self.kind.seed.is_multiple_of(3) {
            let told = Arc::clone(&self.told);
            self.allocator.track(move |_| {
                told.fetch_add(1, Relaxed);
            });
        }
        if self.kind.seed.is_multiple_of(2) {
            let exchange = Arc::clone(&self.exchange);
            self.allocator.on_pressure(move || {
                let spare = exchange.try_lock().ok().and_then(|mut held| held.pop());
                spare.is_some()
            });
        }
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
        let Self { kind, host, checked, log, allocator, streams, pools, .. } = self;
        drop(pools);
        // With `never_block`, one call records events in the streams, and the next one frees what has passed.
        for turn in 0..10 {
            host.synchronize_device().expect("no call fails any more");
            allocator.empty_cache().expect("no call fails any more");
            let pinned = allocator.pinned().empty_cache();
            pinned.expect("no call fails any more");
            if turn >= 2 && allocator.stats().reserved_bytes.all.current == 0 {
                break;
            }
        }
        allocator.release_contents();
        allocator.check().expect("every invariant holds");
        let stats = allocator.stats();
        for (name, array) in stats.arrays() {
            let is_now = array.all.current;
            assert_eq!(is_now, 0, "{name} when nothing is in use");
        }
        let pinned = allocator.pinned().stats();
        // Memory of which the driver could not say whether a graph uses it is kept until the end.
        let kept = log.failed(Call::CaptureStatus);
        let active = pinned.active_requests.current;
        assert!(active <= kept, "{active} pieces of pinned memory in use");
        let kept = kind.withholds();
        assert!(kept || host.physical_bytes() == 0, "{} bytes are left on the device", host.physical_bytes());
        drop((streams, allocator));
        assert_nothing_left(&host, &log);
        let misuses = checked.misuses();
        assert!(misuses.is_empty(), "{misuses:?}");
        Tally { steps: 0, failed: Call::ALL.iter().map(|call| log.failed(*call)).collect(), lines: log.lines() }
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
