//! A device around a device that reports to a sanitizer.

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::{Arc, MutexGuard};

use cachette::history::{Callers, Frame, RawStack, StackSource};
use cachette::{Allocator, TraceAction, TraceEvent};
use cachette_hal::traced::Traced;
use cachette_hal::traced::{DriverCall, Observer};
use cachette_hal::{Call, Device, DevicePtr, Guarded, StreamRef, Use};

use crate::finding::Finding;
use crate::marks::Marks;
use crate::memory::{Site, Text};
use crate::options::{AllocatorWaits, Options, Unfollowed};
use crate::order::{EventId, StreamId};
use crate::sanitizer::{GraphUses, Sanitizer};

/// A device around a device, whose calls a [`DeviceSanitizer`] receives.
pub type Sanitized<D> = Traced<D>;

/// First parts of the names of functions that are not the program's, and parts of their files.
const LIBRARIES: [&str; 8] =
    ["cachette::", "cachette_", "core::", "std::", "alloc::", "backtrace::", "/rustc/", "/backtrace-0."];
/// The crates between the program and the driver, by folder and by name.
const CRATES: [(&str, &str); 3] =
    [("sanitizer", "cachette-sanitizer"), ("allocator", "cachette"), ("hal", "cachette-hal")];

/// Receives the calls of a [`Sanitized`] device and the requests of its allocator.
///
/// Copies, fills, events, waits and captures are seen. Kernels are reported by
/// [`Stream::uses`](cachette::Stream::uses), and accesses of the host to pinned memory by
/// [`host_uses`](Self::host_uses).
///
/// ```
/// use cachette::{Allocator, Backends};
/// use cachette_hal::Use;
/// use cachette_sanitizer::{DeviceSanitizer, Options};
///
/// let sanitizer = DeviceSanitizer::new(Options::default());
/// let allocator = Allocator::new(sanitizer.around(Backends::open("host")?));
/// sanitizer.track(&allocator);
///
/// let (main, side) = (allocator.create_stream()?, allocator.create_stream()?);
/// let memory = allocator.allocate(512, &main)?;
/// side.uses(&memory, Use::Read); // a kernel on `side`
/// drop(memory); // without `memory.record_stream(&side)`
/// let memory = allocator.allocate(512, &main)?;
/// main.uses(&memory, Use::Write);
///
/// println!("{}", sanitizer.findings()[0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct DeviceSanitizer(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    state: Guarded<State>,
    stacks: Arc<dyn StackSource>,
    sites: Guarded<Sites>,
}

/// The places of captured stacks. Stacks that a finding would show alike are one place.
#[derive(Debug, Default)]
struct Sites {
    of_stack: HashMap<RawStack, Site>,
    of_lines: HashMap<Vec<Frame>, Site>,
}

#[derive(Debug)]
struct State {
    sanitizer: Sanitizer,
    /// Memory from the driver by address, with its bytes.
    segments: HashMap<u64, u64>,
    /// The uses of graphs, by handle.
    graphs: HashMap<u64, GraphUses>,
    marks: Marks,
}

impl DeviceSanitizer {
    /// Creates a sanitizer that captures the stacks of its callers. The device reports the waits of the allocator, so
    /// [`Options::waits`] has no effect.
    #[must_use]
    pub fn new(options: Options) -> Self {
        let mut options = Options { waits: AllocatorWaits::Seen, ..options };
        options.libraries.extend(LIBRARIES.map(str::to_owned));
        options.libraries.extend(source_folders(&Callers::shared()));
        let (segments, graphs) = (HashMap::new(), HashMap::new());
        let state =
            Guarded::new(State { sanitizer: Sanitizer::new(options), segments, graphs, marks: Marks::default() });
        Self(Arc::new(Shared { state, stacks: Callers::shared(), sites: Guarded::default() }))
    }

    /// A device around `device`, whose calls this sanitizer receives.
    pub fn around<D: Device>(&self, device: D) -> Sanitized<D> {
        self.0.state().marks.set_device(device.info().ordinal);
        Traced::new(device, Arc::clone(&self.0))
    }

    /// Receives the requests and frees of an allocator on a device of [`around`](Self::around).
    pub fn track<D: Device>(&self, allocator: &Allocator<D>) {
        let shared = Arc::clone(&self.0);
        allocator.track(move |event| shared.event(event));
    }

    /// Reports an access of the host to pinned memory.
    pub fn host_uses(&self, at: *const u8, access: Use) {
        let site = self.0.site();
        self.0.state().sanitizer.host_uses(at.addr() as u64, access, site);
    }

    /// The distinct findings, in the order in which they were found.
    #[must_use]
    pub fn findings(&self) -> Vec<Finding> {
        let resolve =
            |site: Site| NonZeroU32::new(site.0).map_or_else(Vec::new, |stack| self.0.frames(RawStack(stack)));
        self.0.state().sanitizer.findings(&resolve)
    }

    /// Counts of what was not followed.
    #[must_use]
    pub fn unfollowed(&self) -> Unfollowed {
        self.0.state().sanitizer.unfollowed()
    }
}

/// The source folders of [`CRATES`], as the program's line tables name them.
///
/// A program with line tables alone names inlined functions without their module, so names do not show their crate.
fn source_folders(stacks: &Callers) -> Vec<String> {
    let stack = stacks.capture();
    let frames = stack.and_then(|stack| stacks.resolve(&[stack]).pop()).map_or_else(Vec::new, |stack| stack.frames);
    let version = env!("CARGO_PKG_VERSION");
    let (in_workspace, in_registry) =
        ("sanitizer/src/device.rs", format!("cachette-sanitizer-{version}/src/device.rs"));
    let found = frames.iter().find_map(|frame| {
        let registry = frame.file.strip_suffix(in_registry.as_str()).map(|parent| (parent, true));
        registry.or_else(|| frame.file.strip_suffix(in_workspace).map(|parent| (parent, false)))
    });
    let Some((parent, is_published)) = found else { return Vec::new() };
    let folder = |(folder, name): (&str, &str)| {
        if is_published { format!("{parent}{name}-{version}/src/") } else { format!("{parent}{folder}/src/") }
    };
    CRATES.map(folder).into()
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // Each report is complete in itself, so a panic leaves the state valid.
        self.state.lock()
    }

    /// The place of the caller. No lock is held.
    fn site(&self) -> Site {
        let Some(stack) = self.stacks.capture() else { return Site::default() };
        let mut sites = self.sites.lock();
        let Sites { of_stack, of_lines } = &mut *sites;
        let shown = || self.state().sanitizer.shown(self.frames(stack));
        let site = || *of_lines.entry(shown()).or_insert(Site(stack.0.get()));
        *of_stack.entry(stack).or_insert_with(site)
    }

    /// The frames of a stack, without those of the allocator at its end.
    fn frames(&self, stack: RawStack) -> Vec<Frame> {
        self.stacks.resolve(&[stack]).pop().map_or_else(Vec::new, |stack| stack.frames)
    }

    fn event(&self, event: &TraceEvent) {
        match event.action {
            TraceAction::Alloc => {
                let site = self.site();
                self.state().sanitizer.allocate(id(event.stream), event.address, event.bytes, site);
            }
            TraceAction::FreeRequested => {
                let site = self.site();
                self.state().sanitizer.free(event.address, site);
            }
            // The device reports what happens to segments.
            _ => {}
        }
    }
}

impl Observer for Shared {
    fn call(&self, call: &DriverCall) {
        if call.outcome.is_err() && !matches!(call.call, Call::EndCapture | Call::Unmap) {
            return;
        }
        let has_site = matches!(
            call.call,
            Call::Fill | Call::Copy | Call::Upload | Call::Download | Call::AllocatePinned | Call::Register
        );
        let site = if has_site { self.site() } else { Site::default() };
        let mut state = self.state();
        state.call(call, site);
        state.mark();
    }

    fn before(&self, call: Call, subject: u64, bytes: u64, stream: Option<StreamRef>) {
        let frees = matches!(call, Call::Free | Call::FreeOn | Call::Unmap | Call::FreePinned | Call::Unregister);
        if !frees && !matches!(call, Call::DestroyEvent | Call::DestroyGraph) {
            return;
        }
        let site = if frees { self.site() } else { Site::default() };
        let mut state = self.state();
        state.before(call, subject, bytes, stream, site);
        state.mark();
    }

    fn uses(&self, stream: StreamRef, at: DevicePtr, _bytes: u64, access: Use) {
        let site = self.site();
        let mut state = self.state();
        state.sanitizer.uses(id(stream), at.address(), access, Text::default(), site);
        state.mark();
    }
}

impl State {
    fn call(&mut self, call: &DriverCall, site: Site) {
        let DriverCall { call: kind, subject, other, bytes, .. } = *call;
        let (stream, event) = (id(call.stream.unwrap_or(StreamRef::DEFAULT)), EventId(subject));
        let sanitizer = &mut self.sanitizer;
        match kind {
            Call::Record => sanitizer.record(event, stream),
            Call::StreamWait => sanitizer.stream_wait(stream, event),
            Call::Wait => sanitizer.host_wait(event),
            Call::Poll if call.is_done => sanitizer.host_wait(event),
            Call::Synchronize => sanitizer.synchronize(stream),
            Call::SynchronizeDevice => sanitizer.synchronize_device(),
            Call::Fill => self.uses(call, subject, Use::Write, site),
            Call::Copy | Call::Upload => {
                self.uses(call, other, Use::Read, site);
                self.uses(call, subject, Use::Write, site);
            }
            Call::Download => {
                self.uses(call, subject, Use::Read, site);
                self.uses(call, other, Use::Write, site);
            }
            Call::Allocate | Call::AllocateOn => drop(self.segments.insert(subject, bytes)),
            Call::Map => sanitizer.map(subject, bytes),
            // The driver has refused to unmap it.
            Call::Unmap if call.outcome.is_err() => sanitizer.map(subject, bytes),
            Call::AllocatePinned | Call::Register => {
                self.segments.insert(subject, bytes);
                sanitizer.allocate(StreamId(0), subject, bytes, site);
                sanitizer.describe(subject, "pinned host memory");
            }
            Call::BeginCapture => sanitizer.begin_capture(stream),
            Call::EndCapture => {
                let uses = sanitizer.end_capture(stream);
                self.graphs.insert(subject, uses);
            }
            Call::Launch => {
                if let Some(uses) = self.graphs.get(&subject) {
                    sanitizer.launch(uses, stream);
                }
            }
            _ => {}
        }
    }

    /// Reports the end of what the driver is about to free or destroy. Later another thread may have its number.
    fn before(&mut self, call: Call, subject: u64, bytes: u64, stream: Option<StreamRef>, site: Site) {
        match call {
            Call::Free | Call::FreeOn => {
                let bytes = self.segments.remove(&subject).unwrap_or(0);
                self.sanitizer.unmap(subject, bytes, stream.map(id), site);
            }
            Call::Unmap => self.sanitizer.unmap(subject, bytes, None, site),
            Call::FreePinned | Call::Unregister => {
                let bytes = self.segments.remove(&subject).unwrap_or(0);
                self.sanitizer.free(subject, site);
                self.sanitizer.unmap(subject, bytes, None, site);
            }
            Call::DestroyEvent => self.sanitizer.destroy_event(EventId(subject)),
            Call::DestroyGraph => drop(self.graphs.remove(&subject)),
            _ => {}
        }
    }

    /// Marks new findings in histories.
    fn mark(&mut self) {
        self.marks.add(&self.sanitizer);
    }

    /// Reports a use by the device, of host memory only if it is pinned.
    fn uses(&mut self, call: &DriverCall, address: u64, access: Use, site: Site) {
        let is_host = matches!(call.call, Call::Upload | Call::Download) && address == call.other;
        if is_host && !self.sanitizer.is_live(address) {
            return;
        }
        let by = self.sanitizer.text(call.call.name());
        let stream = id(call.stream.unwrap_or(StreamRef::DEFAULT));
        self.sanitizer.uses(stream, address, access, by, site);
    }
}

/// A stream of the device, by its handle.
const fn id(stream: StreamRef) -> StreamId {
    StreamId(stream.raw() as u64)
}
