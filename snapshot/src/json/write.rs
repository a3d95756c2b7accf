//! From a snapshot to the shape of the file.

use serde::{Serialize, Serializer};

use super::rows::{Blocks, Events};
use super::setting::Table;
use super::{FORMAT, VERSION};
use crate::{Annotation, PoolId, Segment, SegmentKind, Setting, Snapshot, Stacks, Stage};

/// The file, in the order it is written.
#[derive(Debug, Serialize)]
pub(super) struct File<'a> {
    format: &'static str,
    version: u64,
    #[serde(serialize_with = "pools")]
    pools: &'a [PoolId],
    texts: &'a [String],
    #[serde(serialize_with = "frames")]
    frames: &'a Stacks,
    #[serde(serialize_with = "stacks")]
    stacks: &'a Stacks,
    settings: Table<&'a [(String, Setting)]>,
    #[serde(serialize_with = "annotations")]
    annotations: &'a [Annotation],
    #[serde(serialize_with = "segments")]
    segments: &'a [Segment],
    #[serde(serialize_with = "traces")]
    traces: &'a [crate::Trace],
}

impl<'a> File<'a> {
    pub(super) fn of(snapshot: &'a Snapshot) -> Self {
        Self {
            format: FORMAT,
            version: VERSION,
            pools: &snapshot.pools,
            texts: snapshot.texts.all(),
            frames: &snapshot.stacks,
            stacks: &snapshot.stacks,
            settings: Table(&snapshot.settings),
            annotations: &snapshot.annotations,
            segments: &snapshot.segments,
            traces: &snapshot.traces,
        }
    }
}

fn pools<S: Serializer>(pools: &[PoolId], out: S) -> Result<S::Ok, S::Error> {
    out.collect_seq(pools.iter().map(|PoolId(first, second)| (first, second)))
}

fn frames<S: Serializer>(stacks: &Stacks, out: S) -> Result<S::Ok, S::Error> {
    let frames = stacks.frames().iter();
    out.collect_seq(frames.map(|frame| (&frame.name, &frame.file, frame.line)))
}

fn stacks<S: Serializer>(stacks: &Stacks, out: S) -> Result<S::Ok, S::Error> {
    out.collect_seq(stacks.ids().map(|id| stacks.numbers_of(id)))
}

fn annotations<S: Serializer>(annotations: &[Annotation], out: S) -> Result<S::Ok, S::Error> {
    out.collect_seq(annotations.iter().map(|annotation| {
        let stage = match annotation.stage {
            Stage::Start => 0,
            Stage::End => 1,
        };
        let Annotation { name, device, time_us, .. } = annotation;
        (name, stage, device, time_us)
    }))
}

/// A segment.
#[derive(Debug, Serialize)]
struct SegmentEntry<'a> {
    device: u32,
    address: u64,
    bytes: u64,
    stream: u64,
    kind: &'static str,
    pool: u32,
    elastic: bool,
    order: u64,
    stack: u32,
    blocks: Blocks<&'a [crate::Block]>,
}

fn segments<S: Serializer>(segments: &[Segment], out: S) -> Result<S::Ok, S::Error> {
    out.collect_seq(segments.iter().map(|segment| SegmentEntry {
        device: segment.device,
        address: segment.address,
        bytes: segment.bytes,
        stream: segment.stream,
        kind: match segment.kind {
            SegmentKind::Small => "small",
            SegmentKind::Large => "large",
        },
        pool: segment.pool,
        elastic: segment.elastic,
        order: segment.order,
        stack: segment.stack.0,
        blocks: Blocks(&segment.blocks),
    }))
}

/// The events of a device.
#[derive(Debug, Serialize)]
struct TraceEntry<'a> {
    device: u32,
    events: Events<&'a [crate::Event]>,
}

fn traces<S: Serializer>(traces: &[crate::Trace], out: S) -> Result<S::Ok, S::Error> {
    out.collect_seq(traces.iter().map(|trace| TraceEntry { device: trace.device, events: Events(&trace.events) }))
}
