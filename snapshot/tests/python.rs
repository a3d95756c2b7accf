//! Python reads our pickles, and we read those it writes.

mod sample;

use std::io::Write;
use std::process::{Command, Stdio};

use cachette_snapshot::{BlockState, PoolId, SegmentKind, Setting, Snapshot, StackId, TraceAction};
use sample::{as_json, as_pickle, small};

/// What a Python program writes, given this on its standard input; `None` where there is no Python.
fn python(program: &str, argument: &str, input: &[u8]) -> Option<Vec<u8>> {
    let mut child = match Command::new("python3")
        .args(["-c", program, argument])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
    {
        Ok(child) => child,
        Err(error) => {
            println!("skipped: python3 cannot be run: {error}");
            return None;
        }
    };
    let mut stdin = child.stdin.take().expect("it is piped");
    stdin.write_all(input).expect("it is read");
    drop(stdin);
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "the Python program failed");
    Some(output.stdout)
}

/// H5, H7, H8, H9: the keys and the values that the reference's viewers ask for.
const READER: &str = r"
import pickle, sys
s = pickle.load(sys.stdin.buffer)
assert set(s) == {'segments', 'device_traces', 'allocator_settings', 'external_annotations', 'outside'}, set(s)
assert s['outside'][1] == {'device': 3, 'size': 5, 'managed': 6, 'host': 7}
g, = s['segments']
assert set(g) >= {'device', 'address', 'total_size', 'allocated_size', 'active_size', 'requested_size', 'stream',
    'segment_type', 'segment_pool_id', 'is_expandable', 'frames', 'blocks'}, set(g)
assert (g['total_size'], g['allocated_size'], g['active_size'], g['requested_size']) == (2 << 20, 1024, 1536, 1100)
assert (g['segment_type'], g['segment_pool_id'], g['is_expandable'], g['is_asleep']) == ('small', (1, 7), True, True)
assert [b['state'] for b in g['blocks']] == ['active_allocated', 'active_pending_free', 'inactive']
plain = {'address', 'size', 'requested_size', 'state', 'frames'}
assert [set(b) - plain for b in g['blocks']] == [{'label'}, {'label'}, set()]
assert [b.get('label') for b in g['blocks']] == ['torch', 'torch', None]
empty, events = s['device_traces']
assert empty == []
assert [e['action'] for e in events] == ['segment_alloc', 'alloc', 'oom']
common = {'action', 'size', 'stream', 'time_us', 'compile_context', 'user_metadata', 'frames', 'pool_id'}
assert set(events[0]) == common | {'addr'}, set(events[0])
assert set(events[1]) == common | {'addr', 'forward_frames'}
assert set(events[2]) == common | {'device_free'}
assert events[0]['compile_context'] == 'N/A' and events[0]['user_metadata'] == ''
assert events[1]['compile_context'] == '1/0' and events[1]['user_metadata'] == 'epoch 1'
assert events[1]['stream'] == 2**64 - 1 and events[0]['pool_id'] == (0, 0) and events[1]['pool_id'] == (1, 7)
assert events[0]['frames'][0] == {'name': 'step', 'filename': 'train.py', 'line': 10}
assert events[0]['frames'] is events[1]['frames'], 'a stack is shared'
assert s['external_annotations'] == [{'name': '## forward ##', 'stage': 'END', 'device': 1, 'time_us': -5}]
assert s['allocator_settings']['max_split_size'] == -1
assert s['allocator_settings']['garbage_collection_threshold'] == 0.8
assert s['allocator_settings']['roundup_power2_divisions'] == {'1': 0}
print('good', end='')
";

#[test]
fn python_reads_what_is_written() {
    if let Some(answer) = python(READER, "", &as_pickle(&small())) {
        assert_eq!(answer, b"good");
    }
}

/// The shape that docs/snapshots.md describes.
const JSON_READER: &str = r"
import json, sys
s = json.load(sys.stdin.buffer)
assert list(s) == ['format', 'version', 'pools', 'texts', 'frames', 'stacks', 'settings', 'annotations', 'segments',
    'traces', 'outside'], list(s)
assert s['outside'][1] == {'device': 3, 'bytes': 5, 'managed': 6, 'host': 7}
assert (s['format'], s['version']) == ('cachette-snapshot', 1)
first, second, third = s['traces'][0]['events']
assert first == [3, 0x7f0000000000, 1000, 0, 1700000000000000, 1], first
assert second == [0, 0x7f0000000000, 1000, 2**64 - 1, 5, 1, 1, 1, 2, 2], second
assert third[4] == -2
assert [s['frames'][f] for f in s['stacks'][0]] == [['step', 'train.py', 10], ['main', 'train.py', 3]]
assert s['segments'][0]['blocks'][1] == [0x7f0000000000 + 1024, 512, 100, 1, 1, 3]
assert s['texts'][3 - 1] == 'torch'
print('good', end='')
";

#[test]
fn any_program_can_read_the_json() {
    if let Some(answer) = python(JSON_READER, "", &as_json(&small())) {
        assert_eq!(answer, b"good");
    }
}

/// A snapshot in the reference's shape, with what some versions of it have besides.
const WRITER: &str = r#"
import pickle, sys
protocol = int(sys.argv[1])
frame = {'name': 'step', 'filename': 'train.py', 'line': 10}
frames = [frame, {'name': 'main', 'filename': 'train.py', 'line': 3, 'fx_node_op': 'call'}]
def event(action, addr, **more):
    return {'action': action, 'addr': addr, 'size': 1000, 'stream': 0, 'time_us': 1700000000000000 + addr % 7,
        'compile_context': 'N/A', 'user_metadata': '', 'frames': list(frames), **more}
base = 0x7f0000000000
events = [event('alloc', base + 512 * i) for i in range(2500)]
events.append(event('free_completed', base, pool_id=(0, 3), forward_frames=['File "train.py", line 9\n']))
oom = event('oom', 0, user_metadata='step 9')
del oom['addr']
oom['device_free'] = 12345
events.append(oom)
snapshot = {
    'segments': [{'device': 1, 'address': -4096, 'total_size': 2 << 20, 'allocated_size': 512, 'active_size': 512,
        'requested_size': 100, 'stream': 2**63, 'segment_type': 'small', 'segment_pool_id': (0, 3),
        'is_expandable': True, 'frames': [], 'a_later_key': {'x': [1, 2]}, 'blocks': [
            {'address': base, 'size': 512, 'requested_size': 100, 'state': 'active_allocated', 'frames': frames},
            {'size': 512, 'requested_size': 99, 'state': 'active_awaiting_free', 'frames': []},
            {'size': (2 << 20) - 1024, 'requested_size': 77, 'state': 'inactive', 'frames': []}]}],
    'device_traces': [[], events],
    'allocator_settings': {'PYTORCH_CUDA_ALLOC_CONF': 'expandable_segments:True', 'max_split_size': 2**64 - 1,
        'garbage_collection_threshold': 0.5, 'roundup_power2_divisions': {'1': 0, '2': 4}, 'odd': (1, 2)},
    'external_annotations': [{'name': 'Optimizer', 'stage': 'START', 'device': 1, 'time_us': 5}],
    'something_new': b'bytes' if protocol > 2 else 1, 'another': {1.5: None, 'b': True},
}
pickle.dump(snapshot, sys.stdout.buffer, protocol=protocol)
"#;

/// H5 to H12, for every protocol that a snapshot can have.
#[test]
fn what_python_writes_is_read() {
    for protocol in ["2", "3", "4", "5"] {
        let Some(bytes) = python(WRITER, protocol, b"") else {
            return;
        };
        let snapshot = Snapshot::read_pickle(&*bytes).unwrap();
        check(&snapshot);
        // Cut short, it is an error wherever it ends.
        for length in (1..bytes.len()).step_by(9_973) {
            assert!(Snapshot::read_pickle(&bytes[..length]).is_err());
        }
    }
}

fn check(snapshot: &Snapshot) {
    let segment = &snapshot.segments[0];
    assert_eq!(segment.address, 4096_u64.wrapping_neg());
    assert_eq!((segment.stream, segment.kind), (1 << 63, SegmentKind::Small));
    assert_eq!((segment.elastic, segment.stack), (true, StackId::NONE));
    assert_eq!(snapshot.pools[segment.pool as usize], PoolId(0, 3));
    let states: Vec<_> = segment.blocks.iter().map(|block| block.state).collect();
    assert_eq!(states, [BlockState::Allocated, BlockState::Pending, BlockState::Free]);
    let [first, second, third] = segment.blocks[..] else {
        panic!("three blocks");
    };
    assert_eq!(second.address, first.address + 512);
    assert_eq!((second.requested, third.requested), (99, 77));
    assert_eq!(segment.requested(), 100 + 99, "of what is in use");

    let [trace] = &snapshot.traces[..] else {
        panic!("one device has a history");
    };
    assert_eq!((trace.device, trace.events.len()), (1, 2502));
    let (alloc, freed, oom) = (trace.events[0], trace.events[2500], trace.events[2501]);
    assert_eq!(alloc.action, TraceAction::Alloc);
    assert_eq!(alloc.stack, first.stack);
    assert_eq!(snapshot.stacks.len(), 2);
    let frames: Vec<_> = snapshot.stacks.frames_of(alloc.stack).collect();
    assert_eq!((&*frames[0].name, frames[1].line), ("step", 3));
    assert_eq!(freed.pool, segment.pool);
    let forward = snapshot.stacks.frames_of(freed.forward_stack).next();
    let forward = forward.expect("a frame");
    assert_eq!(forward.name, "File \"train.py\", line 9");
    assert_eq!((oom.action, oom.address), (TraceAction::OutOfMemory, 12345));
    assert_eq!(snapshot.texts.get(oom.metadata), "step 9");
    assert_eq!(snapshot.texts.get(oom.context), "");

    assert_eq!(snapshot.annotations[0].name, "Optimizer");
    let settings: Vec<_> = snapshot.settings.iter().map(|(key, _)| &**key).collect();
    assert_eq!(settings.len(), 4, "{settings:?}");
    assert_eq!(snapshot.settings[2].1, Setting::Number(0.5));
    let Setting::Table(table) = &snapshot.settings[3].1 else {
        panic!("a table");
    };
    assert_eq!(table[1], ("2".to_owned(), Setting::Integer(4)));
}
