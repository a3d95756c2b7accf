//! The state of a history that is being recorded.

use std::sync::Arc;

use cachette_snapshot::{Event, StackId, TextId};

use crate::observe::callbacks::{TraceAction, bit};
use crate::observe::history::annotations::Listener;
use crate::observe::history::clock::{self, Scale};
use crate::observe::history::metadata::said;
use crate::observe::history::options::{HistoryOptions, Level};
use crate::observe::history::stacks::{Gathered, StackSource, gathered};
use crate::pool::PoolId;
use crate::sync::{Mutex, Ring, RingWriter, RwLock};

/// Pools that an event can name; further ones share the last number.
const MOST_POOLS: usize = 1 << 24;

/// Words of an event.
const WORDS: usize = 6;

/// The history of one allocator, if it has one.
#[derive(Debug, Default)]
pub(crate) struct History {
    /// Held while a history begins or ends, so that all heaps end up with the same.
    switch: Mutex<()>,
    current: RwLock<Option<Arc<Recording>>>,
    /// What resolves the stacks that heaps have, also after the history has stopped.
    source: RwLock<Option<Arc<dyn StackSource>>>,
}

impl History {
    /// What is recorded now.
    pub(crate) fn current(&self) -> Option<Arc<Recording>> {
        self.current.read().clone()
    }

    /// What resolves the stacks of memory in use.
    pub(crate) fn source(&self) -> Option<Arc<dyn StackSource>> {
        self.source.read().clone()
    }

    /// Begins or ends a history. `tell` passes it to every heap, with whether the heaps keep their stacks. It returns
    /// whether a heap has any.
    pub(crate) fn switch(
        &self,
        options: Option<HistoryOptions>,
        tell: impl FnOnce(Option<&Arc<Recording>>, bool) -> bool,
    ) {
        let _alone = self.switch.lock();
        let (known, source) = (self.source(), options.as_ref().and_then(|options| options.source.clone()));
        // Whether the stacks that heaps have mean the same in the next history, and are not to be forgotten.
        let same = known.as_ref().zip(source.as_ref()).is_none_or(|(one, other)| one.numbering() == other.numbering());
        let keeps = same && options.as_ref().is_none_or(|options| !options.clear);
        let before = self.current().filter(|_| keeps);
        let next = options.map(|options| Arc::new(Recording::after(before.as_deref(), options)));
        let known = self.set_source(source.or(known.filter(|_| keeps)));
        // Before the call of `tell`: a heap that is made meanwhile reads this.
        self.current.write().clone_from(&next);
        let any = tell(next.as_ref(), keeps);
        if next.is_none() && !any {
            self.set_source(None);
        }
        // The end of a source may run any code, so its lock is not held.
        drop(known);
    }

    fn set_source(&self, source: Option<Arc<dyn StackSource>>) -> Option<Arc<dyn StackSource>> {
        std::mem::replace(&mut *self.source.write(), source)
    }

    /// Asks where the program is, if the history wants to know that of what `level` is for.
    pub(crate) fn gather(&self, level: Level) -> Option<Gathered> {
        let current = self.current()?;
        Gathered::from(current.source_for(level)?)
    }
}

/// One history under way.
#[derive(Debug)]
pub(crate) struct Recording {
    options: HistoryOptions,
    ring: Arc<Ring<WORDS>>,
    pub(crate) pools: PoolNumbers,
    /// Writes what is no heap's.
    own: Mutex<HistoryWriter>,
    /// Annotations are kept while it lives.
    #[expect(dead_code, reason = "held for what its end does")]
    listener: Listener,
}

/// What one heap needs to write its events.
#[derive(Debug, Default)]
pub(crate) struct HistoryWriter {
    pub(crate) slots: RingWriter,
    pub(crate) stream: u64,
    /// By its place in the recording's list.
    pub(crate) pool: u32,
    /// The time of the last event, so that events are in order.
    pub(crate) last: u64,
}

impl Recording {
    /// Goes on with what was recorded before.
    fn after(before: Option<&Self>, mut options: HistoryOptions) -> Self {
        if options.source.is_none() {
            // No stack is captured any more.
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

    /// Who knows where the program is, if that is wanted of what `level` is for.
    #[inline]
    pub(crate) fn source_for(&self, level: Level) -> Option<&dyn StackSource> {
        if self.options.level < level {
            return None;
        }
        self.options.source.as_deref()
    }

    /// Whether stacks are kept for events and segments too, and not for blocks in use alone.
    #[inline]
    pub(crate) fn keeps_of_events(&self) -> bool {
        self.options.level >= Level::Alloc
    }

    /// Writes an event, unless its action is left out.
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

    /// Writes that a snapshot was taken.
    pub(crate) fn write_snapshot(&self, pool: PoolId, bytes: u64) {
        let mut own = self.own.lock();
        own.pool = self.pools.number_of(pool);
        self.write(&mut own, TraceAction::Snapshot, 0, bytes, gathered());
    }

    /// The newest events, as many as are to be kept, oldest first.
    pub(crate) fn events(&self, scale: &Scale) -> impl ExactSizeIterator<Item = Option<Event>> {
        self.newest(self.options.max_entries).map(|words| event_of(words?, scale))
    }

    /// They are put in order by their times and tickets alone, and read again one by one: what was overwritten since
    /// is `None`.
    #[expect(
        clippy::stable_sort_primitive,
        reason = "what each heap wrote is in order already, and only a stable sort makes use of that"
    )]
    fn newest(&self, most: u64) -> impl ExactSizeIterator<Item = Option<[u64; WORDS]>> {
        let mut keys = Vec::with_capacity(self.ring.slots());
        keys.extend(self.ring.all().map(|written| (written.words[0], written.ticket)));
        keys.sort();
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let older = keys.len().saturating_sub(most);
        let newest = keys.into_iter().skip(older);
        newest.map(|(_, ticket)| Some(self.ring.find(ticket)?.words))
    }
}

/// The event that six words stand for. Its stack and texts have the numbers of the process; `None` for an unknown action.
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

/// The pools of events, which name them by their place here. The first is the default pool.
#[derive(Clone, Debug)]
pub(crate) struct PoolNumbers(Arc<Mutex<Vec<PoolId>>>);

impl Default for PoolNumbers {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(vec![PoolId::DEFAULT])))
    }
}

impl PoolNumbers {
    pub(crate) fn number_of(&self, pool: PoolId) -> u32 {
        let mut pools = self.0.lock();
        let number = pools.iter().position(|known| *known == pool);
        let number = number.unwrap_or_else(|| {
            if pools.len() < MOST_POOLS {
                pools.push(pool);
            }
            pools.len() - 1
        });
        u32::try_from(number).unwrap_or(0)
    }

    pub(crate) fn all(&self) -> Vec<PoolId> {
        self.0.lock().clone()
    }
}
