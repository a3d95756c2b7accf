//! Streams captured into graphs.

use std::fmt::Debug;
use std::num::NonZeroU64;

use crate::{Graph, Result, StreamRef};

/// The id of a capture, unique in the process.
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
/// Its number comes from the driver; another capture may reuse it after this one ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct CaptureNode(usize);

impl CaptureNode {
    /// Wraps the driver's handle.
    #[must_use]
    pub const fn from_raw(raw: usize) -> Self {
        Self(raw)
    }

    /// The driver's handle.
    #[must_use]
    pub const fn raw(self) -> usize {
        self.0
    }
}

/// The threads to which a capture forbids calls.
///
/// It forbids calls that could wait for the device or allocate from the driver. A forbidden call fails with
/// [`ErrorKind::CaptureForbids`](crate::ErrorKind::CaptureForbids) and breaks the capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CaptureMode {
    /// Every thread that is itself in this mode.
    Global,
    /// The thread that began the capture.
    ThreadLocal,
    /// No thread; a thread in this mode is not restricted by any capture.
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
    /// Returns the same status as [`capture_status`](Self::capture_status). A stream without an active capture has no
    /// frontier. Legal during capture, which it does not change. The order is arbitrary, and a node may appear twice.
    /// Appends nothing on failure.
    ///
    /// A driver may lack this call and [`dependencies`](Self::dependencies) and have all others of the group. Then they
    /// fail with [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported), as for a graph that the driver cannot
    /// describe.
    ///
    /// # Safety
    ///
    /// Promise 1, and no other thread queues work in the stream or ends its capture during the call: the driver returns
    /// its internal list, which such a call changes.
    #[doc(alias = "cuStreamGetCaptureInfo_v2")]
    #[doc(alias = "hipStreamGetCaptureInfo_v2")]
    unsafe fn frontier(&self, stream: StreamRef, nodes: &mut Vec<CaptureNode>) -> Result<CaptureStatus>;

    /// Appends the nodes that a node directly depends on.
    ///
    /// Otherwise like [`frontier`](Self::frontier). It may fail for a broken capture.
    ///
    /// # Safety
    ///
    /// Promise 1: the node's capture does not end before or during the call.
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

    /// Ends the capture that began on this stream and makes its graph ready to launch.
    ///
    /// The capture ends even if this fails. [`ErrorKind::CaptureBroken`](crate::ErrorKind::CaptureBroken) if it was
    /// broken, or a joined stream was not joined back by an event.
    ///
    /// # Safety
    ///
    /// Promise 1.
    #[doc(alias = "cuStreamEndCapture")]
    #[doc(alias = "hipStreamEndCapture")]
    unsafe fn end_capture(&self, stream: StreamRef) -> Result<Graph>;

    /// Queues the graph as one piece of work of the stream.
    ///
    /// # Safety
    ///
    /// Promise 1 for the graph and the stream, promises 3 and 4 for all recorded work. No other thread launches the
    /// graph during the call.
    #[doc(alias = "cuGraphLaunch")]
    #[doc(alias = "hipGraphLaunch")]
    unsafe fn launch(&self, graph: &Graph, stream: StreamRef) -> Result<()>;

    /// Destroys a graph; launches already queued still complete.
    ///
    /// # Safety
    ///
    /// Promise 1.
    #[doc(alias = "cuGraphExecDestroy")]
    #[doc(alias = "hipGraphExecDestroy")]
    unsafe fn destroy_graph(&self, graph: Graph) -> Result<()>;

    /// Sets the calling thread's mode and returns the previous one; threads begin in [`CaptureMode::Global`].
    /// [`owned::RelaxedCapture`](crate::owned::RelaxedCapture) restores it.
    #[doc(alias = "cuThreadExchangeStreamCaptureMode")]
    #[doc(alias = "hipThreadExchangeStreamCaptureMode")]
    fn exchange_capture_mode(&self, mode: CaptureMode) -> Result<CaptureMode>;
}
