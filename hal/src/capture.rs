//! Streams captured into graphs.

use std::fmt::Debug;
use std::num::NonZeroU64;

use crate::{Graph, Result, StreamRef};

/// Number of one capture; no two captures of a process share one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CaptureId(pub NonZeroU64);

/// State of a stream's capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CaptureStatus {
    /// Not capturing.
    Idle,
    /// Capturing.
    Active(CaptureId),
    /// The capture broke and must be ended.
    Broken,
}

/// A piece of work in the graph that a capture is recording.
///
/// Its number is the driver's own, and another capture may use it again once this one is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct CaptureNode(usize);

impl CaptureNode {
    /// Wraps the driver's own handle.
    #[must_use]
    pub const fn from_raw(raw: usize) -> Self {
        Self(raw)
    }

    /// The driver's own handle.
    #[must_use]
    pub const fn raw(self) -> usize {
        self.0
    }
}

/// Which calls a capture forbids, and to whom.
///
/// Forbidden are calls that could wait for the device or allocate from the driver. One that is made
/// fails with [`ErrorKind::CaptureForbids`](crate::ErrorKind::CaptureForbids) and breaks the capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaptureMode {
    /// To every thread that is itself in this mode.
    Global,
    /// To the thread that began the capture.
    ThreadLocal,
    /// To nobody; a thread in this mode is bound by no capture.
    Relaxed,
}

/// Streams captured into graphs: work queued in them is recorded instead of run.
pub trait Capture: Debug + Send + Sync {
    /// The stream's state; legal during capture.
    ///
    /// # Safety
    ///
    /// Promise 1.
    #[doc(alias = "cuStreamGetCaptureInfo_v2")]
    #[doc(alias = "hipStreamGetCaptureInfo_v2")]
    unsafe fn capture_status(&self, stream: StreamRef) -> Result<CaptureStatus>;

    /// Appends the stream's frontier: the nodes that the work captured next in it will directly depend on.
    ///
    /// The status is that of [`capture_status`](Self::capture_status), and a stream that is not in a whole capture
    /// has no frontier. Legal during capture, which it leaves as it is. The order means nothing, and a node may be
    /// named twice. After an error nothing has been appended.
    ///
    /// A driver may lack this call and [`dependencies`](Self::dependencies) and have all others of the group. It
    /// then answers [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported), as it does for a graph that it
    /// cannot describe.
    ///
    /// # Safety
    ///
    /// Promise 1, and no other thread queues work in the stream or ends its capture during the call: drivers show
    /// a list of their own, which such a call changes.
    #[doc(alias = "cuStreamGetCaptureInfo_v2")]
    #[doc(alias = "hipStreamGetCaptureInfo_v2")]
    unsafe fn frontier(&self, stream: StreamRef, nodes: &mut Vec<CaptureNode>) -> Result<CaptureStatus>;

    /// Appends the nodes that a node directly depends on: those that have finished when it begins.
    ///
    /// As [`frontier`](Self::frontier) in everything else. Of a broken capture it may fail.
    ///
    /// # Safety
    ///
    /// Promise 1: the node's capture has not been ended, and is not during the call.
    #[doc(alias = "cuGraphNodeGetDependencies")]
    #[doc(alias = "hipGraphNodeGetDependencies")]
    unsafe fn dependencies(&self, node: CaptureNode, nodes: &mut Vec<CaptureNode>) -> Result<()>;

    /// Begins to capture the stream; the default stream cannot be captured.
    ///
    /// A stream that waits for an event recorded in a capturing stream joins its capture.
    ///
    /// # Safety
    ///
    /// Promise 1.
    #[doc(alias = "cuStreamBeginCapture_v2")]
    #[doc(alias = "hipStreamBeginCapture")]
    unsafe fn begin_capture(&self, stream: StreamRef, mode: CaptureMode) -> Result<()>;

    /// Ends the capture that was begun on this stream and makes its graph ready to launch.
    ///
    /// The capture is over even where this fails:
    /// [`ErrorKind::CaptureBroken`](crate::ErrorKind::CaptureBroken) if it was broken, or a joined stream was
    /// not joined back by an event.
    ///
    /// # Safety
    ///
    /// Promise 1.
    #[doc(alias = "cuStreamEndCapture")]
    #[doc(alias = "hipStreamEndCapture")]
    unsafe fn end_capture(&self, stream: StreamRef) -> Result<Graph>;

    /// Queues everything the graph recorded, as one piece of work of the stream.
    ///
    /// # Safety
    ///
    /// Promise 1 for the graph and the stream, promises 3 and 4 for all that was recorded.
    #[doc(alias = "cuGraphLaunch")]
    #[doc(alias = "hipGraphLaunch")]
    unsafe fn launch(&self, graph: &Graph, stream: StreamRef) -> Result<()>;

    /// Destroys a graph; launches already queued still run to their end.
    ///
    /// # Safety
    ///
    /// Promise 1.
    #[doc(alias = "cuGraphExecDestroy")]
    #[doc(alias = "hipGraphExecDestroy")]
    unsafe fn destroy_graph(&self, graph: Graph) -> Result<()>;

    /// Puts the calling thread into `mode` and returns the mode it was in; threads begin in
    /// [`CaptureMode::Global`]. [`owned::RelaxedCapture`](crate::owned::RelaxedCapture) puts it back.
    #[doc(alias = "cuThreadExchangeStreamCaptureMode")]
    #[doc(alias = "hipThreadExchangeStreamCaptureMode")]
    fn exchange_capture_mode(&self, mode: CaptureMode) -> Result<CaptureMode>;
}

const _: Option<&dyn Capture> = None;
