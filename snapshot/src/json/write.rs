//! Converts a snapshot to the structure of the file.

use serde::{Serialize, Serializer};

use super::{FORMAT, VERSION};
use crate::setting::write_table;
use crate::{Annotation, OutsideMemory, PoolId, Segment, Setting, Snapshot, Stacks, Stage, Trace};

/// The file, in the order of writing.
#[derive(Debug, Serialize)]
pub(super) struct Output<'a> {
    format: &'static str,
    version: u64,
    pools: &'a [PoolId],
    texts: &'a [String],
    #[serde(serialize_with = "frames")]
    frames: &'a Stacks,
    #[serde(serialize_with = "stacks")]
    stacks: &'a Stacks,
    #[serde(serialize_with = "write_table")]
    settings: &'a [(String, Setting)],
    #[serde(serialize_with = "annotations")]
    annotations: &'a [Annotation],
    segments: &'a [Segment],
    traces: &'a [Trace],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    outside: &'a [OutsideMemory],
}

impl<'a> Output<'a> {
    pub(super) fn of(snapshot: &'a Snapshot) -> Self {
        Self {
            format: FORMAT,
            version: VERSION,
            pools: &snapshot.pools,
            texts: snapshot.texts.all(),
            frames: &snapshot.stacks,
            stacks: &snapshot.stacks,
            settings: &snapshot.settings,
            annotations: &snapshot.annotations,
            segments: &snapshot.segments,
            traces: &snapshot.traces,
            outside: &snapshot.outside,
        }
    }
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
