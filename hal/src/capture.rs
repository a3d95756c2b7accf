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
