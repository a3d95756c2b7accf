//! Which streams are in which capture, as AMD's library keeps it.
//!
//! There a capture that ends without a graph stays on its streams. The device beneath lets such streams go, so what
//! they are left in is kept here.

use std::collections::{HashMap, HashSet};
use std::ffi::c_int;

use crate::prelude::*;

/// What a capture has made of one of its streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// The device beneath captures the stream.
    Recording,
    /// A thread is ending the capture.
    Ending,
    /// The capture has ended without a graph, and the stream is still active.
    Unjoined,
    /// A forbidden call has broken the capture.
    Invalidated,
}

#[derive(Clone, Copy, Debug)]
struct Member {
    /// The stream on which the capture was begun.
    origin: StreamHandle,
    id: u64,
    part: Part,
}

/// The streams that are in a capture, and the events that were recorded in one.
#[derive(Debug, Default)]
pub(crate) struct Captures(HashMap<StreamHandle, Member>, HashSet<EventHandle>);

impl Captures {
    pub(crate) fn holds(&self, stream: StreamHandle) -> bool {
        self.0.contains_key(&stream)
    }

    /// Notes whether an event was last recorded in a stream that is being captured.
    pub(crate) fn recorded(&mut self, event: EventHandle, stream: StreamHandle) {
        if self.holds(stream) {
            self.1.insert(event);
        } else {
            self.1.remove(&event);
        }
    }

    /// Whether an event was last recorded in a capture.
    pub(crate) fn has_event(&self, event: EventHandle) -> bool {
        self.1.contains(&event)
    }

    pub(crate) fn are_recording(&self) -> bool {
        self.0.values().any(|member| member.part == Part::Recording)
    }

    /// Refuses work in a stream that an ended capture was left on.
    pub(crate) fn check_work(&self, stream: StreamHandle) -> Answer {
        match self.0.get(&stream).map(|member| member.part) {
            Some(Part::Unjoined | Part::Invalidated) => Err(CAPTURE_INVALIDATED),
            Some(Part::Recording | Part::Ending) | None => Ok(()),
        }
    }

    /// Refuses to wait for a stream that an ended capture was left on, and breaks that capture.
    pub(crate) fn check_wait(&mut self, stream: StreamHandle) -> Answer {
        match self.0.get_mut(&stream) {
            Some(member) if matches!(member.part, Part::Unjoined | Part::Invalidated) => {
                member.part = Part::Invalidated;
                Err(CAPTURE_UNSUPPORTED)
            }
            _ => Ok(()),
        }
    }

    /// A stream's state and the number of its capture, given what the device beneath says of it.
    pub(crate) fn status(&self, stream: StreamHandle, beneath: (c_int, u64)) -> (c_int, u64) {
        let Some(member) = self.0.get(&stream) else { return beneath };
        match member.part {
            Part::Unjoined => (CAPTURE_STATUS_ACTIVE, member.id),
            Part::Invalidated => (CAPTURE_STATUS_INVALIDATED, 0),
            Part::Recording if beneath.0 == CAPTURE_STATUS_INVALIDATED && self.is_hidden(member) => {
                (CAPTURE_STATUS_ACTIVE, member.id)
            }
            Part::Recording | Part::Ending => beneath,
        }
    }

    /// Whether a joined stream has broken the member's capture, which no other stream of it learns.
    fn is_hidden(&self, member: &Member) -> bool {
        let of_it = |(stream, other): (&StreamHandle, &Member)| {
            other.id == member.id && other.part == Part::Invalidated && *stream != other.origin
        };
        self.0.iter().any(of_it)
    }

    /// Refuses a capture of a stream that is in one; a broken one that was ended is no obstacle.
    pub(crate) fn check_begin(&self, stream: StreamHandle, status: c_int) -> Answer {
        let part = self.0.get(&stream).map(|member| member.part);
        if status == CAPTURE_STATUS_NONE || part == Some(Part::Invalidated) {
            return Ok(());
        }
        Err(ILLEGAL_STATE)
    }

    pub(crate) fn begun(&mut self, stream: StreamHandle, id: u64) {
        let member = Member { origin: stream, id, part: Part::Recording };
        self.0.insert(stream, member);
    }

    pub(crate) fn joined(&mut self, stream: StreamHandle, id: u64) {
        let origin = self.0.values().find(|member| member.id == id);
        if let Some(origin) = origin.map(|member| member.origin) {
            let part = Part::Recording;
            self.0.insert(stream, Member { origin, id, part });
        }
    }

    /// Notes that a forbidden call of this very stream has broken its capture.
    pub(crate) fn broken_by(&mut self, stream: StreamHandle) {
        if let Some(member) = self.0.get_mut(&stream)
            && member.origin != stream
        {
            member.part = Part::Invalidated;
        }
    }

    /// Begins to end a capture, and refuses what is not begun on this stream; a second end is fatal.
    pub(crate) fn begin_end(&mut self, stream: StreamHandle, status: c_int) -> Answer {
        refuse_if(status == CAPTURE_STATUS_NONE, ILLEGAL_STATE)?;
        match self.0.get_mut(&stream) {
            Some(member) if member.origin != stream => Err(CAPTURE_UNMATCHED),
            Some(member) if member.part != Part::Recording => {
                crash("hipStreamEndCapture was called twice for one capture")
            }
            Some(member) => {
                member.part = Part::Ending;
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Lets the streams of a capture go that ended with a graph, or whose origin is destroyed.
    pub(crate) fn release(&mut self, origin: StreamHandle) {
        self.0.retain(|stream, member| member.origin != origin && *stream != origin);
    }

    /// Leaves a capture without a graph on its streams, and gives the status of that.
    pub(crate) fn leave(&mut self, origin: StreamHandle, status: c_int) -> Status {
        let (part, answer) = if status == CAPTURE_STATUS_ACTIVE {
            (Part::Unjoined, CAPTURE_UNJOINED)
        } else {
            (Part::Invalidated, CAPTURE_INVALIDATED)
        };
        for member in self.0.values_mut() {
            let is_recording = matches!(member.part, Part::Recording | Part::Ending);
            if member.origin == origin && is_recording {
                member.part = part;
            }
        }
        answer
    }
}
