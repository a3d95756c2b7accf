//! Streams captured into graphs.

use cachette_hal::{Call, Capture, CaptureMode, CaptureNode, CaptureStatus, Graph, Result, StreamRef};

use crate::device::{HostDevice, engine_calls};
use crate::engine::exchange_thread_mode;

impl Capture for HostDevice {
    engine_calls! {
        fn capture_status(stream: StreamRef) -> CaptureStatus: CaptureStatus;
        fn frontier(stream: StreamRef, nodes: &mut Vec<CaptureNode>) -> CaptureStatus: Frontier;
        fn begin_capture(stream: StreamRef, mode: CaptureMode) -> (): BeginCapture;
        fn end_capture(stream: StreamRef) -> Graph: EndCapture;
        fn launch(graph: &Graph, stream: StreamRef) -> (): Launch;
    }

    unsafe fn dependencies(&self, node: CaptureNode, nodes: &mut Vec<CaptureNode>) -> Result<()> {
        self.enter(Call::Dependencies)?;
        self.machine().dependencies(node, nodes)
    }

    unsafe fn destroy_graph(&self, graph: Graph) -> Result<()> {
        self.enter(Call::DestroyGraph)?;
        self.machine().destroy_graph(self.index, &graph)
    }

    fn exchange_capture_mode(&self, mode: CaptureMode) -> Result<CaptureMode> {
        self.enter(Call::ExchangeCaptureMode)?;
        Ok(exchange_thread_mode(mode))
    }
}
