//! Turns what was found into findings with source lines.

use cachette_hal::Use;

use crate::Sanitizer;
use crate::finding::{Finding, FindingKind, SourceLine, Step, size};
use crate::memory::{PastLife, Site, StreamUse};
use crate::sanitizer::Language;
use cachette::history::Frame;

/// The most lines of a step: the place itself and its callers.
const MOST_LINES: usize = 3;

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

/// Writes findings with the lines that a caller resolves.
pub(crate) struct Writer<'a> {
    pub(crate) sanitizer: &'a Sanitizer,
    pub(crate) resolve: &'a dyn Fn(Site) -> Vec<Frame>,
}

impl Writer<'_> {
    pub(crate) fn finding(&self, found: &Found) -> Finding {
        let Found { kind, life, earlier, request, later, at, count, .. } = found;
        let allocated = match kind {
            FindingKind::HostAccessTooEarly => "allocated".to_owned(),
            _ => format!("allocated on {}", self.stream(life.owner)),
        };
        let mut steps = vec![self.step(allocated, life.allocated)];
        let of_use = |used: &StreamUse, then: &str| {
            let verb = if used.access == Use::Read { "read" } else { "written" };
            let by = self.sanitizer.text_of(used.by);
            let by = if by.is_empty() { String::new() } else { format!(" by {by}") };
            self.step(format!("{then}{verb} on {}{by}", self.stream(used.stream)), used.site)
        };
        steps.extend(earlier.iter().map(|used| of_use(used, "")));
        if life.freed != Site::default() || request.is_some() || *kind == FindingKind::UsedAfterFree {
            steps.push(self.step("freed".to_owned(), life.freed));
        }
        steps.extend(request.iter().map(|given| {
            let what = format!("given to a request of {} on {}", size(given.bytes), self.stream(given.owner));
            self.step(what, given.allocated)
        }));
        steps.extend(later.iter().map(|used| of_use(used, "then ")));
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
            missing: self.missing(found, &steps),
            steps,
        }
    }

    fn step(&self, what: String, site: Site) -> Step {
        let frames = if site == Site::default() { Vec::new() } else { (self.resolve)(site) };
        let is_user = |frame: &&Frame| !self.sanitizer.is_library(frame);
        let mut lines: Vec<SourceLine> = frames.iter().filter(is_user).take(MOST_LINES).map(SourceLine::of).collect();
        if lines.is_empty() {
            lines.extend(frames.first().map(SourceLine::of));
        }
        Step { what, lines }
    }

    fn stream(&self, index: u32) -> String {
        self.sanitizer.stream_name(index)
    }

    /// What would have ordered the two uses.
    fn missing(&self, found: &Found, steps: &[Step]) -> String {
        let place = |what: &str| {
            let step = steps.iter().find(|step| step.what.starts_with(what));
            let line = step.and_then(|step| step.lines.first());
            line.map_or_else(String::new, |line| format!(" before {}:{}", line.file, line.line))
        };
        let python = self.sanitizer.language() == Language::Python;
        match found.kind {
            FindingKind::ReusedTooEarly | FindingKind::UnmappedTooEarly => {
                let Some(earlier) = found.earlier else { return String::new() };
                let (used, owner) = (self.stream(earlier.stream), self.stream(found.life.owner));
                let later = found.later.map(|used| used.stream).or(found.request.map(|request| request.owner));
                let next = later.map_or_else(|| "the host".to_owned(), |stream| self.stream(stream));
                let wait = match (later, python) {
                    (None, _) => format!("a synchronization of {used}"),
                    (Some(_), true) => format!("`wait_stream` of {next} for {used}"),
                    (Some(_), false) => format!("a wait of {next} for an event of {used}"),
                };
                let wait_at = if found.request.is_some() { place("given to") } else { place("unmapped") };
                if used == owner {
                    let then = if found.later.is_some() { place("then ") } else { wait_at };
                    return format!("nothing orders the work of {used} before {next}. Add {wait}{then}.");
                }
                let record = if python {
                    format!("`x.record_stream({used})` on this tensor")
                } else {
                    format!("`record_stream({used})` on this allocation")
                };
                let free = place("freed");
                format!("nothing orders {used} before {next}. Add {record}{free}, or {wait}{wait_at}.")
            }
            FindingKind::UsedAfterFree => {
                "the memory has no owner at that use. Keep it until the use is queued.".into()
            }
            FindingKind::ReadBeforeWritten => {
                format!("no write of this memory is ordered before the read{}.", place("then "))
            }
            FindingKind::HostAccessTooEarly => {
                let stream = found.earlier.map_or_else(String::new, |used| self.stream(used.stream));
                format!("a synchronization of {stream}, or of an event after that use{}.", place("then accessed"))
            }
            FindingKind::UsedAsleep => format!("a wake of the pool{}.", place("then ")),
        }
    }
}
