//! Events: marks in streams, replaced by later ones.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cachette_hal::{Call, ErrorKind, Event, Progress, Result, StreamRef};

use super::State;
use super::graph::Node;
use super::work::Work;
use crate::checks::{check, fail};
use crate::defect::Defect;
use crate::engine::machine::Machine;

/// A position in a stream, which the stream has reached or not; also the end of a hold.
///
/// Every record creates a new one, so that a later record does not affect a wait for an old one.
#[derive(Debug, Default)]
pub(crate) struct Marker(AtomicBool);

impl Marker {
    pub(super) fn is_done(&self) -> bool {
        // Acquire: pairs with the release in `finish`, so that the work before the mark is visible.
        self.0.load(Ordering::Acquire)
    }

    pub(super) fn finish(&self) {
        // Release: pairs with the acquire in `is_done`.
        self.0.store(true, Ordering::Release);
    }
}

#[derive(Debug)]
pub(super) struct EventState {
    device: usize,
    last: Record,
}

#[derive(Clone, Debug)]
pub(super) enum Record {
    Never,
    Marked(Arc<Marker>),
    /// A position in a capture: the nodes before it.
    Captured {
        /// The capture, which may have ended.
        capture: u64,
        after: Vec<Node>,
    },
}

impl State {
    fn find_event(&self, call: Call, event: &Event) -> Result<&EventState> {
        match self.events.get(&event.raw()) {
            Some(found) => Ok(found),
            None => fail(call, ErrorKind::InvalidHandle),
        }
    }

    /// Returns the newest mark of an event, if it has one.
    pub(super) fn newest(&self, event: usize) -> Option<&Marker> {
        match &self.events.get(&event)?.last {
            Record::Marked(marker) => Some(marker),
            _ => None,
        }
    }
}

impl Machine {
    pub(crate) fn create_event(&self, device: usize) -> Event {
        let mut state = self.state();
        if self.lies(Defect::HandlesReused)
            && let Some(handle) = state.events.keys().next()
        {
            return Event::from_raw(*handle);
        }
        let handle = self.handle();
        let last = Record::Never;
        state.events.insert(handle, EventState { device, last });
        Event::from_raw(handle)
    }

    /// Destroys an event; queued waits keep their mark.
    pub(crate) fn destroy_event(&self, device: usize, event: &Event) -> Result<()> {
        let mut state = self.state();
        let owner = state.find_event(Call::DestroyEvent, event)?.device;
        check(owner == device, Call::DestroyEvent, ErrorKind::InvalidHandle)?;
        state.events.remove(&event.raw());
        Ok(())
    }

    pub(crate) fn record(self: &Arc<Self>, device: usize, event: &Event, stream: StreamRef) -> Result<()> {
        let call = Call::Record;
        let mut state = self.state();
        let key = state.find_any_stream(call, device, stream)?;
        let last = &state.find_event(call, event)?.last;
        if self.lies(Defect::FirstRecordSticks) && matches!(last, Record::Marked(_)) {
            return Ok(());
        }
        let record = if let Some((capture, after)) = state.capture_end(call, key)? {
            Record::Captured { capture, after }
        } else {
            let marker = Arc::<Marker>::default();
            let work = Work::Record(Arc::clone(&marker));
            self.enqueue(call, &mut state, key, work)?;
            Record::Marked(marker)
        };
        if let Some(event) = state.events.get_mut(&event.raw()) {
            event.last = record;
        }
        Ok(())
    }

    pub(crate) fn poll(&self, event: &Event) -> Result<Progress> {
        let marker = self.marker(Call::Poll, event)?;
        if self.lies(Defect::EventDoneTooEarly) || marker.is_none_or(|marker| marker.is_done()) {
            return Ok(Progress::Done);
        }
        self.polled_in_vain();
        Ok(Progress::Pending)
    }

    pub(crate) fn wait(&self, device: usize, event: &Event) -> Result<()> {
        let marker = self.marker(Call::Wait, event)?;
        if let Some(marker) = marker
            && !self.lies(Defect::HostWaitReturnsEarly)
        {
            self.block_until(Call::Wait, |_| marker.is_done())?;
        }
        self.check_fault(device, Call::Wait)
    }

    /// Returns the last mark, if there is one. A query of a captured record breaks the capture.
    fn marker(&self, call: Call, event: &Event) -> Result<Option<Arc<Marker>>> {
        let mut state = self.state();
        match state.find_event(call, event)?.last.clone() {
            Record::Never => Ok(None),
            Record::Marked(marker) => Ok(Some(marker)),
            Record::Captured { capture, .. } => {
                self.break_capture(&mut state, capture);
                fail(call, ErrorKind::CaptureForbids)
            }
        }
    }

    pub(crate) fn stream_wait(self: &Arc<Self>, device: usize, stream: StreamRef, event: &Event) -> Result<()> {
        let call = Call::StreamWait;
        let mut state = self.state();
        let key = state.find_any_stream(call, device, stream)?;
        let last = state.find_event(call, event)?.last.clone();
        if self.lies(Defect::WaitIgnored) {
            return Ok(());
        }
        match last {
            Record::Never => Ok(()),
            Record::Captured { capture, after } => self.join_capture(&mut state, key, capture, &after),
            Record::Marked(marker) => {
                // A graph cannot depend on work outside of it.
                self.forbid_in_capture(&mut state, call, key)?;
                let follow = self.lies(Defect::StreamWaitFollowsLaterRecords).then(|| event.raw());
                self.enqueue(call, &mut state, key, Work::Wait { marker, follow })
            }
        }
    }

    pub(crate) fn live_events(&self, device: usize) -> usize {
        let own = |event: &&EventState| event.device == device;
        self.state().events.values().filter(own).count()
    }
}
