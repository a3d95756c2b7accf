//! The order of work in streams, by events, host waits and captures.

use std::collections::HashMap;

use crate::clock::Clock;

/// A stream, by a number that the caller chooses, such as its handle.
///
/// The default stream of a device is the device's number, shifted left by 56 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StreamId(pub u64);

/// An event, by a number that the caller chooses, such as its handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EventId(pub u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct CaptureNumber(u64);

/// The order of work in streams.
///
/// All host threads count as one: their calls are ordered as they arrive. Locks and queues order threads too, and are
/// not seen, so anything else would report correct programs.
#[derive(Debug, Default)]
pub(crate) struct Order {
    indices: HashMap<StreamId, u32>,
    streams: Vec<StreamClock>,
    /// The last record of each event.
    events: HashMap<EventId, Recorded>,
    host: Clock,
    /// Increments with every change of `host`.
    host_version: u64,
    captures: u64,
}

#[derive(Debug)]
struct StreamClock {
    id: StreamId,
    clock: Clock,
    /// The version of the host's clock that `clock` includes.
    host_version: u64,
    capture: Option<CaptureNumber>,
}

#[derive(Debug)]
enum Recorded {
    At(Clock),
    /// The record became part of a graph.
    In(CaptureNumber),
}

impl Order {
    /// The index of a stream; a stream that is destroyed keeps it for the next one with its handle.
    pub(crate) fn index(&mut self, id: StreamId) -> u32 {
        let next = self.streams.len();
        let streams = &mut self.streams;
        *self.indices.entry(id).or_insert_with(|| {
            streams.push(StreamClock { id, clock: Clock::default(), host_version: 0, capture: None });
            u32::try_from(next).unwrap_or(u32::MAX)
        })
    }

    pub(crate) fn id(&self, index: u32) -> StreamId {
        self.streams[index as usize].id
    }

    /// All that precedes work which is queued in the stream now.
    pub(crate) fn clock(&mut self, stream: u32) -> &Clock {
        let stream = &mut self.streams[stream as usize];
        if stream.host_version != self.host_version {
            stream.clock.join(&self.host);
            stream.host_version = self.host_version;
        }
        &stream.clock
    }

    /// All work that has finished before the host continues.
    pub(crate) fn host(&self) -> &Clock {
        &self.host
    }

    /// Queues one piece of work in the stream, and returns its number.
    pub(crate) fn queue(&mut self, stream: u32) -> u64 {
        self.clock(stream);
        self.streams[stream as usize].clock.advance(stream)
    }

    /// The capture that work in the stream becomes part of.
    pub(crate) fn capture(&self, stream: u32) -> Option<CaptureNumber> {
        self.streams[stream as usize].capture
    }

    pub(crate) fn record(&mut self, event: EventId, stream: u32) {
        let recorded = match self.capture(stream) {
            Some(capture) => Recorded::In(capture),
            None => Recorded::At(self.clock(stream).clone()),
        };
        self.events.insert(event, recorded);
    }

    /// Makes later work of the stream wait. An event that was not recorded has no effect.
    pub(crate) fn stream_wait(&mut self, stream: u32, event: EventId) {
        let waiting = &mut self.streams[stream as usize];
        match self.events.get(&event) {
            // The order inside a graph is not followed.
            Some(Recorded::At(clock)) if waiting.capture.is_none() => {
                waiting.clock.join(clock);
            }
            Some(Recorded::In(capture)) if waiting.capture.is_none() => waiting.capture = Some(*capture),
            _ => {}
        }
    }

    /// Makes later work of `stream` follow all work that is queued in `other` now.
    pub(crate) fn stream_wait_stream(&mut self, stream: u32, other: u32) {
        let clock = self.clock(other).clone();
        self.streams[stream as usize].clock.join(&clock);
    }

    /// The host knows that the work before the last record of the event has finished.
    pub(crate) fn host_wait(&mut self, event: EventId) {
        if let Some(Recorded::At(clock)) = self.events.get(&event)
            && self.host.join(clock)
        {
            self.host_version += 1;
        }
    }

    pub(crate) fn synchronize(&mut self, stream: u32) {
        self.clock(stream);
        if self.host.join(&self.streams[stream as usize].clock) {
            self.host_version += 1;
        }
    }

    pub(crate) fn synchronize_all(&mut self) {
        for stream in &self.streams {
            self.host.join(&stream.clock);
        }
        self.host_version += 1;
    }

    /// Streams that wait for the event still wait for its last record, so nothing else changes.
    pub(crate) fn destroy_event(&mut self, event: EventId) {
        self.events.remove(&event);
    }

    pub(crate) fn begin_capture(&mut self, stream: u32) {
        self.captures += 1;
        self.streams[stream as usize].capture = Some(CaptureNumber(self.captures));
    }

    /// Ends the capture of a stream and of all streams that joined it.
    pub(crate) fn end_capture(&mut self, stream: u32) -> Option<CaptureNumber> {
        let capture = self.capture(stream)?;
        for stream in &mut self.streams {
            if stream.capture == Some(capture) {
                stream.capture = None;
            }
        }
        self.events.retain(|_, recorded| !matches!(recorded, Recorded::In(number) if *number == capture));
        Some(capture)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_that_the_host_has_waited_for_precedes_all_later_work() {
        let mut order = Order::default();
        let [first, second] = [0, 1].map(|number| order.index(StreamId(number)));
        for _ in 0..2 {
            let work = order.queue(first);
            order.record(EventId(0), first);
            assert!(!order.clock(second).covers(first, work));
            order.host_wait(EventId(0));
            assert!(order.clock(second).covers(first, work));
        }
    }
}
