//! Snapshots to write and read.

use cachette_snapshot::{
    Annotation, Block, BlockState, Event, Frame, OutsideMemory, PoolId, Segment, SegmentKind, Setting, Snapshot,
    StackId, Stage, TextId, Trace, TraceAction,
};

/// A small snapshot that has one of everything.
pub(crate) fn small() -> Snapshot {
    let outside = [(0, 1 << 40), (3, 5)].map(|(device, bytes)| OutsideMemory { device, bytes, managed: 6, host: 7 });
    let mut snapshot =
        Snapshot { pools: vec![PoolId(0, 0), PoolId(1, 7)], outside: outside.to_vec(), ..Snapshot::default() };
    let frame = |name: &str, line| Frame { name: name.to_owned(), file: "train.py".to_owned(), line };
    let stack = snapshot.stacks.add([frame("step", 10), frame("main", 3)]);
    let forward = snapshot.stacks.add([frame("forward", 20), frame("main", 3)]);
    let metadata = snapshot.texts.add("epoch 1");
    let context = snapshot.texts.add("1/0");
    let label = snapshot.texts.add("torch");
    let event = |action, address, time_us| Event { address, bytes: 1000, time_us, stack, action, ..Event::default() };
    let base = 0x7F00_0000_0000;
    snapshot.traces.push(Trace {
        device: 1,
        events: vec![
            event(TraceAction::SegmentAlloc, base, 1_700_000_000_000_000),
            Event {
                forward_stack: forward,
                metadata,
                context,
                pool: 1,
                stream: u64::MAX,
                ..event(TraceAction::Alloc, base, 1_700_000_000_000_005)
            },
            event(TraceAction::OutOfMemory, 4096, 1_700_000_000_000_003),
        ],
    });
    let block = |offset, bytes, requested, state| Block {
        address: base + offset,
        bytes,
        requested,
        state,
        stack: if requested == 0 { StackId::NONE } else { stack },
        label: if requested == 0 { TextId::NONE } else { label },
    };
    snapshot.segments.push(Segment {
        device: 1,
        address: base,
        bytes: 2 << 20,
        stream: 5,
        kind: SegmentKind::Small,
        pool: 1,
        elastic: true,
        asleep: true,
        order: 4,
        stack,
        blocks: vec![
            block(0, 1024, 1000, BlockState::Allocated),
            block(1024, 512, 100, BlockState::Pending),
            block(1536, (2 << 20) - 1536, 0, BlockState::Free),
        ],
    });
    snapshot.annotations.push(Annotation {
        name: "## forward ##".to_owned(),
        stage: Stage::End,
        device: 1,
        time_us: -5,
    });
    snapshot.settings = vec![
        ("PYTORCH_CUDA_ALLOC_CONF".to_owned(), Setting::Text("a:1".to_owned())),
        ("max_split_size".to_owned(), Setting::Integer(-1)),
        ("garbage_collection_threshold".to_owned(), Setting::Number(0.8)),
        ("expandable_segments".to_owned(), Setting::Switch(true)),
        ("nothing".to_owned(), Setting::None),
        ("roundup_power2_divisions".to_owned(), Setting::Table(vec![("1".to_owned(), Setting::Integer(0))])),
    ];
    snapshot
}

pub(crate) fn as_json(snapshot: &Snapshot) -> Vec<u8> {
    let mut out = Vec::new();
    snapshot.write_json(&mut out).expect("memory takes everything");
    out
}

pub(crate) fn as_pickle(snapshot: &Snapshot) -> Vec<u8> {
    let mut out = Vec::new();
    snapshot.write_pickle(&mut out).expect("memory takes everything");
    out
}
