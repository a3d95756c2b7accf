//! From a history to the events of a snapshot.

use std::sync::Arc;

use cachette_snapshot::{Event, StackId, TextId, Trace};

use crate::observe::history::{self, Noted, Recording, Scale};
use crate::observe::snapshot::build::SnapshotBuilder;
use crate::pool::PoolId;

impl SnapshotBuilder<'_> {
    /// Adds what happened; in one pool alone if there is an `only`.
    pub(super) fn add_trace(&mut self, recording: &Arc<Recording>, only: Option<PoolId>, scale: &Scale) {
        let only = only.map(|only| recording.number_of(only));
        let noted = recording.events();
        let mut words = Words::default();
        let mut events = Vec::with_capacity(noted.len());
        let wanted = |noted: &Noted| only.is_none_or(|only| noted.pool == only);
        events.extend(noted.flatten().filter(wanted).map(|noted| Event {
            metadata: words.number_of(noted.said.metadata),
            context: words.number_of(noted.said.context),
            ..event_of(&noted, scale)
        }));
        let known = history::texts();
        // In the order of their numbers, so that each gets the one it has.
        for text in words.used {
            self.snapshot.texts.add(known.get(text));
        }
        drop(known);
        self.snapshot.traces.push(Trace { device: self.device(), events });
    }
}

/// An event without what the thread said.
fn event_of(noted: &Noted, scale: &Scale) -> Event {
    Event {
        address: noted.address,
        bytes: noted.bytes,
        stream: noted.stream,
        time_us: scale.epoch_us(noted.ticks),
        stack: StackId(noted.stack),
        forward_stack: StackId::NONE,
        metadata: TextId::NONE,
        context: TextId::NONE,
        pool: noted.pool,
        action: noted.action,
    }
}

/// The words that events use, each numbered when it first comes.
#[derive(Debug, Default)]
struct Words {
    /// By the number in the process.
    numbers: Vec<TextId>,
    used: Vec<TextId>,
}

impl Words {
    #[inline]
    fn number_of(&mut self, text: TextId) -> TextId {
        if text == TextId::NONE {
            return text;
        }
        let index = text.0 as usize;
        if index >= self.numbers.len() {
            self.numbers.resize(index + 1, TextId::NONE);
        }
        if self.numbers[index] == TextId::NONE {
            self.used.push(text);
            self.numbers[index] = TextId(u32::try_from(self.used.len()).unwrap_or(0));
        }
        self.numbers[index]
    }
}
