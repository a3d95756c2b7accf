//! The state of an active history.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use cachette_snapshot::{Event, StackId, TextId};

use crate::observe::callbacks::{TraceAction, bit};
use crate::observe::history::annotations::{Listener, said};
use crate::observe::history::options::{HistoryOptions, Level};
use crate::observe::history::stacks::{Gathered, StackSource, gathered};
use crate::out_of_memory::{AllocationSites, RecordedSites};
use crate::pool::PoolId;
use crate::sync::clock::{self, Scale};
use crate::sync::{Mutex, Ring, RingWriter, RwLock};

/// The most pools that events can distinguish; further ones share the last number.
const MOST_POOLS: usize = 1 << 24;

const WORDS: usize = 6;

#[derive(Default)]
pub(crate) struct History {
    /// Held while a history begins or ends, so that all heaps end up in the same state.
    switch: Mutex<()>,
    current: RwLock<Option<Arc<Recording>>>,
    /// The source that resolves the stacks of heaps, even after the history has stopped.
    source: RwLock<Option<Arc<dyn StackSource>>>,
    /// The sites of the last out-of-memory report.
    reported: Mutex<Weak<RecordedSites>>,
}

impl History {
    pub(crate) fn current(&self) -> Option<Arc<Recording>> {
        self.current.read().clone()
    }

    /// Returns the source that resolves the stacks of memory in use.
    pub(crate) fn source(&self) -> Option<Arc<dyn StackSource>> {
        self.source.read().clone()
    }

    /// Begins or ends a history. `tell` passes it to the heaps, with whether stacks stay, and returns if any has some.
    pub(crate) fn switch(
        &self,
        options: Option<HistoryOptions>,
        tell: impl FnOnce(Option<&Arc<Recording>>, bool) -> bool,
    ) {
        let _alone = self.switch.lock();
        let (known, source) = (self.source(), options.as_ref().and_then(|options| options.source.clone()));
        // Whether the stacks of the heaps stay valid in the next history, and are kept.
        let same = known.as_ref().zip(source.as_ref()).is_none_or(|(one, other)| one.numbering() == other.numbering());
        let keeps = same && options.as_ref().is_none_or(|options| !options.clear);
        let before = self.current().filter(|_| keeps);
        let next = options.map(|options| Arc::new(Recording::after(before.as_deref(), options)));
        let known = self.set_source(source.or(known.filter(|_| keeps)));
        // This comes before `tell`: a heap that is created in between reads it.
        self.current.write().clone_from(&next);
        let any = tell(next.as_ref(), keeps);
        if next.is_none() && !any {
            self.set_source(None);
        }
        // The last report may live long. It names its sites, so that it does not keep the source.
        if !keeps || (next.is_none() && !any) {
            let reported = std::mem::take(&mut *self.reported.lock());
            reported.upgrade().iter().for_each(|sites| sites.resolve());
        }
        // The drop of a source may run any code, so its lock is not held.
        drop(known);
    }

    /// Notes the sites of an out-of-memory report.
    pub(crate) fn note_report(&self, sites: &AllocationSites) {
        *self.reported.lock() = Arc::downgrade(sites.recorded());
    }

    fn set_source(&self, source: Option<Arc<dyn StackSource>>) -> Option<Arc<dyn StackSource>> {
        std::mem::replace(&mut *self.source.write(), source)
    }

    /// Captures the stack of this thread, if the history records stacks at `level`.
    pub(crate) fn gather(&self, level: Level) -> Option<Gathered> {
        let current = self.current()?;
        Gathered::from(current.source_for(level)?)
    }
}

pub(crate) struct Recording {
    options: HistoryOptions,
    ring: Arc<Ring<WORDS>>,
    pub(crate) pools: PoolNumbers,
    /// Writes the events that belong to no heap.
    own: Mutex<HistoryWriter>,
    /// Annotations are recorded while it lives.
    #[expect(dead_code, reason = "held for what its end does")]
    listener: Listener,
}

/// The state with which a heap writes its events.
#[derive(Debug, Default)]
pub(crate) struct HistoryWriter {
    pub(crate) slots: RingWriter,
    pub(crate) stream: u64,
    /// The index of the pool in the recording's list.
    pub(crate) pool: u32,
    /// The time of the last event, so that events are in order.
    pub(crate) last: u64,
}

impl Recording {
    fn after(before: Option<&Self>, mut options: HistoryOptions) -> Self {
        if options.source.is_none() {
            // No stacks are captured without a source.
            options.level = Level::None;
        }
        let pools = before.map_or_else(PoolNumbers::default, |before| before.pools.clone());
        let ring = match before {
            Some(before) if before.options.max_entries == options.max_entries => Arc::clone(&before.ring),
            _ => {
                let (ring, mut slots) = (Ring::new(options.max_entries), RingWriter::default());
                for words in before.into_iter().flat_map(|before| before.newest(options.max_entries)).flatten() {
                    ring.write(&mut slots, words);
                }
                Arc::new(ring)
            }
        };
        Self { options, ring, pools, own: Mutex::default(), listener: Listener::new() }
    }

    pub(crate) fn source(&self) -> Option<Arc<dyn StackSource>> {
        self.options.source.clone()
    }

    #[inline]
    pub(crate) fn source_for(&self, level: Level) -> Option<&dyn StackSource> {
        if self.options.level < level {
            return None;
        }
        self.options.source.as_deref()
    }

    /// Returns whether events and segments have stacks too, and not only blocks in use.
    #[inline]
    pub(crate) fn keeps_of_events(&self) -> bool {
        self.options.level >= Level::Alloc
    }

    /// Writes an event, unless its action is excluded.
    #[inline]
    pub(crate) fn write(&self, to: &mut HistoryWriter, action: TraceAction, address: u64, bytes: u64, stack: u32) {
        if self.options.skip & bit(action) != 0 {
            return;
        }
        to.last = clock::now().max(to.last);
        let stack = if self.keeps_of_events() { stack } else { 0 };
        let (metadata, context) = said();
        let two = |upper: u32, lower: u32| u64::from(upper) << 32 | u64::from(lower);
        let what = two(stack, to.pool << 8 | u32::from(action as u8));
        self.ring.write(&mut to.slots, [to.last, address, bytes, to.stream, what, two(metadata.0, context.0)]);
    }

    pub(crate) fn write_snapshot(&self, pool: PoolId, bytes: u64) {
        let mut own = self.own.lock();
        own.pool = self.pools.number_of(pool);
        self.write(&mut own, TraceAction::Snapshot, 0, bytes, gathered());
    }

    /// Returns the newest events, at most the configured number, oldest first.
    pub(crate) fn events(&self, scale: &Scale) -> impl ExactSizeIterator<Item = Option<Event>> {
        self.newest(self.options.max_entries).map(|words| event_of(words?, scale))
    }

    /// Sorts by times and tickets, and then reads the events. One that was overwritten in between is `None`.
    #[expect(
        clippy::stable_sort_primitive,
        reason = "what each heap wrote is in order already, and only a stable sort makes use of that"
    )]
    fn newest(&self, most: u64) -> impl ExactSizeIterator<Item = Option<[u64; WORDS]>> {
        let mut keys: Vec<_> = self.ring.all().map(|written| (written.words[0], written.ticket)).collect();
        keys.sort();
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let older = keys.len().saturating_sub(most);
        let newest = keys.into_iter().skip(older);
        newest.map(|(_, ticket)| Some(self.ring.find(ticket)?.words))
    }
}

/// Decodes an event from six words. Its stack and texts have process-wide numbers. Returns `None` for unknown actions.
fn event_of([ticks, address, bytes, stream, what, said]: [u64; WORDS], scale: &Scale) -> Option<Event> {
    let halves = |word: u64| ((word >> 32) as u32, (word & 0xFFFF_FFFF) as u32);
    let ((stack, what), (metadata, context)) = (halves(what), halves(said));
    Some(Event {
        address,
        bytes,
        stream,
        time_us: scale.epoch_us(ticks),
        stack: StackId(stack),
        forward_stack: StackId::NONE,
        metadata: TextId(metadata),
        context: TextId(context),
        pool: what >> 8,
        action: *TraceAction::ALL.get((what & 0xFF) as usize)?,
    })
}

/// The pools of events. An event stores the index in this list; the first is the default pool.
#[derive(Clone)]
pub(crate) struct PoolNumbers(Arc<Mutex<NumberedPools>>);

struct NumberedPools {
    pools: Vec<PoolId>,
    numbers: HashMap<PoolId, u32>,
}

impl Default for PoolNumbers {
    fn default() -> Self {
        let numbers = HashMap::from([(PoolId::DEFAULT, 0)]);
        Self(Arc::new(Mutex::new(NumberedPools { pools: vec![PoolId::DEFAULT], numbers })))
    }
}

impl PoolNumbers {
    pub(crate) fn number_of(&self, pool: PoolId) -> u32 {
        let NumberedPools { pools, numbers } = &mut *self.0.lock();
        if let Some(number) = numbers.get(&pool) {
            return *number;
        }
        if pools.len() < MOST_POOLS {
            pools.push(pool);
        }
        let number = u32::try_from(pools.len() - 1).unwrap_or(0);
        numbers.insert(pool, number);
        number
    }

    pub(crate) fn all(&self) -> Vec<PoolId> {
        self.0.lock().pools.clone()
    }
}
