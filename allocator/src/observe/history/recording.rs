//! The state of a history that is being recorded.

use std::sync::Arc;

use cachette_snapshot::TextId;

use crate::observe::callbacks::TraceAction;
use crate::observe::history::annotations::Listener;
use crate::observe::history::clock;
use crate::observe::history::metadata::{Said, said};
use crate::observe::history::options::{HistoryOptions, Level};
use crate::observe::history::ring::{Ring, RingEntry, RingWriter};
use crate::observe::history::stacks::{Gathered, StackSource};
use crate::pool::PoolId;
use crate::sync::{Mutex, RwLock};

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
        let keeps = options.as_ref().is_none_or(|options| options.keeps_stacks_of(known.as_ref()));
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
    /// The pools that events name by their place here; the first is the default pool.
    pub(crate) pools: Arc<Mutex<Vec<PoolId>>>,
    /// Writes what is no heap's.
    own: Mutex<RingWriter>,
    /// Annotations are kept while it lives.
    #[expect(dead_code, reason = "held for what its end does")]
    listener: Listener,
}

/// An event as it was written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Noted {
    pub(crate) ticks: u64,
    pub(crate) address: u64,
    pub(crate) bytes: u64,
    pub(crate) stream: u64,
    pub(crate) pool: u32,
    pub(crate) stack: u32,
    pub(crate) said: Said,
    pub(crate) action: TraceAction,
}

/// Where an event happened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallSite {
    pub(crate) stream: u64,
    /// By its place in the recording's list.
    pub(crate) pool: u32,
}

impl Recording {
    /// Goes on with what was recorded before.
    fn after(before: Option<&Self>, mut options: HistoryOptions) -> Self {
        if options.source.is_none() {
            // No stack is captured any more.
            options.level = Level::None;
        }
        let pools =
            before.map_or_else(|| Arc::new(Mutex::new(vec![PoolId::DEFAULT])), |before| Arc::clone(&before.pools));
        let ring = match before {
            Some(before) if before.options.max_entries == options.max_entries => Arc::clone(&before.ring),
            _ => Arc::new(Ring::new(options.max_entries)),
        };
        if let Some(before) = before.filter(|before| !Arc::ptr_eq(&before.ring, &ring)) {
            let mut pen = RingWriter::default();
            for noted in before.newest(options.max_entries).flatten() {
                ring.write(&mut pen, words_of(&noted));
            }
        }
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

    /// The number of a pool, for events.
    pub(crate) fn number_of(&self, pool: PoolId) -> u32 {
        let mut pools = self.pools.lock();
        let number = pools.iter().position(|known| *known == pool);
        let number = number.unwrap_or_else(|| {
            if pools.len() < MOST_POOLS {
                pools.push(pool);
            }
            pools.len() - 1
        });
        u32::try_from(number).unwrap_or(0)
    }

    /// Writes an event that is not before `earliest`; when it is.
    #[inline]
    pub(crate) fn write(
        &self,
        pen: &mut RingWriter,
        earliest: u64,
        (action, address, bytes): (TraceAction, u64, u64),
        place: CallSite,
        stack: u32,
    ) -> u64 {
        if self.options.skip.contain(action) {
            return earliest;
        }
        let ticks = clock::now().max(earliest);
        let noted = Noted {
            ticks,
            address,
            bytes,
            stream: place.stream,
            pool: place.pool,
            stack: if self.keeps_of_events() { stack } else { 0 },
            said: said(),
            action,
        };
        self.ring.write(pen, words_of(&noted));
        ticks
    }

    /// Writes an event that is no heap's.
    pub(crate) fn write_own(&self, event: (TraceAction, u64, u64), place: CallSite) {
        let mut pen = self.own.lock();
        self.write(&mut pen, 0, event, place, crate::observe::history::stacks::gathered());
    }

    /// The newest events, as many as are to be kept, oldest first.
    pub(crate) fn events(&self) -> impl ExactSizeIterator<Item = Option<Noted>> + '_ {
        self.newest(self.options.max_entries)
    }

    /// They are put in order by their times and tickets alone, and read again one by one: what was overwritten since
    /// is `None`.
    #[expect(
        clippy::stable_sort_primitive,
        reason = "what each heap wrote is in order already, and only a stable sort makes use of that"
    )]
    fn newest(&self, most: u64) -> impl ExactSizeIterator<Item = Option<Noted>> + '_ {
        let mut keys = Vec::with_capacity(self.ring.len());
        keys.extend(self.ring.all().map(|written| (written.words[0], written.ticket)));
        keys.sort();
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let older = keys.len().saturating_sub(most);
        let newest = keys.into_iter().skip(older);
        newest.map(|(_, ticket)| noted_of(&self.ring.find(ticket)?))
    }
}

/// An event as six words: when, where, how much, which stream; action, pool and stack; what the thread said.
#[inline]
fn words_of(noted: &Noted) -> [u64; WORDS] {
    let two = |upper: u32, lower: u32| u64::from(upper) << 32 | u64::from(lower);
    let what = noted.pool << 8 | u32::from(noted.action as u8);
    [
        noted.ticks,
        noted.address,
        noted.bytes,
        noted.stream,
        two(noted.stack, what),
        two(noted.said.metadata.0, noted.said.context.0),
    ]
}

/// The reverse; `None` for what was not written here.
fn noted_of(written: &RingEntry<WORDS>) -> Option<Noted> {
    let [ticks, address, bytes, stream, what, said] = written.words;
    let halves = |word: u64| ((word >> 32) as u32, (word & 0xFFFF_FFFF) as u32);
    let ((stack, what), (metadata, context)) = (halves(what), halves(said));
    Some(Noted {
        ticks,
        address,
        bytes,
        stream,
        pool: what >> 8,
        stack,
        said: Said { metadata: TextId(metadata), context: TextId(context) },
        action: *TraceAction::ALL.get((what & 0xFF) as usize)?,
    })
}
