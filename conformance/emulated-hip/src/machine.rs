//! All that the library knows: devices, and what was made of them.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::{c_int, c_uint};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, MutexGuard, OnceLock};
use std::{env, process};

use cachette_emulated::Recordings;
use cachette_hal::{AnyDevice, Backend, Guarded, Ordinal, StreamRef};
use cachette_hal_hip::status::{CONTEXT_IS_DESTROYED, DEINITIALIZED, INVALID_HANDLE, NO_DEVICE};
use cachette_hal_hip::types::{EventHandle, Status, StreamHandle};
use cachette_hal_host::{HostBackend, HostConfig};

use crate::abi::{Answer, CURRENT, crash, refuse_if};
use crate::captures::Captures;
use crate::personality::Personality;
use crate::pools::Pools;
use crate::visible::shown;
use crate::vm_state::{PAGE, VmState};

/// HIP's other name for the default stream; passing it crashes.
const LEGACY_STREAM: StreamHandle = 1;
/// The default stream of the calling thread.
const PER_THREAD_STREAM: StreamHandle = 2;
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// By `hipMalloc`.
    Direct,
    /// By `hipMallocFromPoolAsync`.
    Pooled,
    /// By `hipHostMalloc` or `hipHostRegister`.
    Host,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Allocation {
    pub(crate) bytes: u64,
    pub(crate) device: usize,
    pub(crate) kind: Kind,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) allocations: BTreeMap<u64, Allocation>,
    pub(crate) streams: HashMap<StreamHandle, usize>,
    /// The streams that were destroyed, unless their handle was given out again.
    pub(crate) destroyed: HashSet<StreamHandle>,
    pub(crate) stream_kinds: HashMap<StreamHandle, (c_uint, c_int)>,
    /// Each with its device, and with a lock that a thread holds while it waits for the event.
    pub(crate) events: HashMap<EventHandle, (usize, Arc<Guarded<()>>)>,
    /// The stream of the last record of each event.
    pub(crate) recorded_in: HashMap<EventHandle, StreamHandle>,
    pub(crate) captures: Captures,
    pub(crate) recordings: Recordings,
    /// Pairs of a device and the peer it may reach.
    pub(crate) peers: HashSet<(usize, usize)>,
    pub(crate) tokens: HashSet<[u8; 64]>,
    /// Memory of other processes that is open.
    pub(crate) opened: HashSet<u64>,
    pub(crate) vm: VmState,
    pub(crate) pools: Pools,
    handles: usize,
}

impl State {
    /// A handle that was never given out.
    pub(crate) fn handle(&mut self) -> usize {
        self.handles += 1;
        0x4000_0000 + 16 * self.handles
    }

    /// The memory that an address lies in.
    pub(crate) fn allocation_of(&self, address: u64) -> Option<(u64, Allocation)> {
        let (start, found) = self.allocations.range(..=address).next_back()?;
        (address - start < found.bytes).then_some((*start, *found))
    }
}

#[derive(Debug)]
pub(crate) struct Machine {
    /// The process that made it. A forked child has none, and may have inherited locks that no thread holds.
    process: u32,
    pub(crate) personality: Personality,
    pub(crate) devices: Vec<AnyDevice>,
    state: Guarded<State>,
    /// Calls left before the devices vanish; `None` if they stay.
    calls_left: Option<AtomicI64>,
    /// Maps that fail inside.
    pub(crate) maps: Refusals,
    /// Rights that the kernel refuses.
    pub(crate) rights: Refusals,
    /// Questions about an address that are not answered.
    pub(crate) ranges: Refusals,
    /// Unmaps and releases of addresses that the kernel refuses.
    pub(crate) ends: Refusals,
    /// Whether the pool's memory is not there.
    pub(crate) has_bad_pool: bool,
    /// Whether no call takes a capture that has ended without a graph off its streams.
    pub(crate) captures_stay: bool,
}

/// What the kernel refuses: of every n of a kind the last ones, or nothing.
#[derive(Debug)]
pub(crate) struct Refusals {
    every: Option<i64>,
    /// How many of them in a row.
    run: i64,
    so_far: AtomicI64,
}

impl Refusals {
    /// Reads `n`, or `n:k` for `k` in a row.
    fn every(variable: &str) -> Self {
        let text = env::var(variable).unwrap_or_default();
        let (every, run) = text.split_once(':').unwrap_or((&text, "1"));
        let every = every.parse().ok().filter(|every| *every > 0);
        Self { every, run: run.parse().unwrap_or(1), so_far: AtomicI64::new(0) }
    }

    pub(crate) fn refuses(&self) -> bool {
        // Relaxed: it only counts.
        self.every.is_some_and(|every| self.so_far.fetch_add(1, Ordering::Relaxed) % every >= every - self.run)
    }
}

unsafe extern "C" {
    fn atexit(function: extern "C" fn()) -> c_int;
}

/// Whether the process is leaving, and the library with it.
static LEAVING: AtomicBool = AtomicBool::new(false);

extern "C" fn leave() {
    LEAVING.store(true, Ordering::Release);
}

/// The machine, made when it is first asked for; without devices there is none.
pub(crate) fn machine() -> Answer<&'static Machine> {
    static MACHINE: OnceLock<Option<Machine>> = OnceLock::new();
    // Acquire: pairs with the release in `leave`, though the flag publishes nothing but itself.
    refuse_if(LEAVING.load(Ordering::Acquire), DEINITIALIZED)?;
    let machine = MACHINE.get_or_init(Machine::new).as_ref().ok_or(NO_DEVICE)?;
    refuse_if(machine.process != process::id(), CONTEXT_IS_DESTROYED)?;
    let left = machine.calls_left.as_ref();
    // Relaxed: it only counts.
    refuse_if(left.is_some_and(|left| left.fetch_sub(1, Ordering::Relaxed) <= 0), NO_DEVICE)?;
    Ok(machine)
}

impl Machine {
    fn new() -> Option<Self> {
        let all = devices()?;
        let shown = shown(all.len(), is_over_cuda());
        let devices: Vec<_> = shown.into_iter().map(|position| all[position].clone()).collect();
        if devices.is_empty() {
            return None;
        }
        // SAFETY: the handler sets a flag, and nothing else.
        unsafe { atexit(leave) };
        let personality = Personality::chosen();
        let is_bad = number("CACHETTE_EMULATED_BAD_POOL") == Some(1);
        Some(Self {
            process: process::id(),
            personality,
            devices,
            captures_stay: number("CACHETTE_EMULATED_CAPTURES_STAY") == Some(1),
            has_bad_pool: is_bad && personality.has_mapped_pool(),
            state: Guarded::default(),
            maps: Refusals::every("CACHETTE_EMULATED_REFUSED_MAPS"),
            rights: Refusals::every("CACHETTE_EMULATED_REFUSED_RIGHTS"),
            ranges: Refusals::every("CACHETTE_EMULATED_REFUSED_RANGES"),
            ends: Refusals::every("CACHETTE_EMULATED_REFUSED_ENDS"),
            calls_left: number("CACHETTE_EMULATED_LOST_AFTER").map(AtomicI64::new),
        })
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Gives memory back that begins at an address and is of the right kind, or fails with `unknown`.
    ///
    /// It leaves the table before `free` is called, since another thread may get the address at once. After a failure
    /// it is there again.
    pub(crate) fn give_back(
        &self,
        address: u64,
        is_right: impl Fn(Kind) -> bool,
        unknown: Status,
        free: impl FnOnce(Allocation) -> Answer,
    ) -> Answer {
        let found = {
            let mut state = self.state();
            let found = state.allocations.get(&address).copied();
            let found = found.filter(|found| is_right(found.kind)).ok_or(unknown)?;
            state.allocations.remove(&address);
            state.pools.freed(address);
            found
        };
        let freed = free(found);
        if freed.is_err() {
            self.state().allocations.insert(address, found);
        }
        freed
    }

    /// The calling thread's device, with its position.
    pub(crate) fn current(&self) -> (usize, &AnyDevice) {
        let position = CURRENT.get().min(self.devices.len() - 1);
        (position, &self.devices[position])
    }

    /// The device of a stream that takes work, with its position.
    pub(crate) fn stream(&self, stream: StreamHandle) -> Answer<(usize, &AnyDevice, StreamRef)> {
        self.state().captures.check_work(stream)?;
        self.used_stream(stream)
    }

    /// The device of a stream, with its position, for a call that crashes where a destroyed one is not noticed.
    pub(crate) fn used_stream(&self, stream: StreamHandle) -> Answer<(usize, &AnyDevice, StreamRef)> {
        if self.misses(stream) {
            crash("a destroyed stream is used");
        }
        self.any_stream(stream)
    }

    /// Whether the stream was destroyed, and this version does not notice.
    pub(crate) fn misses(&self, stream: StreamHandle) -> bool {
        self.personality.misses_destroyed_streams() && self.state().destroyed.contains(&stream)
    }

    /// The device of a stream, with its position; that of a default stream is the calling thread's.
    pub(crate) fn any_stream(&self, stream: StreamHandle) -> Answer<(usize, &AnyDevice, StreamRef)> {
        match stream {
            0 | PER_THREAD_STREAM => {
                let (position, device) = self.current();
                Ok((position, device, StreamRef::DEFAULT))
            }
            LEGACY_STREAM => crash("hipStreamLegacy (1) was passed as a stream"),
            stream => {
                let position = self.state().streams.get(&stream).copied().ok_or(CONTEXT_IS_DESTROYED)?;
                Ok((position, &self.devices[position], StreamRef::from_raw(stream)))
            }
        }
    }

    /// The device of an event, with its position.
    pub(crate) fn event(&self, event: EventHandle) -> Answer<(usize, &AnyDevice)> {
        let position = self.state().events.get(&event).map(|(position, _)| *position).ok_or(INVALID_HANDLE)?;
        Ok((position, &self.devices[position]))
    }

    pub(crate) fn event_lock(&self, event: EventHandle) -> Answer<Arc<Guarded<()>>> {
        self.state().events.get(&event).cloned().map(|(_, lock)| lock).ok_or(INVALID_HANDLE)
    }
}

/// The devices beneath, shown or not; `None` if there are none.
fn devices() -> Option<Vec<AnyDevice>> {
    let backend = beneath()?;
    let count = backend.device_count().ok()?;
    let open = |position| backend.open(Ordinal(position)).ok();
    (0..count).map(open).collect()
}

fn number(variable: &str) -> Option<i64> {
    env::var(variable).ok()?.parse().ok()
}

fn beneath() -> Option<Box<dyn Backend>> {
    if is_over_cuda() { over_cuda() } else { over_host() }
}

fn is_over_cuda() -> bool {
    env::var("CACHETTE_EMULATED_OVER").is_ok_and(|over| over == "cuda")
}

#[cfg(feature = "over-cuda")]
fn over_cuda() -> Option<Box<dyn Backend>> {
    Some(Box::new(cachette_hal_cuda::CudaBackend::load().ok()?))
}

#[cfg(not(feature = "over-cuda"))]
fn over_cuda() -> Option<Box<dyn Backend>> {
    eprintln!("emulated HIP: it was built without the feature over-cuda");
    None
}

/// Devices of host memory, with pages as fine as HIP's.
fn over_host() -> Option<Box<dyn Backend>> {
    let count = number("CACHETTE_EMULATED_DEVICES").unwrap_or(2);
    let capacity = number("CACHETTE_EMULATED_CAPACITY").unwrap_or(256 << 20);
    let capacity = u64::try_from(capacity).ok()?;
    let config = HostConfig::default()
        .devices(u32::try_from(count).ok()?)
        .capacity(capacity)
        .peers(number("CACHETTE_EMULATED_PEERS") != Some(0))
        .granularity(PAGE, 2 << 20)
        .base_alignment(PAGE);
    let config =
        if number("CACHETTE_EMULATED_INTEGRATED") == Some(1) { config.integrated(Arc::default()) } else { config };
    let config = match env::var_os("CACHETTE_EMULATED_SHARED") {
        Some(file) => config.shared(file),
        None => config,
    };
    Some(Box::new(HostBackend::new(config).ok()?))
}
