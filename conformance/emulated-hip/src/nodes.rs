//! Nodes of the graphs that captures are recording.

use std::ffi::{c_int, c_ulonglong};

use cachette_emulated::tell_nodes;
use cachette_hal::{CaptureNode, Device, ErrorKind, StreamRef};

use crate::capture::status_and_id;
use crate::prelude::*;

/// The state of a stream's capture, its number, and the stream's frontier.
fn with_frontier(machine: &Machine, stream: StreamHandle) -> Answer<((c_int, u64), Vec<CaptureNode>)> {
    let (_, device, beneath) = machine.any_stream(stream)?;
    let (status, mut nodes) = (status_and_id(machine, stream)?, Vec::new());
    if beneath != StreamRef::DEFAULT {
        let capture = device.capture().map_err(lacking)?;
        // SAFETY: 1. the table has it.
        unsafe { capture.frontier(beneath, &mut nodes) }.map_err(status_of)?;
    }
    Ok((status, nodes))
}

abi! {
    fn hipStreamGetCaptureInfo_v2(
        machine;
        stream: StreamHandle,
        status: *mut c_int,
        id: *mut c_ulonglong,
        graph: *mut GraphHandle,
        dependencies: *mut *const NodeHandle,
        count: *mut usize,
    ) {
        // SAFETY: the caller's pointer is null or valid.
        let out = unsafe { Out::new(status) }?;
        // What is being recorded has no handle before its end.
        refuse_if(!graph.is_null(), NOT_SUPPORTED)?;
        let wanted = !dependencies.is_null() || !count.is_null();
        let ((status, number), nodes) =
            if wanted { with_frontier(machine, stream)? } else { (status_and_id(machine, stream)?, Vec::new()) };
        out.write(status);
        // SAFETY: the caller's pointer is null or valid.
        if let Ok(id) = unsafe { Out::new(id) } {
            id.write(number);
        }
        // SAFETY: the caller's pointer is null or valid.
        if let Ok(count) = unsafe { Out::new(count) } {
            count.write(nodes.len());
        }
        // SAFETY: the caller's pointer is null or valid.
        if let Ok(list) = unsafe { Out::new(dependencies) } {
            list.write(machine.state().recordings.keep_frontier(stream, &nodes));
        }
        Ok(())
    }

    /// Tells how many nodes a node depends on, or as many of them as there is room for; room left over becomes null.
    fn hipGraphNodeGetDependencies(
        machine;
        node: NodeHandle,
        dependencies: *mut NodeHandle,
        count: *mut usize,
    ) => count {
        refuse_if(node == 0, INVALID_VALUE)?;
        let capture = machine.current().1.capture().map_err(lacking)?;
        let mut nodes = Vec::new();
        // SAFETY: 1. the caller's promise.
        unsafe { capture.dependencies(CaptureNode::from_raw(node), &mut nodes) }.map_err(|error| {
            match error.kind() {
                ErrorKind::InvalidHandle => INVALID_VALUE,
                _ => status_of(error),
            }
        })?;
        // SAFETY: the count is not null, for it was accepted above, and otherwise the caller's promise.
        Ok(unsafe { tell_nodes(&nodes, dependencies, count) })
    }
}
