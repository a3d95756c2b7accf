//! Snapshots of the allocator's memory.

use cachette::history::HistoryOptions;
use cachette::snapshot::{BlockState, Segment, SegmentKind, Setting, SnapshotOptions};
use cachette::{Label, Snapshot};

use crate::fixture::{MIB, TestAllocator};
use crate::history::events_only;

/// The states and sizes of a segment's blocks.
fn blocks(segment: &Segment) -> Vec<(BlockState, u64, u64)> {
    let blocks = segment.blocks.iter();
    let facts = blocks.map(|block| (block.state, block.bytes, block.requested));
    facts.collect()
}

/// Checks that blocks tile their segments, segments are in order, and sums are what the statistics say.
pub(crate) fn assert_tiles(snapshot: &Snapshot, test: &TestAllocator) {
    let mut end = 0;
    for segment in &snapshot.segments {
        assert!(segment.address >= end, "segments overlap");
        let mut at = segment.address;
        for block in &segment.blocks {
            assert_eq!(block.address, at, "blocks tile");
            at += block.bytes;
        }
        assert_eq!(at, segment.address + segment.bytes);
        end = at;
    }
    let stats = test.stats();
    let sum = |state| -> u64 { snapshot.segments.iter().map(|s| s.bytes_in(state)).sum() };
    let allocated = stats.allocated_bytes.all.current;
    assert_eq!(sum(BlockState::Allocated), allocated);
    let pending = stats.active_bytes.all.current - allocated;
    assert_eq!(sum(BlockState::Pending), pending);
    let reserved: u64 = snapshot.segments.iter().map(|s| s.bytes).sum();
    assert_eq!(reserved, stats.reserved_bytes.all.current);
    let requested: u64 = snapshot.segments.iter().map(Segment::requested).sum();
    assert_eq!(requested, stats.requested_bytes.all.current);
}

#[test]
fn h8_h9_segments_come_by_address_with_their_blocks_and_states() {
    let (test, [stream, side]) = TestAllocator::new().with_streams();
    let small = test.allocate(1000, &stream);
    let waiting = test.allocate(MIB - 100, &stream);
    let large = test.allocate(5 * MIB, &side);
    let whole = test.allocate(12 * MIB, &stream);
    let hold = test.free_in_use(waiting, &side);
    let snapshot = test.allocator.snapshot();
    assert!(snapshot.segments.is_sorted_by_key(|segment| segment.address));
    let of = |address: u64| {
        let mut segments = snapshot.segments.iter();
        let found = segments.find(|s| (s.address..s.address + s.bytes).contains(&address));
        found.expect("it is held")
    };
    let segment = of(small.address());
    assert_eq!((segment.kind, segment.bytes), (SegmentKind::Small, 2 * MIB));
    assert_eq!(
        blocks(segment),
        [(BlockState::Allocated, 1024, 1000), (BlockState::Pending, MIB, MIB - 100), (BlockState::Free, MIB - 1024, 0)]
    );
    let segment = of(large.address());
    assert_eq!((segment.kind, segment.bytes), (SegmentKind::Large, 20 * MIB));
    assert_eq!(segment.stream, side.handle().raw() as u64);
    assert_eq!(blocks(segment), [(BlockState::Allocated, 5 * MIB, 5 * MIB), (BlockState::Free, 15 * MIB, 0)]);
    assert!(!segment.elastic);
    assert_eq!((segment.device, segment.pool), (0, 0));
    assert_tiles(&snapshot, &test);
    hold.release();
    drop((small, large, whole));
}

#[test]
fn h8_segments_say_in_which_order_they_were_obtained() {
    let (test, [stream, side]) = TestAllocator::new().with_streams();
    let held = [test.allocate(12 * MIB, &stream), test.allocate(12 * MIB, &side), test.allocate(12 * MIB, &stream)];
    let snapshot = test.allocator.snapshot();
    for (order, memory) in (0_u64..).zip(&held) {
        let mut segments = snapshot.segments.iter();
        let found = segments.find(|segment| segment.address == memory.address());
        assert_eq!(found.unwrap().order, order);
    }
}

#[test]
fn h8_after_the_cache_is_emptied_what_went_back_is_not_there() {
    let (test, [stream]) = TestAllocator::new().with_streams();
    test.allocator.record_history(events_only());
    let kept = test.allocate(700, &stream);
    drop(test.allocate(12 * MIB, &stream));
    assert_eq!(test.allocator.snapshot().segments.len(), 2);
    test.allocator.empty_cache().unwrap();
    let snapshot = test.allocator.snapshot();
    assert_eq!(snapshot.segments.len(), 1);
    let last = snapshot.traces[0].events.last().unwrap();
    assert_eq!(last.action, cachette::snapshot::TraceAction::SegmentFree);
    assert_tiles(&snapshot, &test);
    drop(kept);
    test.allocator.empty_cache().unwrap();
    assert!(test.allocator.snapshot().segments.is_empty());
}

#[test]
fn h8_each_mapped_range_of_an_elastic_segment_is_a_segment() {
    let (test, [stream]) = TestAllocator::elastic("").with_streams();
    let memory: Vec<_> = (0..3).map(|_| test.allocate(4 * MIB, &stream)).collect();
    let at: Vec<u64> = memory.iter().map(cachette::Allocation::address).collect();
    let mapped = test.allocator.snapshot();
    assert_eq!(mapped.segments.len(), 1);
    assert_eq!(mapped.segments[0].bytes, 12 * MIB);
    assert!(mapped.segments[0].elastic);
    assert_tiles(&mapped, &test);
    // The middle goes back to the device, and with it what was one range becomes two.
    let mut memory = memory.into_iter();
    let (first, middle, last) = (memory.next(), memory.next(), memory.next());
    drop(middle);
    test.allocator.empty_cache().unwrap();
    test.device.run_until_idle();
    test.allocator.empty_cache().unwrap();
    let holed = test.allocator.snapshot();
    let ranges: Vec<_> = holed.segments.iter().map(|s| (s.address, s.bytes)).collect();
    assert_eq!(ranges, [(at[0], 4 * MIB), (at[2], 4 * MIB)]);
    assert_tiles(&holed, &test);
    drop((first, last));
}

#[test]
fn h11_without_traces_there_is_only_what_is_held() {
    let (test, [stream]) = TestAllocator::new().with_streams();
    test.allocator.record_history(HistoryOptions::new());
    let memory = test.allocate(700, &stream);
    let full = test.allocator.snapshot();
    assert_eq!(full.traces.len(), 1);
    let options = SnapshotOptions::new().traces(false);
    let bare = test.allocator.snapshot_with(options);
    assert!(bare.traces.is_empty() && bare.annotations.is_empty());
    let shape = |snapshot: &Snapshot| blocks(&snapshot.segments[0]);
    assert_eq!(shape(&bare), shape(&full));
    let stack = bare.segments[0].blocks[0].stack;
    assert!(bare.stacks.frames_of(stack).len() > 0, "blocks keep theirs");
    drop(memory);
}

#[test]
fn h10_settings_have_the_keys_that_readers_know() {
    let settings = "max_split_size_mb:64,roundup_power2_divisions:[256:1,512:2,>:8],never_block:True";
    let test = TestAllocator::with(settings);
    let snapshot = test.allocator.snapshot();
    let setting = |key: &str| {
        let mut settings = snapshot.settings.iter();
        let found = settings.find(|(known, _)| known == key);
        &found.unwrap_or_else(|| panic!("no {key}")).1
    };
    let written = setting("PYTORCH_CUDA_ALLOC_CONF");
    assert_eq!(*written, Setting::Text(test.allocator.config().to_string()));
    assert_eq!(*setting("max_split_size"), Setting::Integer(64 << 20));
    assert_eq!(*setting("garbage_collection_threshold"), Setting::Number(0.0));
    for key in [
        "expandable_segments",
        "release_lock_on_cudamalloc",
        "pinned_use_cuda_host_register",
        "graph_capture_record_stream_reuse",
    ] {
        assert_eq!(*setting(key), Setting::Switch(false), "{key}");
    }
    assert_eq!(*setting("pinned_num_register_threads"), Setting::Integer(1));
    let Setting::Table(divisions) = setting("roundup_power2_divisions") else {
        panic!("a table");
    };
    assert_eq!(divisions.len(), 16);
    assert_eq!(divisions[0], ("1".to_owned(), Setting::Integer(1)));
    assert_eq!(divisions[9], ("512".to_owned(), Setting::Integer(2)));
    assert_eq!(divisions[15], ("32768".to_owned(), Setting::Integer(8)));
    assert_eq!(*setting("never_block"), Setting::Switch(true));
    let bare = TestAllocator::new().allocator.snapshot();
    let (_, split) = &bare.settings[1];
    assert_eq!(*split, Setting::Integer(-1), "no bound");
}

#[test]
fn h7_snapshots_of_two_devices_become_one() {
    let tests = TestAllocator::two_devices();
    for test in &tests {
        test.allocator.record_history(HistoryOptions::new());
    }
    let held = tests.each_ref().map(|test| test.allocate(700, &test.stream()));
    let [one, two] = tests.each_ref().map(|test| test.allocator.snapshot());
    let both = two.merge(one);
    let devices: Vec<_> = both.traces.iter().map(|trace| trace.device).collect();
    assert_eq!(devices, [0, 1]);
    assert_eq!(both.segments.len(), 2);
    for (segment, memory) in both.segments.iter().zip(&held) {
        assert_eq!(segment.address, memory.address());
        let mut frames = both.stacks.frames_of(segment.blocks[0].stack);
        assert!(frames.any(|frame| frame.name.contains("h7_snapshots_of_two")));
    }
}

#[test]
fn a_snapshot_counts_as_no_use_and_calls_no_driver() {
    let (test, [stream]) = TestAllocator::new().with_streams();
    let memory = test.allocate(700, &stream);
    let before = test.stats();
    let calls = test.calls_during(|| drop(test.allocator.snapshot()));
    assert_eq!(calls, 0);
    assert_eq!(test.stats(), before);
    drop(memory);
}

#[test]
fn h9_a_free_block_tells_its_last_request() {
    let (test, [stream]) = TestAllocator::new().with_streams();
    drop([1000, 65_536].map(|bytes| test.allocate(bytes, &stream)));
    let snapshot = test.allocator.snapshot();
    let [(state, bytes, requested)] = blocks(&snapshot.segments[0])[..] else {
        panic!("its blocks are one again");
    };
    assert_eq!((state, bytes), (BlockState::Free, 2 * MIB));
    assert!([1000, 65_536].contains(&requested), "{requested}");
    assert_eq!(snapshot.segments[0].requested(), 0);
}

#[test]
fn h9_a_block_tells_which_library_asked_for_it() {
    let (test, [stream, side]) = TestAllocator::new().with_streams();
    let owned = test.allocate(5 * MIB, &stream);
    let given_up = test.allocator.create_pool().allocate(5 * MIB, &stream).unwrap().into_raw_as(Label::new("c"));
    let by = |label| {
        // SAFETY: the stream lives as long as the test.
        unsafe { test.allocator.allocate_raw_as(5 * MIB, stream.handle(), label) }.unwrap()
    };
    let [cupy, torch, none] = [Label::new("cupy"), Label::new("torch"), Label::NONE].map(by);
    let labels = || {
        let snapshot = test.allocator.snapshot();
        let blocks = snapshot.segments.iter().flat_map(|segment| &segment.blocks);
        let label_of = |address| {
            let block = blocks.clone().find(|block| block.address == address).unwrap();
            snapshot.texts.get(block.label).to_owned()
        };
        [owned.address(), given_up, cupy, torch, none].map(label_of)
    };
    assert_eq!(labels(), ["", "c", "cupy", "torch", ""]);
    let hold = test.hold(&side);
    // SAFETY: both streams live as long as the test.
    unsafe { test.allocator.record_stream_raw(cupy, side.handle()) }.unwrap();
    test.allocator.free_raw(cupy).unwrap();
    test.allocator.free_raw(torch).unwrap();
    test.allocator.free_raw(given_up).unwrap();
    assert_eq!(labels(), ["", "", "cupy", "", ""], "a pending block keeps its label, and a free one has none");
    drop(hold);
    test.allocator.free_raw(none).unwrap();
}
