//! A device's events as steps over allocations, each of which is kept once.
//!
//! Events name memory by address, and one address serves many allocations. Here every allocation has a number, in the
//! order in which they were made, and a step says what happened to which. What began before the first event, or was
//! held at the end although no event says so, is completed from what was held.

use std::collections::{HashMap, HashSet};

use cachette_snapshot::{Block, BlockState, DeviceParts, Event, Segment, StackId, TextId, TraceAction};

/// Memory that a caller had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Allocation {
    pub(crate) address: u64,
    pub(crate) bytes: u64,
    pub(crate) stream: u64,
    pub(crate) pool: u32,
    pub(crate) stack: StackId,
    pub(crate) forward_stack: StackId,
    pub(crate) metadata: TextId,
    pub(crate) context: TextId,
}

/// What a step does; `page/decode.js` has the same numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Op {
    /// A caller got the allocation.
    Begin,
    /// The caller gave it back.
    End,
    /// Its memory is free for others.
    Done,
    /// The device gave memory.
    Grow,
    /// Memory went back to the device.
    Shrink,
    /// A request failed.
    OutOfMemory,
    /// A snapshot was taken.
    Snapshot,
}

/// One thing that happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) time_us: i64,
    pub(crate) op: Op,
    /// The number of an allocation for the first three; else the event's place in [`History::others`].
    pub(crate) subject: usize,
}

/// What happened to the memory of one device.
#[derive(Debug, Default)]
pub(crate) struct History<'a> {
    /// In the order in which they were made; the first of them before the first event.
    pub(crate) allocations: Vec<Allocation>,
    /// How many were made before the first event.
    pub(crate) before: usize,
    pub(crate) steps: Vec<Step>,
    /// Events that are of no allocation.
    pub(crate) others: Vec<&'a Event>,
}

/// An allocation before all of those made before the first event are known, and so their numbers.
#[derive(Clone, Copy, Debug)]
enum Number {
    Before(usize),
    Since(usize),
}

/// The walk over the events.
#[derive(Debug, Default)]
struct Walk<'a> {
    before: Vec<Allocation>,
    since: Vec<Allocation>,
    steps: Vec<(i64, Op, Option<Number>, usize)>,
    others: Vec<&'a Event>,
    /// What callers have.
    held: HashMap<u64, Number>,
    /// Freed blocks that cannot be reused yet.
    pending: HashMap<u64, Number>,
    seen: HashSet<u64>,
    /// Times never go back: the order of the events is what counts.
    now: i64,
}

impl<'a> History<'a> {
    pub(crate) fn of(parts: &DeviceParts<'a>) -> Self {
        let mut walk = Walk { now: i64::MIN, ..Walk::default() };
        for event in parts.traces.iter().flat_map(|trace| &trace.events) {
            walk.event(event);
        }
        if walk.now == i64::MIN {
            walk.now = 0;
        }
        for segment in &parts.segments {
            for block in &segment.blocks {
                walk.block(segment, block);
            }
        }
        walk.finish()
    }

    /// For every address that an allocation lies at in the end, the number of that allocation.
    pub(crate) fn at_the_end(&self) -> HashMap<u64, usize> {
        let mut places = HashMap::new();
        for (number, allocation) in self.allocations[..self.before].iter().enumerate() {
            places.insert(allocation.address, number);
        }
        for step in &self.steps {
            let Some(allocation) = self.allocations.get(step.subject) else { continue };
            match step.op {
                Op::Begin => {
                    places.insert(allocation.address, step.subject);
                }
                Op::Done if places.get(&allocation.address) == Some(&step.subject) => {
                    places.remove(&allocation.address);
                }
                _ => {}
            }
        }
        places
    }
}

impl<'a> Walk<'a> {
    fn event(&mut self, event: &'a Event) {
        self.now = self.now.max(event.time_us);
        match event.action {
            TraceAction::Alloc => self.begin(event.into()),
            TraceAction::FreeRequested => self.end(event),
            TraceAction::FreeCompleted => self.done(event),
            TraceAction::SegmentAlloc | TraceAction::SegmentMap => self.other(Op::Grow, event),
            TraceAction::SegmentFree | TraceAction::SegmentUnmap => self.other(Op::Shrink, event),
            TraceAction::OutOfMemory => self.other(Op::OutOfMemory, event),
            TraceAction::Snapshot => self.other(Op::Snapshot, event),
            TraceAction::Annotate => self.annotate(event),
        }
    }

    /// Adds metadata to an allocation that has none. Allocations from before the first event are not known here.
    fn annotate(&mut self, event: &Event) {
        if let Some(Number::Since(number)) = self.held.get(&event.address) {
            let metadata = &mut self.since[*number].metadata;
            *metadata = if *metadata == TextId::NONE { event.metadata } else { *metadata };
        }
    }

    /// What is still there at this address ended without an event: its kind may not have been recorded.
    fn begin(&mut self, allocation: Allocation) {
        if let Some(number) = self.held.remove(&allocation.address) {
            self.step(Op::End, number);
            self.step(Op::Done, number);
        }
        if let Some(number) = self.pending.remove(&allocation.address) {
            self.step(Op::Done, number);
        }
        let number = Number::Since(self.since.len());
        self.seen.insert(allocation.address);
        self.held.insert(allocation.address, number);
        self.since.push(allocation);
        self.step(Op::Begin, number);
    }

    fn end(&mut self, event: &Event) {
        let number = match self.held.remove(&event.address) {
            Some(number) => number,
            None if self.seen.contains(&event.address) => return,
            None => self.made_before(event),
        };
        self.step(Op::End, number);
        self.pending.insert(event.address, number);
    }

    fn done(&mut self, event: &Event) {
        if !self.pending.contains_key(&event.address) {
            self.end(event);
        }
        if let Some(number) = self.pending.remove(&event.address) {
            self.step(Op::Done, number);
        }
    }

    /// An allocation of which only the end was recorded; the stack of its end is not where it was made.
    fn made_before(&mut self, event: &Event) -> Number {
        let unknown = Allocation {
            stack: StackId::NONE,
            forward_stack: StackId::NONE,
            metadata: TextId::NONE,
            context: TextId::NONE,
            ..event.into()
        };
        self.seen.insert(event.address);
        self.before.push(unknown);
        Number::Before(self.before.len() - 1)
    }

    /// Makes sure that what is held at the end is an allocation.
    fn block(&mut self, segment: &Segment, block: &Block) {
        let known = match block.state {
            BlockState::Allocated => self.held.contains_key(&block.address),
            BlockState::Pending => self.pending.contains_key(&block.address),
            BlockState::Free => true,
        };
        if known {
            return;
        }
        let allocation = Allocation {
            address: block.address,
            bytes: block.requested,
            stream: segment.stream,
            pool: segment.pool,
            stack: block.stack,
            ..Allocation::default()
        };
        if self.seen.contains(&block.address) {
            self.begin(allocation);
        } else {
            self.held.insert(block.address, Number::Before(self.before.len()));
            self.before.push(allocation);
        }
        if block.state == BlockState::Pending
            && let Some(number) = self.held.remove(&block.address)
        {
            self.step(Op::End, number);
        }
    }

    fn step(&mut self, op: Op, number: Number) {
        self.steps.push((self.now, op, Some(number), 0));
    }

    fn other(&mut self, op: Op, event: &'a Event) {
        self.steps.push((self.now, op, None, self.others.len()));
        self.others.push(event);
    }

    fn finish(self) -> History<'a> {
        let before = self.before.len();
        let place = |number| match number {
            Number::Before(index) => index,
            Number::Since(index) => before + index,
        };
        let steps = self.steps.into_iter();
        let steps =
            steps.map(|(time_us, op, number, other)| Step { time_us, op, subject: number.map_or(other, place) });
        History { before, steps: steps.collect(), allocations: [self.before, self.since].concat(), others: self.others }
    }
}

impl From<&Event> for Allocation {
    fn from(event: &Event) -> Self {
        Self {
            address: event.address,
            bytes: event.bytes,
            stream: event.stream,
            pool: event.pool,
            stack: event.stack,
            forward_stack: event.forward_stack,
            metadata: event.metadata,
            context: event.context,
        }
    }
}

#[cfg(test)]
mod tests;
