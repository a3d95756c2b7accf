//! What the process's one plug-in is: its backend, its configuration, and an allocator for every device.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use cachette::backends::OpenError;
use cachette::config::ConfigError;
use cachette::hal::load::loaded_file;
use cachette::hal::{AnyDevice, Backend, Ordinal};
use cachette::history::HistoryOptions;
use cachette::snapshot::SnapshotOptions;
use cachette::{Allocator, Backends, Config, OutOfMemory, Snapshot, TraceEvent};

use crate::counters::write_line;
use crate::entry::of_memory;
use crate::error::{Error, StartError};
use crate::fork;

/// The most devices that a process can use.
pub const MOST_DEVICES: usize = 64;

/// The most events that a history can be asked to keep; the places are made at once.
pub(crate) const MOST_ENTRIES: u64 = 100_000_000;

/// The libraries by which a driver is known to be in use, with the backend's name; the first that is loaded counts.
const LOADED: [(&str, &str); 2] = [("libcuda.so", "cuda"), ("libamdhip64", "hip")];

/// The allocators, each made when its device is first used, and never dropped: the driver may be gone by then.
static DEVICES: [OnceLock<Allocator<AnyDevice>>; MOST_DEVICES] = [const { OnceLock::new() }; MOST_DEVICES];
/// How many places of these may be taken. Relaxed: who knows memory of a device has seen it opened.
static PLACES: AtomicUsize = AtomicUsize::new(0);
static PLUGIN: OnceLock<Plugin> = OnceLock::new();
/// Devices are opened under this lock, so that no watcher misses one.
static WATCHED: Mutex<Watched> = Mutex::new(Watched {
    observers: Vec::new(),
    trackers: Vec::new(),
    relievers: Vec::new(),
    history: None,
    config: None,
});
static LAST_EXHAUSTION: Mutex<Option<Arc<OutOfMemory>>> = Mutex::new(None);

type Observer = dyn Fn(&OutOfMemory) + Send + Sync;
type Tracker = dyn Fn(u32, &TraceEvent) + Send + Sync;
type Reliever = dyn Fn() -> bool + Send + Sync;

/// What every device is watched by.
struct Watched {
    observers: Vec<Arc<Observer>>,
    trackers: Vec<Arc<Tracker>>,
    relievers: Vec<Arc<Reliever>>,
    history: Option<HistoryOptions>,
    /// How allocators behave, if that was changed after the start.
    config: Option<Config>,
}

/// What the plug-in was started with.
#[derive(Debug)]
struct Plugin {
    name: String,
    config: Config,
    /// Loaded when it is first needed, for a loaded driver does not survive a fork.
    backend: OnceLock<Arc<dyn Backend>>,
}

impl Plugin {
    fn backend(&self) -> Result<&Arc<dyn Backend>, OpenError> {
        if let Some(backend) = self.backend.get() {
            return Ok(backend);
        }
        fork::driver_is_used();
        let loaded = Backends::load(&self.name)?;
        Ok(self.backend.get_or_init(|| loaded))
    }
}

/// Starts the plug-in with the backend of a name (`cuda`, `hip` or `host`); once in a process.
///
/// The driver is not used yet; if it is missing, the first allocation fails.
pub fn start(backend: &str, config: &Config) -> Result<(), StartError> {
    if !Backends::names().any(|name| name == backend) {
        let name = backend.to_owned();
        return Err(OpenError::UnknownBackend { name }.into());
    }
    set(Plugin { name: backend.to_owned(), config: config.clone(), backend: OnceLock::new() })
}

/// Starts the plug-in with a backend that is loaded already; once in a process.
pub fn start_on(backend: Arc<dyn Backend>, config: &Config) -> Result<(), StartError> {
    let name = backend.info().name.to_owned();
    set(Plugin { name, config: config.clone(), backend: OnceLock::from(backend) })?;
    fork::driver_is_used();
    Ok(())
}

fn set(plugin: Plugin) -> Result<(), StartError> {
    PLUGIN.set(plugin).map_err(|_| {
        let started = PLUGIN.get().map(|plugin| plugin.name.clone());
        StartError::Started { backend: started.unwrap_or_default() }
    })
}

/// The plug-in, which starts at first use if it was not started before.
fn plugin() -> Result<&'static Plugin, StartError> {
    if let Some(plugin) = PLUGIN.get() {
        return Ok(plugin);
    }
    let in_use = LOADED.iter().find(|(stem, _)| loaded_file(stem).is_some());
    let (_, name) = in_use.ok_or(StartError::NothingLoaded)?;
    let (config, left_out) = Config::from_env_known()?;
    for error in left_out {
        write_line(format_args!("a setting is left out: {error}"));
    }
    match start(name, &config) {
        // Another thread was faster.
        Ok(()) | Err(StartError::Started { .. }) => PLUGIN.get().ok_or(StartError::NothingLoaded),
        Err(error) => Err(error),
    }
}

/// Whether the plug-in was started, by whomever.
#[must_use]
pub fn is_started() -> bool {
    PLUGIN.get().is_some()
}

/// The name of the backend that the plug-in was started with.
#[must_use]
pub fn backend() -> Option<&'static str> {
    PLUGIN.get().map(|plugin| plugin.name.as_str())
}

/// The configuration as it is now; `None` before the plug-in was started.
#[must_use]
pub fn config() -> Option<Config> {
    PLUGIN.get().map(|plugin| current(plugin, &watched()))
}

fn current(plugin: &Plugin, watched: &Watched) -> Config {
    watched.config.as_ref().unwrap_or(&plugin.config).clone()
}

/// The allocator of a device, made at first use.
#[inline]
pub fn allocator(device: u32) -> Result<&'static Allocator<AnyDevice>, Error> {
    match find(device as usize) {
        Some(allocator) => Ok(allocator),
        None => open(device),
    }
}

/// The allocator of a device, if it is made and of use to this process.
#[inline]
#[must_use]
pub fn find(device: usize) -> Option<&'static Allocator<AnyDevice>> {
    if fork::is_forked() {
        return None;
    }
    DEVICES.get(device)?.get()
}

#[cold]
fn open(device: u32) -> Result<&'static Allocator<AnyDevice>, Error> {
    let made = make_device(device)?;
    let watched = watched();
    let place = &DEVICES[device as usize];
    if let Some(allocator) = place.get() {
        return Ok(allocator);
    }
    let allocator = Allocator::with_config(made, &current(plugin()?, &watched));
    // Before the others, who may ask for it.
    allocator.on_out_of_memory(|report| *last_exhaustion() = Some(Arc::new(report.clone())));
    for observer in &watched.observers {
        watch(&allocator, observer);
    }
    for tracker in &watched.trackers {
        follow(device, &allocator, tracker);
    }
    for reliever in &watched.relievers {
        relieve(&allocator, reliever);
    }
    if let Some(options) = &watched.history {
        allocator.record_history(options.clone());
    }
    let opened = place.get_or_init(|| allocator);
    PLACES.fetch_max(device as usize + 1, Relaxed);
    Ok(opened)
}

/// Opens a device of the plug-in's backend.
pub(crate) fn make_device(device: u32) -> Result<AnyDevice, Error> {
    if fork::is_forked() {
        return Err(Error::Forked);
    }
    if device as usize >= MOST_DEVICES {
        let device = device.into();
        return Err(Error::NoSuchDevice { device });
    }
    Ok(Backends::open_on(&**plugin()?.backend()?, Ordinal(device))?)
}

/// Every device that was used so far, with its allocator.
#[inline]
pub fn opened() -> impl Iterator<Item = (u32, &'static Allocator<AnyDevice>)> {
    let places = &DEVICES[..PLACES.load(Relaxed)];
    (0..).zip(places).filter_map(|(device, place)| {
        let allocator = place.get().filter(|_| !fork::is_forked());
        allocator.map(|allocator| (device, allocator))
    })
}

/// What one device or all of them hold and did, of those that were used so far.
#[must_use]
pub fn snapshot(device: Option<u32>, options: SnapshotOptions) -> Snapshot {
    let wanted = opened().filter(|(number, _)| device.is_none_or(|it| it == *number));
    let taken = wanted.map(|(_, allocator)| allocator.snapshot_with(options));
    taken.reduce(Snapshot::merge).unwrap_or_default()
}

/// What PyTorch's observers are told of a request that failed: the device, the bytes asked of it, its bytes in all or
/// the limit, and its free bytes.
#[must_use]
pub fn observed(report: &OutOfMemory) -> (u32, u64, u64, u64) {
    let total = report.limit.or(report.total).unwrap_or(0);
    let free = report.free.unwrap_or(0);
    (report.device.0, report.segment, total, free)
}

/// Calls `observer` with the figures whenever a request ends in out-of-memory, on every device that is or will be used.
pub fn on_out_of_memory(observer: impl Fn(&OutOfMemory) + Send + Sync + 'static) {
    let observer: Arc<Observer> = Arc::new(observer);
    let mut watched = watched();
    for (_, allocator) in opened() {
        watch(allocator, &observer);
    }
    watched.observers.push(observer);
}

/// Calls `tracker` with the device and everything that happens to its memory, on every device that is or will be used.
pub fn track(tracker: impl Fn(u32, &TraceEvent) + Send + Sync + 'static) {
    let tracker: Arc<Tracker> = Arc::new(tracker);
    let mut watched = watched();
    for (device, allocator) in opened() {
        follow(device, allocator, &tracker);
    }
    watched.trackers.push(tracker);
}

/// Calls `reliever` when memory is wanting, on every device that is or will be used; it says whether it freed any.
pub fn on_pressure(reliever: impl Fn() -> bool + Send + Sync + 'static) {
    let reliever: Arc<Reliever> = Arc::new(reliever);
    let mut watched = watched();
    for (_, allocator) in opened() {
        relieve(allocator, &reliever);
    }
    watched.relievers.push(reliever);
}

/// Records what happens to memory on every device that is or will be used, or stops and forgets it.
pub fn record_history(options: Option<HistoryOptions>) {
    let mut watched = watched();
    for (_, allocator) in opened() {
        match &options {
            Some(options) => allocator.record_history(options.clone()),
            None => allocator.stop_history(),
        }
    }
    watched.history = options;
}

/// Serves requests from caches, or asks the driver for each, on every device that is or will be used.
pub fn set_caching(on: bool) -> Result<(), Error> {
    change_config(|config| {
        *config = config.to_builder().caching(on).build()?;
        Ok(())
    })
}

/// Whether requests are served from caches.
#[must_use]
pub fn caches() -> bool {
    config().as_ref().is_none_or(Config::caching)
}

/// Sets what a text of PyTorch says, on every device that is or will be used; what it says of the memory fraction too.
///
/// Keys that PyTorch has and the allocator has not are left out and returned, as [`Config::update_known`] does.
pub fn update_config(text: &str) -> Result<Vec<ConfigError>, Error> {
    change_config(|config| config.update_known(text))
}

fn change_config<T>(change: impl FnOnce(&mut Config) -> Result<T, ConfigError>) -> Result<T, Error> {
    let plugin = plugin()?;
    let mut watched = watched();
    let before = current(plugin, &watched);
    let mut config = before.clone();
    let done = change(&mut config).map_err(StartError::from)?;
    for (_, allocator) in opened() {
        allocator.set_config(&config);
        // Otherwise it stays what `set_memory_fraction` made it since.
        if config.memory_fraction() != before.memory_fraction() {
            let fraction = config.memory_fraction().unwrap_or(1.0);
            let set = allocator.set_memory_fraction(fraction);
            set.map_err(|error| of_memory(allocator, error))?;
        }
    }
    watched.config = Some(config);
    Ok(done)
}

/// How many events a history keeps that is asked for `asked`: PyTorch's word for no bound is the largest number there is.
pub fn history_entries(asked: u64) -> Result<u64, Error> {
    const USUAL: u64 = 1_000_000;
    match asked {
        0..=MOST_ENTRIES => Ok(asked),
        _ if asked >= i64::MAX.cast_unsigned() => Ok(USUAL),
        _ => Err(Error::TooManyEntries { asked }),
    }
}

/// Whether a history is recorded.
#[must_use]
pub fn records_history() -> bool {
    watched().history.is_some()
}

/// The last request that failed for want of memory, on whichever device and thread.
#[must_use]
pub fn last_out_of_memory() -> Option<Arc<OutOfMemory>> {
    last_exhaustion().clone()
}

fn watch(allocator: &Allocator<AnyDevice>, observer: &Arc<Observer>) {
    let observer = Arc::clone(observer);
    allocator.on_out_of_memory(move |figures| observer(figures));
}

fn follow(device: u32, allocator: &Allocator<AnyDevice>, tracker: &Arc<Tracker>) {
    let tracker = Arc::clone(tracker);
    allocator.track(move |event| tracker(device, event));
}

fn relieve(allocator: &Allocator<AnyDevice>, reliever: &Arc<Reliever>) {
    let reliever = Arc::clone(reliever);
    allocator.on_pressure(move || reliever());
}

fn watched() -> MutexGuard<'static, Watched> {
    // Each change is one step, so a panic leaves it whole.
    WATCHED.lock().unwrap_or_else(PoisonError::into_inner)
}

fn last_exhaustion() -> MutexGuard<'static, Option<Arc<OutOfMemory>>> {
    LAST_EXHAUSTION.lock().unwrap_or_else(PoisonError::into_inner)
}
