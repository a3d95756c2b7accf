//! A source made of two functions and optional hooks.

use std::fmt;

use cachette_hal::{DevicePtr, Ordinal, StreamRef};

use super::checks::{aligned, check_bytes};
use super::{ALIGNMENT, AllocContext, PoolPair, Source, SourceError};

type AllocateFn = dyn Fn(u64, &AllocContext) -> Result<DevicePtr, SourceError> + Send + Sync;
type FreeFn = dyn Fn(DevicePtr, u64, &AllocContext) -> Result<(), SourceError> + Send + Sync;

/// A source made of two functions and optional hooks.
///
/// If `allocate` returns an address that is not a multiple of the alignment, the source frees it and returns an error.
pub struct FunctionSource {
    name: String,
    alignment: u64,
    elastic: bool,
    allocate: Box<AllocateFn>,
    free: Box<FreeFn>,
    hooks: Hooks,
}

/// Writes the optional hooks, and a setter for each.
macro_rules! hooks {
    ($($(#[$doc:meta])* $setter:ident: $hook:ident($($argument:ty),*) $(-> $result:ty)?;)*) => {
        struct Hooks {
            $($hook: Box<dyn Fn($($argument),*) $(-> $result)? + Send + Sync>,)*
        }

        impl Default for Hooks {
            fn default() -> Self {
                Self { $($hook: Box::new(|$(_: $argument),*| Default::default()),)* }
            }
        }

        impl FunctionSource {
            $(
                $(#[$doc])*
                #[must_use]
                pub fn $setter(mut self, hook: impl Fn($($argument),*) $(-> $result)? + Send + Sync + 'static) -> Self {
                    self.hooks.$hook = Box::new(hook);
                    self
                }
            )*
        }
    };
}

hooks! {
    /// Calls `hook` when an allocator begins to use the source, with the number of devices.
    on_start: start(u32);
    /// Calls `hook` when the caches were emptied.
    on_empty: empty();
    /// Calls `hook` when the share of a device's memory that may be held is set.
    on_limit: limit(f64, Ordinal);
    /// Calls `hook` to find the allocation that contains an address.
    with_base_allocation: base_allocation(DevicePtr) -> Option<(DevicePtr, u64)>;
    /// Calls `hook` when another stream uses memory.
    on_record_stream: record_stream(DevicePtr, StreamRef);
    /// Calls `hook` when a pool begins to serve requests.
    on_begin: begin(Ordinal, PoolPair);
    /// Calls `hook` when a pool no longer serves requests.
    on_end: end(Ordinal, PoolPair);
    /// Calls `hook` when the last user of a pool has released it.
    on_release: release(Ordinal, PoolPair);
}

impl FunctionSource {
    /// A source called `name` that calls `allocate` and `free`.
    ///
    /// # Safety
    ///
    /// 1. 2. 3. The functions keep the promises of [`Source`].
    pub unsafe fn new(
        name: impl Into<String>,
        allocate: impl Fn(u64, &AllocContext) -> Result<DevicePtr, SourceError> + Send + Sync + 'static,
        free: impl Fn(DevicePtr, u64, &AllocContext) -> Result<(), SourceError> + Send + Sync + 'static,
    ) -> Self {
        Self {
            name: name.into(),
            alignment: ALIGNMENT,
            elastic: false,
            allocate: Box::new(allocate),
            free: Box::new(free),
            hooks: Hooks::default(),
        }
    }

    /// Sets another alignment than [`ALIGNMENT`].
    ///
    /// # Panics
    ///
    /// If it is not a power of two.
    #[must_use]
    pub fn aligned_to(mut self, alignment: u64) -> Self {
        assert!(alignment.is_power_of_two(), "an alignment is a power of two, and {alignment} is not");
        self.alignment = alignment;
        self
    }

    /// Lets pools also use elastic segments, which are memory of the device.
    #[must_use]
    pub fn permit_elastic(mut self) -> Self {
        self.elastic = true;
        self
    }
}

impl fmt::Debug for FunctionSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FunctionSource")
            .field("name", &self.name)
            .field("alignment", &self.alignment)
            .field("elastic", &self.elastic)
            .finish_non_exhaustive()
    }
}

// SAFETY: 1. 2. 3. the functions keep them, by the promise of `new`.
unsafe impl Source for FunctionSource {
    fn name(&self) -> &str {
        &self.name
    }

    unsafe fn allocate(&self, bytes: u64, context: &AllocContext) -> Result<DevicePtr, SourceError> {
        check_bytes(&self.name, bytes)?;
        let ptr = (self.allocate)(bytes, context)?;
        aligned(&self.name, ptr, self.alignment, || (self.free)(ptr, bytes, context))
    }

    unsafe fn free(&self, ptr: DevicePtr, bytes: u64, context: &AllocContext) -> Result<(), SourceError> {
        (self.free)(ptr, bytes, context)
    }

    fn alignment(&self) -> u64 {
        self.alignment
    }

    fn permits_elastic(&self) -> bool {
        self.elastic
    }

    fn started(&self, devices: u32) {
        (self.hooks.start)(devices);
    }

    fn emptied(&self) {
        (self.hooks.empty)();
    }

    fn limited(&self, fraction: f64, device: Ordinal) {
        (self.hooks.limit)(fraction, device);
    }

    unsafe fn base_allocation(&self, ptr: DevicePtr) -> Option<(DevicePtr, u64)> {
        (self.hooks.base_allocation)(ptr)
    }

    unsafe fn record_stream(&self, ptr: DevicePtr, stream: StreamRef) {
        (self.hooks.record_stream)(ptr, stream);
    }

    fn began(&self, device: Ordinal, pool: PoolPair) {
        (self.hooks.begin)(device, pool);
    }

    fn ended(&self, device: Ordinal, pool: PoolPair) {
        (self.hooks.end)(device, pool);
    }

    fn released(&self, device: Ordinal, pool: PoolPair) {
        (self.hooks.release)(device, pool);
    }
}
