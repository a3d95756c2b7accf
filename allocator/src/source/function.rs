//! A source made of two functions and an optional hook for events.

use std::fmt;

use cachette_hal::DevicePtr;

use super::checks::{aligned, check_bytes};
use super::{ALIGNMENT, AllocContext, Source, SourceError, SourceEvent};

type AllocateFn = dyn Fn(u64, &AllocContext) -> Result<DevicePtr, SourceError> + Send + Sync;
type FreeFn = dyn Fn(DevicePtr, u64, &AllocContext) -> Result<(), SourceError> + Send + Sync;
type EventFn = dyn Fn(SourceEvent) + Send + Sync;

/// A source made of two functions and an optional hook for events.
///
/// If `allocate` returns an address that is not a multiple of the alignment, the source frees it and returns an error.
pub struct FunctionSource {
    name: String,
    alignment: u64,
    elastic: bool,
    allocate: Box<AllocateFn>,
    free: Box<FreeFn>,
    on_event: Box<EventFn>,
}

impl FunctionSource {
    /// Creates a source called `name` that calls `allocate` and `free`.
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
            on_event: Box::new(drop),
        }
    }

    /// Sets an alignment other than [`ALIGNMENT`].
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

    /// Calls `hook` with every event.
    #[must_use]
    pub fn on_event(mut self, hook: impl Fn(SourceEvent) + Send + Sync + 'static) -> Self {
        self.on_event = Box::new(hook);
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

    unsafe fn notify(&self, event: SourceEvent) {
        (self.on_event)(event);
    }
}
