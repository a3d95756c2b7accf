//! Where PyTorch says a thread is, beyond its Python frames: in `TorchScript`, and behind which forward pass.

use cachette::history::Frame;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyDict;

static TORCH: PyOnceLock<Functions> = PyOnceLock::new();

/// Functions of PyTorch, all of them native: no Python code runs when they are called.
struct Functions {
    /// The node that a backward pass runs on this thread; `None` outside of one.
    current_node: Py<PyAny>,
    /// Gathers the frames of this thread, as `(python, script, native)` say which.
    gather: Py<PyAny>,
    /// Some gathered frames as lists of dictionaries.
    symbolize: Py<PyAny>,
}

/// Lets histories ask these functions of PyTorch; the first call in a process counts.
#[pyfunction]
pub(crate) fn ask_torch(py: Python<'_>, current_node: Py<PyAny>, gather: Py<PyAny>, symbolize: Py<PyAny>) {
    let functions = Functions { current_node, gather, symbolize };
    let _ = TORCH.set(py, functions);
}

/// The frames of `TorchScript`, innermost first.
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

/// Where the forward pass made the node that runs on this thread; nothing outside of anomaly mode.
///
/// Each is a line of a traceback in PyTorch's words, outermost first, and a frame that is only a name.
pub(crate) fn forward(py: Python<'_>) -> PyResult<Vec<Frame>> {
    let Some(torch) = TORCH.get(py) else { return Ok(Vec::new()) };
    let node = torch.current_node.bind(py).call0()?;
    if node.is_none() {
        return Ok(Vec::new());
    }
    let metadata = node.getattr(intern!(py, "metadata"))?;
    let lines = metadata.cast::<PyDict>()?.get_item(intern!(py, "traceback_"))?;
    let lines: Vec<String> = lines.map_or_else(|| Ok(Vec::new()), |lines| lines.extract())?;
    let frames = lines.into_iter().map(|line| Frame {
        // A snapshot ends every line again.
        name: line.strip_suffix('\n').unwrap_or(&line).to_owned(),
        ..Frame::default()
    });
    Ok(frames.collect())
}
