//! Streams captured into graphs.

use cachette_hal::{Call, Capture, CaptureMode, CaptureNode, CaptureStatus, Graph, Result, StreamRef};

use crate::device::HostDevice;
use crate::engine::exchange_thread_mode;

impl Capture for HostDevice {
    unsafe fn capture_status(&self, stream: StreamRef) -> Result<CaptureStatus> {
        self.enter(Call::CaptureStatus)?;
        self.machine().capture_status(self.index, stream)
    }

    unsafe fn frontier(&self, stream: StreamRef, nodes: &mut Vec<CaptureNode>) -> Result<CaptureStatus> {
        self.enter(Call::Frontier)?;
        self.machine().frontier(self.index, stream, nodes)
    }

    unsafe fn dependencies(&self, node: CaptureNode, nodes: &mut Vec<CaptureNode>) -> Result<()> {
        self.enter(Call::Dependencies)?;
        self.machine().dependencies(node, nodes)
    }

    unsafe fn begin_capture(&self, stream: StreamRef, mode: CaptureMode) -> Result<()> {
        self.enter(Call::BeginCapture)?;
        self.machine().begin_capture(self.index, stream, mode)
    }

    unsafe fn end_capture(&self, stream: StreamRef) -> Result<Graph> {
        self.enter(Call::EndCapture)?;
        self.machine().end_capture(self.index, stream)
    }

    unsafe fn launch(&self, graph: &Graph, stream: StreamRef) -> Result<()> {
        self.enter(Call::Launch)?;
        self.machine().launch(self.index, graph, stream)
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
