//! The frames of a thread that only PyTorch has: `TorchScript`, and the forward pass of a backward pass.

use cachette::history::Frame;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;

use crate::sequence::AtMost;

static TORCH: PyOnceLock<Functions> = PyOnceLock::new();

/// Functions of PyTorch, all of them native, so that their calls run no Python code.
struct Functions {
    /// Returns the node that a backward pass runs on this thread; `None` outside of one.
    current_node: Py<PyAny>,
    /// Captures the frames of this thread that `(python, script, native)` select.
    gather: Py<PyAny>,
    /// Converts captured frames to lists of dictionaries.
    symbolize: Py<PyAny>,
}

/// Sets the functions of PyTorch that histories call. Only the first call in a process has an effect.
#[pyfunction]
pub(crate) fn ask_torch(py: Python<'_>, current_node: Py<PyAny>, gather: Py<PyAny>, symbolize: Py<PyAny>) {
    let functions = Functions { current_node, gather, symbolize };
    let _ = TORCH.set(py, functions);
}

/// Returns the frames of `TorchScript`, innermost first.
pub(crate) fn script(py: Python<'_>) -> PyResult<Vec<Frame>> {
    let Some(torch) = TORCH.get(py) else { return Ok(Vec::new()) };
    let gathered = torch.gather.bind(py).call1((false, true, false))?;
    let mut frames = Vec::new();
    for stack in torch.symbolize.bind(py).call1(([gathered],))?.try_iter()? {
        for frame in stack?.try_iter()? {
            let frame = frame?;
            frames.push(Frame {
                name: frame.get_item(intern!(py, "name"))?.extract()?,
                file: frame.get_item(intern!(py, "filename"))?.extract()?,
                line: frame.get_item(intern!(py, "line"))?.extract()?,
            });
        }
    }
    Ok(frames)
}

/// Returns the forward stack of the node that runs on this thread; empty outside anomaly mode.
///
/// Each frame is a line of PyTorch's traceback, outermost first, and has only a name.
pub(crate) fn forward(py: Python<'_>) -> PyResult<Vec<Frame>> {
    let Some(torch) = TORCH.get(py) else { return Ok(Vec::new()) };
    let node = torch.current_node.bind(py).call0()?;
    if node.is_none() {
        return Ok(Vec::new());
    }
    let metadata = node.getattr(intern!(py, "metadata"))?;
    let lines = metadata.cast::<PyDict>()?.get_item(intern!(py, "traceback_"))?;
    let lines: AtMost<{ 1 << 16 }, String> = lines.map_or_else(|| Ok(AtMost::default()), |lines| lines.extract())?;
    let frames = lines.0.into_iter().map(|line| Frame {
        // A snapshot appends the line break again.
        name: line.strip_suffix('\n').unwrap_or(&line).to_owned(),
        ..Frame::default()
    });
    Ok(frames.collect())
}
