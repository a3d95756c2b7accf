//! What is written is read again: JSON as it was, a pickle with other numbers for the same things.

mod sample;

use cachette_snapshot::{
    Annotation, Block, BlockState, Event, Frame, PoolId, Segment, SegmentKind, Setting, Snapshot, StackId, Stage,
    TextId, Trace, TraceAction,
};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use sample::{as_json, as_pickle, small};

/// Everything a snapshot says, without the numbers that its tables go by.
fn said(snapshot: &Snapshot) -> impl PartialEq + std::fmt::Debug + use<> {
    let stack = |id| snapshot.stacks.frames_of(id).cloned().collect::<Vec<_>>();
    let text = |id| snapshot.texts.get(id).to_owned();
    let pool = |number: u32| snapshot.pools.get(number as usize).copied();
    let segments: Vec<_> = snapshot
        .segments
        .iter()
        .map(|segment| {
            let blocks = segment.blocks.iter();
            let blocks: Vec<_> = blocks
                .map(|block| {
                    let bare = Block { stack: StackId::NONE, label: TextId::NONE, ..*block };
                    (bare, stack(block.stack), text(block.label))
                })
                .collect();
            let bare = Segment { pool: 0, stack: StackId::NONE, blocks: Vec::new(), ..segment.clone() };
            let pool = pool(segment.pool).unwrap_or_default();
            (bare, pool, stack(segment.stack), blocks)
        })
        .collect();
    let mut traces: Vec<(u32, Vec<_>)> = Vec::new();
    for trace in snapshot.traces.iter().filter(|trace| !trace.events.is_empty()) {
        let events = trace.events.iter().map(|event| {
            let bare = Event {
                stack: StackId::NONE,
                forward_stack: StackId::NONE,
                metadata: TextId::NONE,
                context: TextId::NONE,
                pool: 0,
                ..*event
            };
            let texts = (text(event.metadata), text(event.context));
            let stacks = (stack(event.stack), stack(event.forward_stack));
            (bare, pool(event.pool).unwrap_or_default(), texts, stacks)
        });
        traces.push((trace.device, events.collect()));
    }
    (segments, traces, snapshot.annotations.clone(), snapshot.settings.clone())
}

fn setting() -> impl Strategy<Value = Setting> {
    let leaf = prop_oneof![
        Just(Setting::None),
        any::<bool>().prop_map(Setting::Switch),
        any::<i64>().prop_map(Setting::Integer),
        (-1e300..1e300_f64).prop_map(Setting::Number),
        ".{0,12}".prop_map(Setting::Text),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        btree_map("[a-z]{1,4}", inner, 0..4).prop_map(|table| Setting::Table(table.into_iter().collect()))
    })
}

prop_compose! {
    fn event()(
        numbers in (any::<u64>(), any::<u64>(), any::<u64>(), any::<i64>()),
        tables in (0..5_u32, 0..5_u32, 0..4_u32, 0..4_u32, 0..3_u32),
        action in 0..9_usize,
    ) -> Event {
        Event {
            address: numbers.0,
            bytes: numbers.1,
            stream: numbers.2,
            time_us: numbers.3,
            stack: StackId(tables.0),
            forward_stack: StackId(tables.1),
            metadata: TextId(tables.2),
            context: TextId(tables.3),
            pool: tables.4,
            action: TraceAction::ALL[action],
        }
    }
}

prop_compose! {
    fn block()(
        numbers in (any::<u64>(), 0..1_u64 << 40, 0..1_u64 << 40),
        state in 0..3_usize,
        stack in 0..5_u32,
        label in 0..3_u32,
    ) -> Block {
        let state = [BlockState::Allocated, BlockState::Pending, BlockState::Free][state];
        Block {
            address: numbers.0,
            bytes: numbers.1,
            requested: if state == BlockState::Free { 0 } else { numbers.2 },
            state,
            stack: StackId(stack),
            label: TextId(label),
        }
    }
}

prop_compose! {
    fn segment()(
        numbers in (0..9_u32, any::<u64>(), any::<u64>(), any::<u64>(), any::<u64>()),
        tables in (0..3_u32, 0..5_u32),
        switches in (any::<bool>(), any::<bool>()),
        blocks in vec(block(), 0..4),
    ) -> Segment {
        Segment {
            device: numbers.0,
            address: numbers.1,
            bytes: numbers.2,
            stream: numbers.3,
            kind: if switches.0 { SegmentKind::Small } else { SegmentKind::Large },
            pool: tables.0,
            elastic: switches.1,
            asleep: switches.1 && switches.0,
            order: numbers.4,
            stack: StackId(tables.1),
            blocks,
        }
    }
}

prop_compose! {
    fn annotation()(
        name in ".{0,9}",
        end in any::<bool>(),
        device in any::<u32>(),
        time_us in any::<i64>(),
    ) -> Annotation {
        let stage = if end { Stage::End } else { Stage::Start };
        Annotation { name, stage, device, time_us }
    }
}

prop_compose! {
    /// Four stacks, three texts and three pools, and things that name them.
    fn snapshot()(
        names in vec(".{0,9}", 4),
        segments in vec(segment(), 0..4),
        events in vec(vec(event(), 0..6), 0..4),
        annotations in vec(annotation(), 0..3),
        settings in btree_map(".{0,6}", setting(), 0..5),
    ) -> Snapshot {
        let mut snapshot = Snapshot {
            segments,
            annotations,
            settings: settings.into_iter().collect(),
            pools: vec![PoolId(0, 0), PoolId(0, 1), PoolId(u64::MAX, 2)],
            ..Snapshot::default()
        };
        for (device, events) in (0..).zip(events) {
            snapshot.traces.push(Trace { device, events });
        }
        for (line, name) in (1..).zip(&names) {
            // No two alike: the snapshot names four.
            let name = format!("{line}{name}");
            let inner = Frame { name: name.clone(), file: "a.py".into(), line };
            let outer = Frame { name: "main".into(), ..Frame::default() };
            snapshot.stacks.add([inner, outer]);
            snapshot.texts.add(&name);
        }
        snapshot
    }
}

proptest! {
    #[test]
    fn json_gives_back_the_same_value(snapshot in snapshot()) {
        let read = Snapshot::read_json(&*as_json(&snapshot)).unwrap();
        prop_assert_eq!(read, snapshot);
    }

    /// H5 to H12: the reference's shape holds all that a snapshot says.
    #[test]
    fn a_pickle_says_the_same(snapshot in snapshot()) {
        let read = Snapshot::read_pickle(&*as_pickle(&snapshot)).unwrap();
        prop_assert_eq!(said(&read), said(&snapshot));
    }

    #[test]
    fn bytes_that_are_no_snapshot_are_an_error(mut bytes in vec(any::<u8>(), 0..200)) {
        // This is an empty list, and so a snapshot without segments.
        prop_assume!(!bytes.starts_with(b"]."));
        prop_assert!(Snapshot::read_pickle(&*bytes).is_err());
        prop_assert!(Snapshot::read_json(&*bytes).is_err());
        bytes.splice(0..0, [0x80, 4]);
        prop_assert!(Snapshot::read_pickle(&*bytes).is_err());
    }
}

#[test]
fn an_empty_snapshot_survives_both_formats() {
    let empty = Snapshot::default();
    assert_eq!(Snapshot::read_json(&*as_json(&empty)).unwrap(), empty);
    let read = Snapshot::read_pickle(&*as_pickle(&empty)).unwrap();
    assert_eq!(said(&read), said(&empty));
}

/// Each stack is written once, however many events name it.
#[test]
fn a_stack_costs_its_room_once() {
    let mut snapshot = small();
    let event = snapshot.traces[0].events[0];
    snapshot.traces[0].events = vec![event; 1];
    let one = as_pickle(&snapshot).len();
    snapshot.traces[0].events = vec![event; 10_001];
    let each = (as_pickle(&snapshot).len() - one) / 10_000;
    assert!(each < 72, "{each} bytes an event");
    let json = as_json(&snapshot).len() / 10_001;
    assert!(json < 40, "{json} bytes an event");
}

#[test]
fn each_device_has_its_parts_in_their_order() {
    const DEVICES: u32 = 100_000;
    let trace = |device| Trace { device, events: Vec::new() };
    let traces = (0..DEVICES).rev().map(trace).chain([trace(3)]).collect();
    let snapshot = Snapshot { traces, ..Snapshot::default() };
    let parts = snapshot.by_device();
    assert!(parts.keys().copied().eq(0..DEVICES));
    assert_eq!(parts[&3].traces.len(), 2);
    assert!(std::ptr::eq(parts[&3].traces[1], snapshot.traces.last().unwrap()));
}
