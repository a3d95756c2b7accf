//! Takes what a program does with streams and memory, and finds uses that nothing orders.

use std::collections::{BTreeMap, HashMap, HashSet};

use cachette::history::Frame;
use cachette_hal::Use;

use crate::clock::Clock;
use crate::finding::{Finding, FindingKind};
use crate::memory::{Life, Memory, PastLife, Site, StreamUse, Text};
use crate::options::{AllocatorWaits, Language, Options, Unfollowed};
use crate::order::{CaptureNumber, EventId, Order, StreamId};
use crate::report::{Found, FoundKey, GivenTo, Writer};

/// The most lines of a step: the place itself and its callers.
const MOST_LINES: usize = 3;
/// The most distinct findings; further ones are counted only.
const MOST_FINDINGS: usize = 1000;

/// The uses of a captured graph.
#[derive(Clone, Debug, Default)]
pub struct GraphUses(Vec<GraphUse>);

#[derive(Clone, Copy, Debug)]
struct GraphUse {
    address: u64,
    /// The life that was current at the capture.
    life: u64,
    access: Use,
    by: Text,
    site: Site,
}

/// Takes what a program does with streams and memory, and finds uses that nothing orders.
///
/// It calls no device. A caller reports each event in the order in which the host issues it.
///
/// ```
/// use cachette_hal::Use;
/// use cachette_sanitizer::{EventId, FindingKind, Options, Sanitizer, Site, StreamId, Text};
///
/// let (main, side) = (StreamId(1), StreamId(2));
/// let mut sanitizer = Sanitizer::new(Options::default());
/// sanitizer.allocate(main, 0x1000, 512, Site(1));
/// sanitizer.uses(side, 0x1000, Use::Read, Text::default(), Site(2));
/// sanitizer.free(0x1000, Site(3)); // without a record of `side`
/// sanitizer.allocate(main, 0x1000, 512, Site(4));
/// sanitizer.uses(main, 0x1000, Use::Write, Text::default(), Site(5));
///
/// let findings = sanitizer.findings(&|_| Vec::new());
/// assert_eq!(findings[0].kind, FindingKind::ReusedTooEarly);
/// ```
#[derive(Debug)]
pub struct Sanitizer {
    options: Options,
    order: Order,
    memory: Memory,
    /// The streams recorded for live memory, by its address.
    recorded: HashMap<u64, Vec<u32>>,
    /// How many frees will still be reported of lives that have ended; by address.
    late_frees: HashMap<u64, u32>,
    /// Streams that were made outside.
    foreign: HashSet<u32>,
    /// The uses of graphs that are being captured.
    captures: HashMap<CaptureNumber, GraphUses>,
    texts: Vec<String>,
    text_numbers: HashMap<String, Text>,
    found: BTreeMap<FoundKey, Found>,
    /// The keys of `found`, in the order of their first find.
    found_order: Vec<FoundKey>,
    unfollowed: Unfollowed,
}

impl Sanitizer {
    /// Creates a sanitizer that knows no stream and no memory.
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self {
            options,
            order: Order::default(),
            memory: Memory::default(),
            recorded: HashMap::new(),
            late_frees: HashMap::new(),
            foreign: HashSet::new(),
            captures: HashMap::new(),
            texts: vec![String::new()],
            text_numbers: HashMap::new(),
            found: BTreeMap::new(),
            found_order: Vec::new(),
            unfollowed: Unfollowed::default(),
        }
    }

    /// The number of a text, such as the name of an operator.
    pub fn text(&mut self, text: &str) -> Text {
        if let Some(known) = self.text_numbers.get(text) {
            return *known;
        }
        let Ok(number) = u32::try_from(self.texts.len()) else { return Text::default() };
        self.texts.push(text.to_owned());
        self.text_numbers.insert(text.to_owned(), Text(number));
        Text(number)
    }

    pub(crate) fn text_of(&self, text: Text) -> &str {
        self.texts.get(text.0 as usize).map_or("", String::as_str)
    }

    pub(crate) const fn language(&self) -> Language {
        self.options.language
    }

    /// The frames of a stack that a finding shows: the place itself and its callers, without those of libraries.
    pub(crate) fn shown(&self, mut frames: Vec<Frame>) -> Vec<Frame> {
        let is_of = |frame: &Frame, part: &str| {
            frame.file.contains(part) || frame.name.trim_start_matches('<').starts_with(part)
        };
        frames.retain(|frame| !self.options.libraries.iter().any(|part| is_of(frame, part)));
        frames.truncate(MOST_LINES);
        frames
    }

    /// The handle of a stream; the caller adds the device to that of a default stream, in the highest bits.
    pub(crate) fn stream_name(&self, index: u32) -> String {
        match self.order.id(index) {
            StreamId(0) => "default".to_owned(),
            StreamId(id) if id.trailing_zeros() >= 56 => format!("default of device {}", id >> 56),
            StreamId(id) => format!("{id:#x}"),
        }
    }
}

/// Order.
impl Sanitizer {
    /// Excludes a stream that was made outside. Such a stream may wait for others in ways that are not reported.
    pub fn ignore_stream(&mut self, stream: StreamId) {
        let index = self.order.index(stream);
        self.foreign.insert(index);
    }

    /// Records an event in a stream.
    pub fn record(&mut self, event: EventId, stream: StreamId) {
        let stream = self.order.index(stream);
        self.order.record(event, stream);
    }

    /// Makes later work of a stream wait for the last record of an event.
    pub fn stream_wait(&mut self, stream: StreamId, event: EventId) {
        let stream = self.order.index(stream);
        self.order.stream_wait(stream, event);
    }

    /// The host has waited for an event, or found it done.
    pub fn host_wait(&mut self, event: EventId) {
        self.order.host_wait(event);
    }

    /// The host has waited for a stream.
    pub fn synchronize(&mut self, stream: StreamId) {
        let stream = self.order.index(stream);
        self.order.synchronize(stream);
    }

    /// The host has waited for all streams.
    pub fn synchronize_device(&mut self) {
        self.order.synchronize_all();
    }

    /// Removes an event.
    pub fn destroy_event(&mut self, event: EventId) {
        self.order.destroy_event(event);
    }

    /// Begins a capture. The stream, and streams that join it by events, add to a graph instead of running.
    pub fn begin_capture(&mut self, stream: StreamId) {
        let stream = self.order.index(stream);
        self.order.begin_capture(stream);
    }

    /// Ends the capture that began on a stream, and returns the uses of its graph.
    pub fn end_capture(&mut self, stream: StreamId) -> GraphUses {
        let stream = self.order.index(stream);
        self.order.end_capture(stream).and_then(|capture| self.captures.remove(&capture)).unwrap_or_default()
    }

    /// Reports the launch of a graph: one piece of work with all uses of the graph.
    pub fn launch(&mut self, graph: &GraphUses, stream: StreamId) {
        for used in &graph.0 {
            let current = self.memory.life(used.address).map(|(_, life)| life.number);
            if current == Some(used.life) {
                self.uses(stream, used.address, used.access, used.by, used.site);
            } else if let Some(life) = self.memory.freed(used.address) {
                let index = self.order.index(stream);
                let later = self.next_use(index, used.access, used.by, used.site);
                self.found(Self::of_life(FindingKind::UsedAfterFree, *life, Some(later)), used.life);
            }
        }
    }
}

/// Memory.
impl Sanitizer {
    /// Begins a life of memory.
    pub fn allocate(&mut self, stream: StreamId, address: u64, bytes: u64, site: Site) {
        let owner = self.order.index(stream);
        let captured = self.order.capture(owner).is_some();
        for start in self.memory.starts(address, address.saturating_add(bytes)) {
            // Another thread has freed it, and has not reported that yet.
            *self.late_frees.entry(start).or_default() += 1;
            self.end(start, Site::default());
        }
        let number = self.memory.allocate(address, bytes, owner, site, captured);
        if self.options.waits == AllocatorWaits::Promised && !captured {
            for past in self.memory.past_owners(address, address.saturating_add(bytes)) {
                if past != owner {
                    self.order.stream_wait_stream(owner, past);
                }
            }
            self.check(owner, address, Use::Write, number, None);
        }
    }

    /// Returns whether memory at an address is live.
    pub fn is_live(&mut self, address: u64) -> bool {
        self.memory.life(address).is_some()
    }

    /// Describes live memory, such as by the shape of its tensor.
    pub fn describe(&mut self, address: u64, text: &str) {
        let text = self.text(text);
        if let Some((_, life)) = self.memory.life(address) {
            life.description = text;
        }
    }

    /// Records that a stream uses the memory, as [`AllocatorWaits::Promised`] needs it.
    pub fn record_stream(&mut self, address: u64, stream: StreamId) {
        let stream = self.order.index(stream);
        if let Some((start, _)) = self.memory.life(address) {
            let recorded = self.recorded.entry(start).or_default();
            if !recorded.contains(&stream) {
                recorded.push(stream);
            }
        }
    }

    /// Ends a life of memory.
    pub fn free(&mut self, address: u64, site: Site) {
        match self.late_frees.get_mut(&address) {
            Some(1) => drop(self.late_frees.remove(&address)),
            Some(late) => *late -= 1,
            None => self.end(address, site),
        }
    }

    fn end(&mut self, address: u64, site: Site) {
        let mut passed = self.order.host().clone();
        for stream in self.recorded.remove(&address).unwrap_or_default() {
            // The memory is not reused before the host has found this point passed.
            passed.join(self.order.clock(stream));
        }
        self.memory.free(address, site, |used| !passed.covers(used.stream, used.number));
    }

    /// Ends a life of memory that is not reused before all its uses have ended.
    pub fn forget(&mut self, address: u64) {
        self.recorded.remove(&address);
        if let Some((start, life)) = self.memory.life(address) {
            let end = life.end;
            self.memory.free(start, Site::default(), |_| false);
            self.memory.forget(start, end);
        }
    }

    /// Reports a use of memory by work in a stream. Returns whether the memory has no description yet.
    pub fn uses(&mut self, stream: StreamId, address: u64, access: Use, by: Text, site: Site) -> bool {
        let stream = self.order.index(stream);
        if let Some(capture) = self.order.capture(stream) {
            self.add_to_graph(capture, address, access, by, site);
            return false;
        }
        if self.foreign.contains(&stream) {
            self.unfollowed.foreign_streams += 1;
            return false;
        }
        let used = self.next_use(stream, access, by, site);
        let Some((start, life)) = self.memory.life(address) else {
            match self.memory.freed(address) {
                Some(life) => self.found(Self::of_life(FindingKind::UsedAfterFree, *life, Some(used)), 0),
                None => self.unfollowed.unknown_memory += 1,
            }
            return false;
        };
        let (number, is_new) = (life.number, !life.captured && !life.has_use(stream, access));
        let (unmapped, past, wants) = (life.unmapped, past_of(start, life), life.description == Text::default());
        if unmapped > 0 {
            self.found(Self::of_life(FindingKind::UsedAsleep, past, Some(used)), number);
        }
        if is_new {
            if access == Use::Read && self.options.reads_before_writes {
                self.check_written(start, past, used);
            }
            self.check(stream, start, access, number, Some(used));
        }
        if let Some((_, life)) = self.memory.life(address)
            && !life.captured
        {
            life.add(used);
        }
        wants
    }

    /// Reports an access of the host to pinned memory.
    pub fn host_uses(&mut self, address: u64, access: Use, site: Site) {
        let Some((start, life)) = self.memory.life(address) else { return };
        let (past, number, uses) = (past_of(start, life), life.number, life.uses.clone());
        let host = self.order.host();
        let is_running = |used: &&StreamUse| {
            (access == Use::Write || used.access == Use::Write) && !host.covers(used.stream, used.number)
        };
        let running: Vec<StreamUse> = uses.iter().filter(is_running).copied().collect();
        for earlier in running {
            let found = Self::of_life(FindingKind::HostAccessTooEarly, past, None);
            self.found(Found { earlier: Some(earlier), at: site, ..found }, number);
        }
    }

    /// Reports that memory is unmapped or freed to the driver, before the driver is called.
    ///
    /// `stream` is the stream for whose work the allocator waits first. If its waits are reported, there is none.
    pub fn unmap(&mut self, address: u64, bytes: u64, stream: Option<StreamId>, site: Site) {
        let mut passed = self.order.host().clone();
        if let Some(stream) = stream {
            let stream = self.order.index(stream);
            passed.join(self.order.clock(stream));
        }
        let end = address.saturating_add(bytes);
        for past in self.memory.unordered(address, end, Use::Write, &passed, &Clock::default()) {
            let found = Self::of_life(FindingKind::UnmappedTooEarly, *past.life, None);
            self.found(Found { earlier: Some(past.used), at: site, ..found }, 0);
        }
        self.memory.forget(address, end);
        for (life, bytes) in self.memory.overlapping(address, end) {
            life.unmapped += bytes;
        }
    }

    /// Reports that addresses have memory again.
    pub fn map(&mut self, address: u64, bytes: u64) {
        for (life, bytes) in self.memory.overlapping(address, address.saturating_add(bytes)) {
            life.unmapped = life.unmapped.saturating_sub(bytes);
        }
    }
}

/// Results.
impl Sanitizer {
    /// The number of distinct findings.
    #[must_use]
    pub fn count(&self) -> usize {
        self.found_order.len()
    }

    /// Kind and address of the distinct findings after the first `known`.
    pub(crate) fn marks_since(&self, known: usize) -> impl Iterator<Item = (FindingKind, u64)> {
        self.found_order.iter().skip(known).map(|key| (key.0, self.found[key].life.address))
    }

    /// The distinct findings, in the order in which they were found. `resolve` turns a place into frames, innermost
    /// first.
    pub fn findings(&self, resolve: &dyn Fn(Site) -> Vec<Frame>) -> Vec<Finding> {
        self.findings_since(0, resolve)
    }

    /// The distinct findings after the first `known`.
    pub fn findings_since(&self, known: usize, resolve: &dyn Fn(Site) -> Vec<Frame>) -> Vec<Finding> {
        let found = self.found_order.iter().skip(known).map(|key| &self.found[key]);
        found.map(|found| Writer { sanitizer: self, resolve, found }.finding()).collect()
    }

    /// Counts of what was not followed.
    #[must_use]
    pub const fn unfollowed(&self) -> Unfollowed {
        self.unfollowed
    }
}

impl Sanitizer {
    fn next_use(&mut self, stream: u32, access: Use, by: Text, site: Site) -> StreamUse {
        StreamUse { number: self.order.queue(stream), stream, site, by, access }
    }

    fn add_to_graph(&mut self, capture: CaptureNumber, address: u64, access: Use, by: Text, site: Site) {
        self.unfollowed.captured += 1;
        let Some((_, life)) = self.memory.life(address).filter(|(_, life)| !life.captured) else { return };
        let used = GraphUse { address, life: life.number, access, by, site };
        let graph = &mut self.captures.entry(capture).or_default().0;
        if !graph.iter().any(|other| other.life == used.life && other.access == access) {
            graph.push(used);
        }
    }

    /// Finds uses of earlier lives that nothing orders before an access now.
    fn check(&mut self, stream: u32, start: u64, access: Use, number: u64, later: Option<StreamUse>) {
        if self.foreign.contains(&stream) {
            return;
        }
        let Some((_, life)) = self.memory.life(start) else { return };
        let given = GivenTo { bytes: life.end - start, owner: life.owner, allocated: life.allocated };
        let end = life.end;
        self.order.clock(stream);
        let host = self.order.host().clone();
        let unordered = self.memory.unordered(start, end, access, self.order.clock(stream), &host);
        for past in unordered {
            let found = Self::of_life(FindingKind::ReusedTooEarly, *past.life, later);
            self.found(Found { earlier: Some(past.used), request: Some(given), ..found }, number);
        }
    }

    fn check_written(&mut self, start: u64, past: PastLife, used: StreamUse) {
        let Some((_, life)) = self.memory.life(start) else { return };
        let writes: Vec<StreamUse> = life.uses.iter().filter(|used| used.access == Use::Write).copied().collect();
        let number = life.number;
        let clock = self.order.clock(used.stream);
        if !writes.iter().any(|write| clock.covers(write.stream, write.number)) {
            self.found(Self::of_life(FindingKind::ReadBeforeWritten, past, Some(used)), number);
        }
    }

    fn of_life(kind: FindingKind, life: PastLife, later: Option<StreamUse>) -> Found {
        Found { kind, life, earlier: None, request: None, later, at: Site::default(), count: 1, last_life: 0 }
    }

    fn found(&mut self, found: Found, number: u64) {
        let key = found.key();
        if let Some(known) = self.found.get_mut(&key) {
            if number == 0 || known.last_life != number {
                known.count += 1;
            }
            known.last_life = number;
        } else if self.found_order.len() < MOST_FINDINGS {
            self.found_order.push(key);
            self.found.insert(key, Found { last_life: number, ..found });
        } else {
            self.unfollowed.findings += 1;
        }
    }
}

/// Live memory in the form of memory that has ended.
fn past_of(address: u64, life: &Life) -> PastLife {
    PastLife {
        address,
        bytes: life.end - address,
        owner: life.owner,
        allocated: life.allocated,
        freed: Site::default(),
        description: life.description,
    }
}
