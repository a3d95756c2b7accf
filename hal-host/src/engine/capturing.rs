//! Captures in progress.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, ThreadId};

use cachette_hal::{Call, CaptureId, CaptureMode, CaptureStatus, ErrorKind, Graph, Result, StreamRef};

use super::State;
use super::graph::{GraphBody, GraphState, Node};
use super::stream::StreamKey;
use super::work::Task;
use crate::checks::{check, error, fail};
use crate::defect::Defect;
use crate::engine::machine::Machine;

/// Calls that could wait for the device or allocate from it.
const FORBIDDEN: [Call; 11] = [
    Call::Allocate,
    Call::Free,
    Call::AllocatePinned,
    Call::FreePinned,
    Call::Register,
    Call::Unregister,
    Call::Synchronize,
    Call::SynchronizeDevice,
    Call::Poll,
    Call::Wait,
    Call::Trim,
];

thread_local! {
    static MODE: Cell<CaptureMode> = const { Cell::new(CaptureMode::Global) };
}

pub(crate) fn exchange_thread_mode(mode: CaptureMode) -> CaptureMode {
    MODE.replace(mode)
}

#[derive(Debug)]
pub(super) struct CaptureState {
    device: usize,
    origin: StreamKey,
    mode: CaptureMode,
    thread: ThreadId,
    pub(super) broken: bool,
    pub(super) body: GraphBody,
    /// For every stream of the capture, the nodes that its next work depends on.
    pub(super) ends: BTreeMap<StreamKey, Vec<Node>>,
}

impl CaptureState {
    /// Returns whether the call is forbidden to the calling thread, which is in `mode`.
    fn binds(&self, mode: CaptureMode) -> bool {
        let everyone = mode == CaptureMode::Global && self.mode == CaptureMode::Global;
        let own = self.thread == thread::current().id() && self.mode != CaptureMode::Relaxed;
        !self.broken && (everyone || own)
    }

    /// Whether the origin has joined all work of the other streams.
    fn is_joined(&self) -> bool {
        let origin = self.ends.get(&self.origin).map_or(&[][..], Vec::as_slice);
        let reached = self.body.reached_from(origin);
        self.ends.values().flatten().all(|end| reached[*end])
    }
}

impl State {
    /// Returns the capture that contains a stream; `None` if there is none.
    fn capture_of(&mut self, call: Call, key: StreamKey) -> Result<Option<(u64, &mut CaptureState)>> {
        let id = self.streams.get(&key).and_then(|stream| stream.capture);
        let Some((id, capture)) = id.and_then(|id| Some((id, self.captures.get_mut(&id)?))) else { return Ok(None) };
        check(!capture.broken, call, ErrorKind::CaptureBroken)?;
        Ok(Some((id, capture)))
    }

    /// Adds work to the stream's capture; `false` if it has none.
    pub(super) fn capture_task(&mut self, call: Call, key: StreamKey, task: &Task) -> Result<bool> {
        let Some(device) = self.streams.get(&key).map(|stream| stream.device) else { return Ok(false) };
        let Some((_, capture)) = self.capture_of(call, key)? else { return Ok(false) };
        let end = capture.ends.entry(key).or_default();
        let node = capture.body.push(device, task.clone(), std::mem::take(end));
        *end = vec![node];
        Ok(true)
    }

    /// Returns the stream's capture and its current end in it; `None` if it has none.
    pub(super) fn capture_end(&mut self, call: Call, key: StreamKey) -> Result<Option<(u64, Vec<Node>)>> {
        let capture = self.capture_of(call, key)?;
        Ok(capture.map(|(id, capture)| (id, capture.ends.get(&key).cloned().unwrap_or_default())))
    }
}

impl Machine {
    /// Fails if a capture forbids the call to this thread, and breaks that capture.
    pub(crate) fn check_captures(&self, device: usize, call: Call) -> Result<()> {
        // Acquire: pairs with the release in `begin_capture`; usually there is none.
        if self.units[device].captures.load(Ordering::Acquire) == 0 || !FORBIDDEN.contains(&call) {
            return Ok(());
        }
        let mode = match MODE.get() {
            CaptureMode::Relaxed if self.lies(Defect::RelaxedModeIgnored) => CaptureMode::Global,
            CaptureMode::Relaxed => return Ok(()),
            mode => mode,
        };
        let mut state = self.state();
        let bound =
            |(id, capture): (&u64, &CaptureState)| (capture.device == device && capture.binds(mode)).then_some(*id);
        let broken: Vec<_> = state.captures.iter().filter_map(bound).collect();
        if broken.is_empty() {
            return Ok(());
        }
        for id in broken {
            self.break_capture(&mut state, id);
        }
        fail(call, ErrorKind::CaptureForbids)
    }

    /// Breaks a capture, if it still exists and is not broken.
    pub(super) fn break_capture(&self, state: &mut State, id: u64) {
        if let Some(capture) = state.captures.get_mut(&id)
            && !capture.broken
        {
            capture.broken = true;
            self.uncount_capture(capture.device);
        }
    }

    /// Fails if the stream is being captured, and breaks the capture.
    pub(super) fn forbid_in_capture(&self, state: &mut State, call: Call, key: StreamKey) -> Result<()> {
        let Some((id, _)) = state.capture_of(call, key)? else { return Ok(()) };
        self.break_capture(state, id);
        fail(call, ErrorKind::CaptureForbids)
    }

    /// Adds a stream to a capture. Its next work depends on these nodes.
    pub(super) fn join_capture(&self, state: &mut State, key: StreamKey, id: u64, after: &[Node]) -> Result<()> {
        let call = Call::StreamWait;
        let joined = state.capture_of(call, key)?.map(|(joined, _)| joined);
        let stream = state.streams.get_mut(&key).ok_or(error(call, ErrorKind::InvalidHandle))?;
        let refused = key.is_default_of(stream.device) || joined.is_some_and(|other| other != id);
        match state.captures.get_mut(&id) {
            Some(capture) if capture.broken => fail(call, ErrorKind::CaptureBroken),
            Some(capture) if !refused => {
                stream.capture = Some(id);
                let all: Vec<Node> = capture.ends.values().flatten().copied().collect();
                let takes_all = self.lies(Defect::CapturedWaitTakesAll);
                let end = capture.ends.entry(key).or_default();
                end.extend(if takes_all { &all } else { after });
                end.sort_unstable();
                end.dedup();
                Ok(())
            }
            // The capture has ended, belongs to another stream, or the stream cannot be captured.
            _ => {
                for broken in joined.into_iter().chain([id]) {
                    self.break_capture(state, broken);
                }
                fail(call, ErrorKind::CaptureForbids)
            }
        }
    }

    /// Removes a stream that is being destroyed from its capture.
    pub(super) fn abandon_capture(&self, state: &mut State, key: StreamKey) {
        let Some(id) = state.streams.get(&key).and_then(|stream| stream.capture) else { return };
        self.break_capture(state, id);
        if state.captures.get(&id).is_some_and(|capture| capture.origin == key) {
            remove(state, id);
        }
    }

    pub(crate) fn capture_status(&self, device: usize, stream: StreamRef) -> Result<CaptureStatus> {
        let state = self.state();
        let key = state.find_stream(Call::CaptureStatus, device, stream)?;
        Ok(self.status_of(&state, key))
    }

    pub(super) fn status_of(&self, state: &State, key: StreamKey) -> CaptureStatus {
        let id = state.streams.get(&key).and_then(|stream| stream.capture);
        let capture = id.and_then(|id| state.captures.get(&id));
        match (id.and_then(NonZeroU64::new), capture) {
            (Some(_), Some(capture)) if capture.broken => CaptureStatus::Broken,
            (Some(_), Some(_)) if self.lies(Defect::CaptureIdReused) => {
                CaptureStatus::Active(CaptureId(NonZeroU64::MIN))
            }
            (Some(id), Some(_)) => CaptureStatus::Active(CaptureId(id)),
            _ => CaptureStatus::Idle,
        }
    }

    pub(crate) fn begin_capture(&self, device: usize, stream: StreamRef, mode: CaptureMode) -> Result<()> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let call = Call::BeginCapture;
        let mut state = self.state();
        let key = state.find_stream(call, device, stream)?;
        let free = |stream: &&mut super::StreamState| stream.capture.is_none();
        let stream = state.streams.get_mut(&key).filter(free).ok_or(error(call, ErrorKind::InvalidValue))?;
        check(!key.is_default_of(device), call, ErrorKind::InvalidValue)?;
        // Relaxed: only the numbers must differ.
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        stream.capture = Some(id);
        let capture = CaptureState {
            device,
            origin: key,
            mode,
            thread: thread::current().id(),
            broken: false,
            body: GraphBody::default(),
            ends: BTreeMap::from([(key, Vec::new())]),
        };
        state.captures.insert(id, capture);
        // Release: pairs with the acquire in `check_captures`.
        self.units[device].captures.fetch_add(1, Ordering::Release);
        Ok(())
    }

    pub(crate) fn end_capture(&self, device: usize, stream: StreamRef) -> Result<Graph> {
        let call = Call::EndCapture;
        let mut state = self.state();
        let key = state.find_stream(call, device, stream)?;
        let id = state.streams.get(&key).and_then(|stream| stream.capture);
        let begun = |id: &u64| state.captures.get(id).is_some_and(|found| found.origin == key);
        let capture = id.filter(begun).and_then(|id| remove(&mut state, id));
        let capture = capture.ok_or(error(call, ErrorKind::InvalidValue))?;
        if !capture.broken {
            self.uncount_capture(device);
        }
        check(!capture.broken && capture.is_joined(), call, ErrorKind::CaptureBroken)?;
        let handle = self.handle();
        let body = Arc::new(capture.body);
        state.graphs.insert(handle, GraphState { device, body });
        Ok(Graph::from_raw(handle))
    }

    fn uncount_capture(&self, device: usize) {
        // Release: as in `begin_capture`.
        self.units[device].captures.fetch_sub(1, Ordering::Release);
    }
}

/// Removes a capture and detaches its streams.
fn remove(state: &mut State, id: u64) -> Option<CaptureState> {
    for stream in state.streams.values_mut() {
        if stream.capture == Some(id) {
            stream.capture = None;
        }
    }
    state.captures.remove(&id)
}
