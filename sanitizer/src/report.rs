//! Turns what was found into findings with source lines.

use cachette::history::Frame;
use cachette::human::Bytes;
use cachette_hal::Use;

use crate::finding::{Finding, FindingKind, SourceLine, Step};
use crate::memory::{PastLife, Site, StreamUse};
use crate::options::Language;
use crate::sanitizer::Sanitizer;

/// What was found, before its stacks are resolved.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    pub(crate) kind: FindingKind,
    /// The memory; its free is unknown if it is live.
    pub(crate) life: PastLife,
    /// The use that may still run.
    pub(crate) earlier: Option<StreamUse>,
    /// The request that got the memory.
    pub(crate) request: Option<GivenTo>,
    /// The use that comes too early or too late.
    pub(crate) later: Option<StreamUse>,
    /// The place of an unmap, or of an access by the host.
    pub(crate) at: Site,
    pub(crate) count: u64,
    /// The life in which it was found last, so that it counts once for each.
    pub(crate) last_life: u64,
}

/// The request that got the memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GivenTo {
    pub(crate) bytes: u64,
    pub(crate) owner: u32,
    pub(crate) allocated: Site,
}

/// Findings with the same key are one.
pub(crate) type FoundKey = (FindingKind, [Site; 5], [u32; 2]);

impl Found {
    pub(crate) fn key(&self) -> FoundKey {
        let earlier = self.earlier.map_or(Site::default(), |used| used.site);
        let request = self.request.map_or(Site::default(), |request| request.allocated);
        // The use of the new owner is not part of it: its first use and its request are one finding.
        let later = self.later.filter(|_| self.request.is_none()).map_or(self.at, |used| used.site);
        let stream = |used: Option<StreamUse>| used.map_or(u32::MAX, |used| used.stream);
        let streams = [stream(self.earlier), self.request.map_or(u32::MAX, |request| request.owner)];
        (self.kind, [self.life.allocated, earlier, self.life.freed, request, later], streams)
    }
}

/// Writes one finding with the lines that a caller resolves.
pub(crate) struct Writer<'a> {
    pub(crate) sanitizer: &'a Sanitizer,
    pub(crate) resolve: &'a dyn Fn(Site) -> Vec<Frame>,
    pub(crate) found: &'a Found,
}

impl Writer<'_> {
    pub(crate) fn finding(&self) -> Finding {
        let Found { kind, life, earlier, request, later, at, count, .. } = self.found;
        let allocated = match kind {
            FindingKind::HostAccessTooEarly => "allocated".to_owned(),
            _ => format!("allocated on {}", self.stream(life.owner)),
        };
        let mut steps = vec![self.step(allocated, life.allocated)];
        steps.extend(earlier.iter().map(|used| self.use_step("", used)));
        if life.freed != Site::default() || request.is_some() || *kind == FindingKind::UsedAfterFree {
            steps.push(self.step("freed".to_owned(), life.freed));
        }
        steps.extend(request.iter().map(|given| {
            let what = format!("given to a request of {} on {}", Bytes(given.bytes), self.stream(given.owner));
            self.step(what, given.allocated)
        }));
        steps.extend(later.iter().map(|used| self.use_step("then ", used)));
        match kind {
            FindingKind::UnmappedTooEarly => steps.push(self.step("unmapped".to_owned(), *at)),
            FindingKind::HostAccessTooEarly => steps.push(self.step("then accessed by the host".to_owned(), *at)),
            _ => {}
        }
        Finding {
            kind: *kind,
            count: *count,
            address: life.address,
            bytes: life.bytes,
            description: self.sanitizer.text_of(life.description).to_owned(),
            missing: self.missing(&steps),
            steps,
        }
    }

    fn step(&self, what: String, site: Site) -> Step {
        let frames = if site == Site::default() { Vec::new() } else { (self.resolve)(site) };
        Step { what, lines: self.sanitizer.shown(frames).iter().map(SourceLine::of).collect() }
    }

    fn use_step(&self, then: &str, used: &StreamUse) -> Step {
        let verb = if used.access == Use::Read { "read" } else { "written" };
        let by = self.sanitizer.text_of(used.by);
        let by = if by.is_empty() { String::new() } else { format!(" by {by}") };
        self.step(format!("{then}{verb} on {}{by}", self.stream(used.stream)), used.site)
    }

    /// A stream with its letter and its handle.
    fn stream(&self, index: u32) -> String {
        format!("stream {} ({})", self.letter(index), self.sanitizer.stream_name(index))
    }

    /// The letter of a stream: A is the owner's, the next one is that of the use.
    fn letter(&self, index: u32) -> char {
        let Found { life, earlier, request, later, .. } = self.found;
        let owner = Some(life.owner).filter(|_| self.found.kind != FindingKind::HostAccessTooEarly);
        let of_use = |used: &Option<StreamUse>| used.map(|used| used.stream);
        let streams = [owner, of_use(earlier), request.map(|given| given.owner), of_use(later)];
        let mut letters: Vec<u32> = Vec::new();
        for stream in streams.into_iter().flatten() {
            if !letters.contains(&stream) {
                letters.push(stream);
            }
        }
        let lettered = ('A'..='D').zip(letters).find(|(_, stream)| *stream == index);
        lettered.map_or('?', |(letter, _)| letter)
    }

    /// What would have ordered the two uses.
    fn missing(&self, steps: &[Step]) -> String {
        let place = |what: &str| {
            let step = steps.iter().find(|step| step.what.starts_with(what));
            let line = step.and_then(|step| step.lines.first());
            line.map_or_else(String::new, |line| format!(" before {}:{}", line.file, line.line))
        };
        let Found { kind, life, earlier, request, later, .. } = self.found;
        match (kind, earlier) {
            (FindingKind::ReusedTooEarly | FindingKind::UnmappedTooEarly, Some(earlier)) => {
                let used = self.letter(earlier.stream);
                let Some(next) = later.map(|used| used.stream).or(request.map(|given| given.owner)) else {
                    let record = self.record_stream(used);
                    return format!("nothing orders {used} before the unmap. Call {record}{}.", place("freed"));
                };
                let (next, wait) = (self.letter(next), self.wait_stream(self.letter(next), used));
                if earlier.stream == life.owner {
                    return format!("nothing orders {used} before {next}. Call {wait}{}.", place("then "));
                }
                let (record, free, given) = (self.record_stream(used), place("freed"), place("given to"));
                format!("nothing orders {used} before {next}. Call {record}{free}, or {wait}{given}.")
            }
            (FindingKind::HostAccessTooEarly, Some(earlier)) => {
                let used = self.letter(earlier.stream);
                format!("a synchronization of {used}, or of an event after that use{}.", place("then accessed"))
            }
            (FindingKind::ReadBeforeWritten, _) => format!("a write of this memory{}.", place("then ")),
            (FindingKind::UsedAsleep, _) => format!("a wake of the pool{}.", place("then ")),
            _ => "the memory has no owner at that use. Keep it until the use is queued.".into(),
        }
    }

    fn record_stream(&self, stream: char) -> String {
        match self.sanitizer.language() {
            Language::Rust => format!("`x.record_stream(&{stream})`"),
            Language::Python => format!("`x.record_stream({stream})`"),
        }
    }

    fn wait_stream(&self, stream: char, other: char) -> String {
        match self.sanitizer.language() {
            Language::Rust => format!("`stream_wait` of {stream} for an event of {other}"),
            Language::Python => format!("`{stream}.wait_stream({other})`"),
        }
    }
}
