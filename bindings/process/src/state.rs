//! The backend of the process, its configuration, and an allocator for every device.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, MutexGuard, OnceLock};

use cachette::backends::OpenError;
use cachette::config::ConfigError;
use cachette::hal::{AnyDevice, Backend, Guarded, Ordinal};
use cachette::history::HistoryOptions;
use cachette::snapshot::SnapshotOptions;
use cachette::{Allocator, Backends, Config, OutOfMemory, Snapshot, TraceEvent};
use cachette_hal::load::loaded_file;

use crate::error::{Error, StartError};
use crate::fork;
use crate::log::log;
use crate::stderr::write_line;

/// The maximum number of devices of a process.
pub const MOST_DEVICES: usize = 64;

/// Libraries that indicate a driver in use, with the backend's name. The first loaded one is used.
const LOADED: [(&str, &str); 2] = [("libcuda.so", "cuda"), ("libamdhip64", "hip")];

/// The allocators, each created when its device is first used, and never dropped: the driver may be unloaded by then.
static DEVICES: [OnceLock<Allocator>; MOST_DEVICES] = [const { OnceLock::new() }; MOST_DEVICES];
/// The number of slots that may be set. Relaxed: a thread that has memory of a device has seen it opened.
static PLACES: AtomicUsize = AtomicUsize::new(0);
static PROCESS: OnceLock<Process> = OnceLock::new();
/// Devices are opened under this lock, so that every device gets all callbacks.
static WATCHED: Guarded<Watched> = Guarded::new(Watched { callbacks: Vec::new(), history: None, config: None });
static LAST_EXHAUSTION: Guarded<Option<Arc<OutOfMemory>>> = Guarded::new(None);

/// Registers a callback on the allocator of a device.
type Register = dyn Fn(u32, &Allocator) + Send + Sync;

/// What every device has.
struct Watched {
    callbacks: Vec<Box<Register>>,
    history: Option<HistoryOptions>,
    /// The configuration, if it was changed after the start.
    config: Option<Config>,
}

/// The backend and configuration that the process was started with.
#[derive(Debug)]
struct Process {
    name: String,
    config: Config,
    /// Loaded at first use, since a loaded driver does not survive a fork.
    backend: OnceLock<Arc<dyn Backend>>,
}

impl Process {
    fn backend(&self) -> Result<&Arc<dyn Backend>, OpenError> {
        if let Some(backend) = self.backend.get() {
            return Ok(backend);
        }
        fork::driver_is_used();
        let loaded = Backends::load(&self.name)?;
        Ok(self.backend.get_or_init(|| loaded))
    }
}

/// Starts the shared allocators with the backend of a name (`cuda`, `hip` or `host`). Can be called once per process.
///
/// The driver is not used yet; if it is missing, the first allocation fails.
pub fn start(backend: &str, config: &Config) -> Result<(), StartError> {
    if !Backends::names().any(|name| name == backend) {
        let name = backend.to_owned();
        return Err(OpenError::UnknownBackend { name }.into());
    }
    set(Process { name: backend.to_owned(), config: config.clone(), backend: OnceLock::new() })
}

/// Starts the shared allocators with a backend that is already loaded. Can be called once per process.
pub fn start_on(backend: Arc<dyn Backend>, config: &Config) -> Result<(), StartError> {
    let name = backend.info().name.to_owned();
    set(Process { name, config: config.clone(), backend: OnceLock::from(backend) })?;
    fork::driver_is_used();
    Ok(())
}

fn set(process: Process) -> Result<(), StartError> {
    PROCESS.set(process).map_err(|_| {
        let started = PROCESS.get().map(|process| process.name.clone());
        StartError::Started { backend: started.unwrap_or_default() }
    })
}

/// The state, which starts at first use if it was not started before.
fn process() -> Result<&'static Process, StartError> {
    if let Some(process) = PROCESS.get() {
        return Ok(process);
    }
    let in_use = LOADED.iter().find(|(stem, _)| loaded_file(stem).is_some());
    let (_, name) = in_use.ok_or(StartError::NothingLoaded)?;
    let (config, left_out) = Config::from_env_known()?;
    for error in left_out {
        write_line(format_args!("a setting is left out: {error}"));
    }
    match start(name, &config) {
        // Another thread was faster.
        Ok(()) | Err(StartError::Started { .. }) => PROCESS.get().ok_or(StartError::NothingLoaded),
        Err(error) => Err(error),
    }
}

/// Whether they were started.
#[must_use]
pub fn is_started() -> bool {
    PROCESS.get().is_some()
}

/// The name of the backend that they were started with.
#[must_use]
pub fn backend() -> Option<&'static str> {
    PROCESS.get().map(|process| process.name.as_str())
}

/// The current configuration; `None` before the start.
#[must_use]
pub fn config() -> Option<Config> {
    PROCESS.get().map(|process| current(process, watched().as_deref()))
}

fn current(process: &Process, watched: Option<&Watched>) -> Config {
    watched.and_then(|watched| watched.config.as_ref()).unwrap_or(&process.config).clone()
}

/// The allocator of a device, created at first use.
#[inline]
pub fn allocator(device: u32) -> Result<&'static Allocator, Error> {
    match find(device as usize) {
        Some(allocator) => Ok(allocator),
        None => open(device),
    }
}

/// The allocator of a device, if it exists and is usable in this process.
#[inline]
#[must_use]
pub fn find(device: usize) -> Option<&'static Allocator> {
    if fork::is_forked() { None } else { existing(device) }
}

/// The allocator of a device, if it exists, usable or not: in a forked child a free does nothing, and a request fails.
#[inline]
#[must_use]
pub fn existing(device: usize) -> Option<&'static Allocator> {
    DEVICES.get(device)?.get()
}

#[cold]
fn open(device: u32) -> Result<&'static Allocator, Error> {
    let made = open_device(device)?;
    let watched = watched().ok_or(Error::Forked)?;
    let place = &DEVICES[device as usize];
    if let Some(allocator) = place.get() {
        return Ok(allocator);
    }
    let allocator = Allocator::with_config(made, &current(process()?, Some(&watched)));
    allocator.reclaim_by_default();
    // This comes before the other callbacks, which may read it.
    allocator.on_out_of_memory(|report| *LAST_EXHAUSTION.lock() = Some(Arc::new(report.clone())));
    log(&allocator);
    for register in &watched.callbacks {
        register(device, &allocator);
    }
    if let Some(options) = &watched.history {
        allocator.record_history(options.clone());
    }
    let opened = place.get_or_init(|| allocator);
    PLACES.fetch_max(device as usize + 1, Relaxed);
    Ok(opened)
}

/// Opens a device of the backend.
fn open_device(device: u32) -> Result<AnyDevice, Error> {
    if fork::is_forked() {
        return Err(Error::Forked);
    }
    if device as usize >= MOST_DEVICES {
        let device = device.into();
        return Err(Error::NoSuchDevice { device });
    }
    Ok(Backends::open_on(&**process()?.backend()?, Ordinal(device))?)
}

/// The devices that were used so far, with their allocators.
#[inline]
pub fn opened() -> impl Iterator<Item = (u32, &'static Allocator)> {
    let places = &DEVICES[..PLACES.load(Relaxed)];
    (0..).zip(places).filter_map(|(device, place)| {
        let allocator = place.get().filter(|_| !fork::is_forked());
        allocator.map(|allocator| (device, allocator))
    })
}

/// A snapshot of one device, or of all that were used so far.
#[must_use]
pub fn snapshot(device: Option<u32>, options: SnapshotOptions) -> Snapshot {
    let wanted = opened().filter(|(number, _)| device.is_none_or(|it| it == *number));
    let taken = wanted.map(|(_, allocator)| allocator.snapshot_with(options));
    taken.reduce(Snapshot::merge).unwrap_or_default()
}

/// Registers a callback for out-of-memory errors, on all current and future devices.
pub fn on_out_of_memory(observer: impl Fn(&OutOfMemory) + Send + Sync + 'static) {
    let observer = Arc::new(observer);
    on_every_device(move |_, allocator| {
        let observer = Arc::clone(&observer);
        allocator.on_out_of_memory(move |report| observer(report));
    });
}

/// Registers a callback for every event, on all current and future devices.
pub fn track(tracker: impl Fn(u32, &TraceEvent) + Send + Sync + 'static) {
    let tracker = Arc::new(tracker);
    on_every_device(move |device, allocator| {
        let tracker = Arc::clone(&tracker);
        allocator.track(move |event| tracker(device, event));
    });
}

/// Registers a callback for memory pressure, on all current and future devices. It returns whether it freed memory.
pub fn on_pressure(reliever: impl Fn() -> bool + Send + Sync + 'static) {
    let reliever = Arc::new(reliever);
    on_every_device(move |_, allocator| {
        let reliever = Arc::clone(&reliever);
        allocator.on_pressure(move || reliever());
    });
}

fn on_every_device(register: impl Fn(u32, &Allocator) + Send + Sync + 'static) {
    let Some(mut watched) = watched() else { return };
    for (device, allocator) in opened() {
        register(device, allocator);
    }
    watched.callbacks.push(Box::new(register));
}

/// Starts to record a history on all current and future devices, or stops and deletes it.
pub fn record_history(options: Option<HistoryOptions>) {
    let Some(mut watched) = watched() else { return };
    for (_, allocator) in opened() {
        match &options {
            Some(options) => allocator.record_history(options.clone()),
            None => allocator.stop_history(),
        }
    }
    watched.history = options;
}

/// Turns caching on or off, on all current and future devices.
pub fn set_caching(on: bool) -> Result<(), Error> {
    change_config(|config| {
        *config = config.to_builder().caching(on).build()?;
        Ok(())
    })
}

/// Whether caching is on.
#[must_use]
pub fn caches() -> bool {
    config().as_ref().is_none_or(Config::caching)
}

/// Applies a configuration text of PyTorch, including a memory fraction, on all current and future devices.
///
/// Keys of PyTorch that the allocator lacks are skipped and returned, as [`Config::update_known`] does.
pub fn update_config(text: &str) -> Result<Vec<ConfigError>, Error> {
    change_config(|config| config.update_known(text))
}

fn change_config<T>(change: impl FnOnce(&mut Config) -> Result<T, ConfigError>) -> Result<T, Error> {
    let process = process()?;
    let mut watched = watched().ok_or(Error::Forked)?;
    let before = current(process, Some(&watched));
    let mut config = before.clone();
    let done = change(&mut config).map_err(StartError::from)?;
    for (_, allocator) in opened() {
        allocator.set_config(&config);
        // Otherwise the value of `set_memory_fraction` stays.
        if config.memory_fraction() != before.memory_fraction() {
            let fraction = config.memory_fraction().unwrap_or(1.0);
            allocator.set_memory_fraction(fraction)?;
        }
    }
    watched.config = Some(config);
    Ok(done)
}

/// Whether a history is recorded.
#[must_use]
pub fn records_history() -> bool {
    watched().is_some_and(|watched| watched.history.is_some())
}

/// The last request that ran out of memory, on any device and thread.
#[must_use]
pub fn last_out_of_memory() -> Option<Arc<OutOfMemory>> {
    if fork::is_forked() { None } else { LAST_EXHAUSTION.lock().clone() }
}

/// What every device has; `None` in a forked child, where a thread of the parent may hold the lock for ever.
fn watched() -> Option<MutexGuard<'static, Watched>> {
    (!fork::is_forked()).then(|| WATCHED.lock())
}
