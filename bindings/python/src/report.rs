//! Out-of-memory reports, as figures and text.

use cachette::OutOfMemory;
use cachette::history::Frame;
use pyo3::prelude::*;

/// A request that failed for lack of memory; a dictionary in Python.
#[derive(Default, IntoPyObject)]
pub(crate) struct Figures {
    device: Option<u32>,
    pool: Option<(u64, u64)>,
    requested: u64,
    segment: Option<u64>,
    total: Option<u64>,
    free: Option<u64>,
    elsewhere: Option<u64>,
    limit: Option<u64>,
    allocated: Option<u64>,
    reserved: Option<u64>,
    pending: Option<u64>,
    unallocated: Option<u64>,
    largest_free: Option<u64>,
    fragmented: Option<u64>,
    pools: Vec<PoolEntry>,
    holders: Vec<HolderEntry>,
    hints: Vec<String>,
    report: String,
}

/// The figures of one pool.
#[derive(IntoPyObject)]
struct PoolEntry {
    id: (u64, u64),
    allocated: u64,
    pending: u64,
    reserved: u64,
    unallocated: u64,
    largest_free: u64,
}

/// The memory in use that one site of the program allocated.
#[derive(IntoPyObject)]
struct HolderEntry {
    bytes: u64,
    blocks: u64,
    frames: Vec<FrameEntry>,
}

/// A frame with PyTorch's keys.
#[derive(IntoPyObject)]
pub(crate) struct FrameEntry {
    name: String,
    filename: String,
    line: u32,
}

impl FrameEntry {
    pub(crate) fn of(frame: &Frame) -> Self {
        Self { name: frame.name.clone(), filename: frame.file.clone(), line: frame.line }
    }
}

/// The allocation sites of a report for an exception, which reads them on demand: naming their stacks can take a second.
#[pyclass(frozen)]
pub(crate) struct Holders(pub(crate) Box<OutOfMemory>);

#[pymethods]
impl Holders {
    fn __call__(&self, py: Python<'_>) -> Vec<HolderEntry> {
        py.detach(|| holders_of(&self.0))
    }
}

impl Figures {
    /// Converts `report`.
    pub(crate) fn of(report: &OutOfMemory) -> Self {
        Self { holders: holders_of(report), ..Self::without_holders(report) }
    }

    /// Converts `report` without its allocation sites.
    pub(crate) fn without_holders(report: &OutOfMemory) -> Self {
        Self {
            device: Some(report.device.0),
            pool: Some(report.pool.pair()),
            requested: report.requested,
            segment: Some(report.segment),
            total: report.total,
            free: report.free,
            elsewhere: report.elsewhere,
            limit: report.limit,
            allocated: Some(report.allocated),
            reserved: Some(report.reserved),
            pending: Some(report.pending),
            unallocated: Some(report.unallocated()),
            largest_free: Some(report.largest_free),
            fragmented: Some(report.fragmented),
            pools: pools_of(report),
            holders: Vec::new(),
            hints: report.hints().iter().map(ToString::to_string).collect(),
            report: report.to_string(),
        }
    }

    /// Contains only the requested bytes and the report.
    pub(crate) fn of_request(requested: u64, report: String) -> Self {
        Self { requested, report, ..Self::default() }
    }
}

fn pools_of(report: &OutOfMemory) -> Vec<PoolEntry> {
    let entries = report.pools.iter().map(|pool| PoolEntry {
        id: pool.id.pair(),
        allocated: pool.allocated,
        pending: pool.pending,
        reserved: pool.reserved,
        unallocated: pool.unallocated(),
        largest_free: pool.largest_free,
    });
    entries.collect()
}

fn holders_of(report: &OutOfMemory) -> Vec<HolderEntry> {
    let entries = report.holders().iter().map(|holder| {
        let frames = holder.frames.iter().map(FrameEntry::of).collect();
        HolderEntry { bytes: holder.bytes, blocks: holder.blocks, frames }
    });
    entries.collect()
}
