//! Stack traces in the history.

use std::num::NonZeroU32;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread;

use cachette::history::{Frame, HistoryOptions, Level, RawStack, ResolvedStack, StackSource};
use cachette::snapshot::{StackId, TraceAction};
use cachette::{Allocator, Error, OutOfMemory, Snapshot};

use crate::fixture::{Allocation, MIB, Stream, TestAllocator, let_pass};

#[inline(never)]
fn the_alloc(test: &TestAllocator, bytes: u64, stream: &Stream) -> Allocation {
    let memory = test.allocate(bytes, stream);
    // Something after the call, so that this function is not left before it.
    std::hint::black_box(());
    memory
}

#[inline(never)]
fn the_free(memory: Allocation) {
    drop(memory);
    std::hint::black_box(());
}

#[inline(never)]
fn the_emptying(test: &TestAllocator) {
    test.allocator.empty_cache().expect("nothing fails here");
    std::hint::black_box(());
}

/// Whether a function of that name is among the callers.
fn names(snapshot: &Snapshot, stack: StackId, function: &str) -> bool {
    let mut frames = snapshot.stacks.frames_of(stack);
    frames.any(|frame| frame.name.contains(function))
}

/// For each action of the trace, whether `function` is among the callers.
fn named(snapshot: &Snapshot, function: &str) -> Vec<(TraceAction, bool)> {
    let events = snapshot.traces[0].events.iter();
    let told = events.map(|event| (event.action, names(snapshot, event.stack, function)));
    told.filter(|(action, _)| *action != TraceAction::Snapshot).collect()
}

/// A history at a level in which a block was allocated, freed and given back; and a live one.
fn recorded(level: Level) -> (TestAllocator, Allocation, Snapshot) {
    let (test, [stream]) = TestAllocator::new().with_streams();
    test.allocator.record_history(HistoryOptions::new().level(level));
    let memory = the_alloc(&test, 12 * MIB, &stream);
    the_free(memory);
    the_emptying(&test);
    let live = the_alloc(&test, 700, &stream);
    let snapshot = test.allocator.snapshot();
    (test, live, snapshot)
}

const ACTIONS: [TraceAction; 7] = [
    TraceAction::SegmentAlloc,
    TraceAction::Alloc,
    TraceAction::FreeRequested,
    TraceAction::FreeCompleted,
    TraceAction::SegmentFree,
    TraceAction::SegmentAlloc,
    TraceAction::Alloc,
];

#[test]
fn h1_a_level_says_which_actions_keep_where_they_happened() {
    let emptying = [false, false, false, false, true, false, false];
    let allocs = [true, true, false, false, false, true, true];
    let frees = [false, false, true, true, false, false, false];
    let none = [false; 7];
    for (level, rows) in [
        (Level::All, [("the_alloc", allocs), ("the_free", frees), ("the_emptying", emptying)]),
        // What is freed has the stack of its allocation.
        (Level::Alloc, [("the_alloc", [true; 7]), ("the_free", none), ("the_emptying", none)]),
        (Level::None, [("the_alloc", none), ("the_free", none), ("the_emptying", none)]),
    ] {
        let (test, live, snapshot) = recorded(level);
        for (function, expected) in rows {
            let expected: Vec<_> = ACTIONS.into_iter().zip(expected).collect();
            assert_eq!(named(&snapshot, function), expected, "{level:?}, {function}");
        }
        if level == Level::None {
            assert!(snapshot.stacks.is_empty());
            assert!(test.allocator.allocation_stack(live.address()).is_none());
        }
    }
}

#[test]
fn h1_state_keeps_it_of_what_is_allocated_alone() {
    let (test, live, snapshot) = recorded(Level::State);
    for (action, named) in named(&snapshot, "the_alloc") {
        assert!(!named, "{action:?}");
    }
    let segment = &snapshot.segments[0];
    assert_eq!(segment.stack, StackId::NONE, "it is no block in use");
    assert!(names(&snapshot, segment.blocks[0].stack, "the_alloc"));
    assert_eq!(segment.blocks[1].stack, StackId::NONE, "it is free");
    let stack = test.allocator.allocation_stack(live.address()).unwrap();
    assert!(stack.frames.iter().any(|f| f.name.contains("the_alloc")));
}

#[test]
fn h16_the_allocator_is_not_among_its_own_callers() {
    let (test, live, _) = recorded(Level::All);
    let stack = test.allocator.allocation_stack(live.address()).unwrap();
    let first = &stack.frames[0];
    assert!(first.name.contains("allocate") && first.file.ends_with("behaviour/fixture.rs"), "{first:?}");
}

#[test]
fn h16_nothing_is_known_of_what_is_freed_or_was_never_there() {
    let (test, [stream]) = TestAllocator::new().with_streams();
    let before = test.allocate(700, &stream);
    test.allocator.record_history(HistoryOptions::new());
    let after = test.allocate(700, &stream);
    let stack_at = |address| test.allocator.allocation_stack(address);
    assert!(stack_at(before.address()).is_none(), "the history was off");
    let address = after.address();
    assert!(stack_at(address).is_some());
    assert!(stack_at(address + 1).is_none());
    drop(after);
    assert!(stack_at(address).is_none());
    let raw = test.allocate_raw(700, &stream);
    assert!(stack_at(raw).is_some());
    test.allocator.free_raw(raw).unwrap();
    assert!(stack_at(raw).is_none());
    assert!(test.allocator.free_raw(raw).is_err(), "it was freed before");
    test.allocator.stop_history();
    let again = test.allocate(700, &stream);
    test.allocator.record_history(HistoryOptions::new());
    assert!(stack_at(again.address()).is_none(), "the history was off");
}

#[test]
fn h1_what_waits_for_other_streams_is_known_until_it_is_free() {
    let (test, [stream, side]) = TestAllocator::new().with_streams();
    test.allocator.record_history(HistoryOptions::new().level(Level::Alloc));
    let memory = the_alloc(&test, MIB, &stream);
    let hold = test.hold(&side);
    memory.record_stream(&side);
    the_free(memory);
    let waiting = test.allocator.snapshot();
    let block = waiting.segments[0].blocks[0];
    assert_eq!(block.state, cachette::snapshot::BlockState::Pending);
    assert!(names(&waiting, block.stack, "the_alloc"));
    let_pass(hold, &side);
    drop(test.allocate(512, &stream));
    let passed = test.allocator.snapshot();
    let blocks = &passed.segments[0].blocks;
    assert!(blocks.iter().all(|block| block.stack == StackId::NONE));
}

/// Numbers its calls, and says so.
#[derive(Debug, Default)]
struct Counting(AtomicU32);

/// The stacks of another source, by its numbers.
#[derive(Debug)]
struct Sharing(Arc<Counting>);

impl StackSource for Sharing {
    fn capture(&self) -> Option<RawStack> {
        None
    }

    fn resolve(&self, stacks: &[RawStack]) -> Vec<ResolvedStack> {
        self.0.resolve(stacks)
    }

    fn numbering(&self) -> usize {
        self.0.numbering()
    }
}

impl StackSource for Counting {
    fn capture(&self) -> Option<RawStack> {
        NonZeroU32::new(self.0.fetch_add(1, Relaxed) + 1).map(RawStack)
    }

    fn resolve(&self, stacks: &[RawStack]) -> Vec<ResolvedStack> {
        let frame = |name: String| vec![Frame { name, ..Frame::default() }];
        let resolved = stacks.iter().map(|stack| ResolvedStack {
            frames: frame(format!("call {}", stack.0)),
            forward: frame(format!("forward of {}", stack.0)),
        });
        resolved.collect()
    }
}

#[test]
fn h5_another_stack_source_names_call_and_forward_pass() {
    let (test, [stream]) = TestAllocator::new().with_streams();
    let source = Arc::new(Counting::default());
    test.allocator.record_history(HistoryOptions::new().stack_source(Arc::<Counting>::clone(&source)));
    drop(test.allocate(700, &stream));
    let calls = source.0.load(Relaxed);
    let snapshot = test.allocator.snapshot();
    let told: Vec<(TraceAction, String, String)> = snapshot.traces[0]
        .events
        .iter()
        .map(|event| {
            let first = |stack| {
                let mut frames = snapshot.stacks.frames_of(stack);
                frames.next().map_or_else(String::new, |f| f.name.clone())
            };
            (event.action, first(event.stack), first(event.forward_stack))
        })
        .collect();
    let with = |action, call: u32| (action, format!("call {call}"), format!("forward of {call}"));
    // The first look found no block, so the request was asked twice.
    assert_eq!(
        told,
        [
            with(TraceAction::SegmentAlloc, 2),
            with(TraceAction::Alloc, 2),
            with(TraceAction::FreeRequested, 3),
            with(TraceAction::FreeCompleted, 3),
        ]
    );
    assert_eq!(calls, 3);
    // The snapshot was asked, and a hit is asked once.
    drop(test.allocate(700, &stream));
    assert_eq!(source.0.load(Relaxed), 6);
}

#[test]
fn what_another_source_said_is_forgotten_with_it() {
    let (test, [stream]) = TestAllocator::new().with_streams();
    test.allocator.record_history(HistoryOptions::new().stack_source(Arc::new(Counting::default())));
    let live = test.allocate(700, &stream);
    test.allocator.record_history(HistoryOptions::new());
    assert!(test.allocator.allocation_stack(live.address()).is_none());
    assert!(test.allocator.snapshot().traces[0].events.is_empty());
}

#[test]
fn what_a_source_with_the_same_numbers_said_stays() {
    let (test, [stream]) = TestAllocator::new().with_streams();
    let first = Arc::new(Counting::default());
    let record = |source| {
        test.allocator.record_history(HistoryOptions::new().stack_source(source));
    };
    record(Arc::<Counting>::clone(&first) as Arc<dyn StackSource>);
    let live = test.allocate(700, &stream);
    record(Arc::new(Sharing(first)));
    let stack = test.allocator.allocation_stack(live.address()).unwrap();
    assert_eq!(stack.frames[0].name, "call 2");
    assert_eq!(test.allocator.snapshot().traces[0].events.len(), 2);
}

#[test]
fn m19_the_report_names_the_top_allocation_sites() {
    let (test, [stream]) = TestAllocator::of(64 * MIB, "").with_streams();
    let failed = || match test.allocator.allocate(60 * MIB, &stream) {
        Err(Error::OutOfMemory(report)) => report,
        other => panic!("{other:?}"),
    };
    let unseen = test.allocate(12 * MIB, &stream);
    assert!(failed().holders().is_empty());
    test.allocator.record_history(HistoryOptions::new().level(Level::State));
    let small = test.allocate(700, &stream);
    let twelve = test.allocator.allocate(12 * MIB, &stream).unwrap();
    let fourteen = test.allocator.allocate(14 * MIB, &stream).unwrap();
    let report = failed();
    let holders: Vec<_> = report.holders().iter().map(|h| (h.bytes, h.blocks)).collect();
    assert_eq!(holders, [(14 * MIB, 1), (12 * MIB, 1), (1024, 1)]);
    let frames = &report.holders()[0].frames;
    assert!(frames.iter().any(|frame| frame.name.contains("top_allocation_sites")));
    let message = report.to_string();
    let line = message.lines().find(|line| line.starts_with("14.00 MiB in 1 block, allocated in ")).expect(&message);
    assert!(line.contains("top_allocation_sites history_stacks.rs:"), "{line}");
    drop((unseen, small, twelve, fourteen));
}

/// Stacks of one line of Python, all with other native frames above it, and of a second line.
#[derive(Debug, Default)]
struct Interpreted {
    captured: AtomicU32,
    resolved: AtomicU32,
}

impl StackSource for Interpreted {
    fn capture(&self) -> Option<RawStack> {
        NonZeroU32::new(self.captured.fetch_add(1, Relaxed) + 1).map(RawStack)
    }

    fn resolve(&self, stacks: &[RawStack]) -> Vec<ResolvedStack> {
        self.resolved.fetch_add(1, Relaxed);
        let frame = |name: String, file: &str, line| Frame { name, file: file.to_owned(), line };
        let resolved = stacks.iter().map(|stack| {
            let native = frame(format!("call_{}", stack.0), "Objects/descrobject.c", 426);
            let frames = vec![native, frame("weights".to_owned(), "/home/me/train.py", 7)];
            ResolvedStack { frames, forward: Vec::new() }
        });
        resolved.collect()
    }
}

/// A report of a history with `source`: 20 blocks of 1 MiB are in use.
fn report_with(source: &Arc<Interpreted>) -> (TestAllocator, OutOfMemory) {
    let (test, [stream]) = TestAllocator::of(64 * MIB, "").with_streams();
    test.allocator.record_history(HistoryOptions::new().stack_source(Arc::<Interpreted>::clone(source)));
    let blocks: Vec<u64> = (0..20).map(|_| test.allocate_raw(MIB, &stream)).collect();
    let Err(Error::OutOfMemory(report)) = test.allocator.allocate(60 * MIB, &stream) else { panic!("it has no room") };
    for block in blocks {
        test.allocator.free_raw(block).expect("it is in use");
    }
    (test, *report)
}

#[test]
fn m19_stacks_of_one_line_of_python_are_one_site() {
    let (_test, report) = report_with(&Arc::default());
    let message = report.to_string();
    assert!(message.contains("\n20.00 MiB in 20 blocks, allocated in weights train.py:7\n"), "{message}");
    assert_eq!(message.matches(", allocated in").count(), 1, "{message}");
    let [site] = report.holders() else { panic!("{:?}", report.holders()) };
    assert_eq!((site.bytes, site.blocks, site.frames.len()), (20 * MIB, 20, 2));
}

#[test]
fn m19_stacks_are_resolved_when_the_text_is_read() {
    let source = Arc::new(Interpreted::default());
    let (test, report) = report_with(&source);
    let copy = report.clone();
    assert!(copy == report && report.hints() == copy.hints());
    assert_eq!(source.resolved.load(Relaxed), 0, "nothing was read");
    let message = report.to_string();
    assert_eq!(source.resolved.load(Relaxed), 1);
    assert_eq!((report.to_string(), copy.to_string()), (message.clone(), message));
    assert_eq!(source.resolved.load(Relaxed), 1, "copies share it");
    assert_eq!(report.holders(), copy.holders());
    assert_eq!(source.resolved.load(Relaxed), 2, "all frames are another question");
    drop(test);
}

#[test]
fn m19_a_report_outlives_the_history_and_does_not_keep_its_source() {
    let source = Arc::new(Interpreted::default());
    let (test, report) = report_with(&source);
    test.allocator.record_history(HistoryOptions::new());
    assert_eq!(Arc::strong_count(&source), 1, "the report has resolved its stacks");
    assert!(report.to_string().contains("weights train.py:7"));
    let unread = report_with(&source).1;
    assert!(unread.to_string().contains("weights train.py:7"), "its allocator is gone");
}

/// Whether the history knows where the memory at `address` was allocated.
fn is_known(test: &TestAllocator, address: u64) -> bool {
    let stack = test.allocator.allocation_stack(address);
    let snapshot = test.allocator.snapshot();
    let mut blocks = snapshot.segments.iter().flat_map(|segment| &segment.blocks);
    let block = blocks.find(|block| block.address == address).expect("it is held");
    assert_eq!(stack.is_some(), names(&snapshot, block.stack, "the_alloc"));
    stack.is_some()
}

#[test]
fn h1_memory_in_use_keeps_its_stack_after_a_stop() {
    let (test, live, _) = recorded(Level::State);
    let stream = test.stream();
    test.allocator.stop_history();
    assert!(is_known(&test, live.address()), "it was allocated while a history was recorded");
    let later = the_alloc(&test, 700, &stream);
    assert!(!is_known(&test, later.address()), "it was allocated when none was");
    assert!(test.allocator.snapshot().traces.iter().all(|trace| trace.events.is_empty()), "events go with the history");
}

#[test]
fn h1_after_a_stop_a_stack_goes_with_its_memory() {
    let frees: [fn(&TestAllocator, Allocation, &Stream); 4] = [
        |test, live, _| {
            test.allocator.stop_history();
            the_free(live);
        },
        |test, live, side| {
            test.allocator.stop_history();
            live.record_stream(side);
            the_free(live);
        },
        // It waits for the other stream while the history stops.
        |test, live, side| {
            let hold = test.hold(side);
            live.record_stream(side);
            the_free(live);
            test.allocator.stop_history();
            hold.release();
        },
        // The last export ends after the history.
        |test, live, _| {
            let shared = test.allocator.share(&live).expect("the host device shares");
            test.allocator.stop_history();
            drop(shared);
            the_free(live);
        },
    ];
    for (way, free) in frees.into_iter().enumerate() {
        let (test, [stream, side]) = TestAllocator::new().with_streams();
        test.allocator.record_history(HistoryOptions::new().level(Level::State));
        let live = the_alloc(&test, 700, &stream);
        let address = live.address();
        free(&test, live, &side);
        side.synchronize().expect("its work ends");
        let next = the_alloc(&test, 700, &stream);
        assert_eq!(next.address(), address, "way {way}");
        assert!(!is_known(&test, address), "way {way}: it was allocated when no history was recorded");
    }
}

#[test]
fn h1_a_history_that_begins_anew_forgets_earlier_stacks() {
    for (clear, keeps) in [(false, true), (true, false)] {
        let (test, live, _) = recorded(Level::State);
        test.allocator.stop_history();
        test.allocator.record_history(HistoryOptions::new().clear(clear));
        assert_eq!(test.allocator.allocation_stack(live.address()).is_some(), keeps);
        the_free(live);
        let events = test.allocator.snapshot().traces[0].events.len();
        assert_eq!(events, 2, "the free is recorded as any other");
    }
}

/// A source that panics while it is armed.
#[derive(Debug, Default)]
struct Panicking {
    armed: AtomicBool,
}

impl StackSource for Panicking {
    fn capture(&self) -> Option<RawStack> {
        assert!(!self.armed.load(Relaxed), "the source panics");
        Some(RawStack(NonZeroU32::MIN))
    }

    fn resolve(&self, stacks: &[RawStack]) -> Vec<ResolvedStack> {
        vec![ResolvedStack::default(); stacks.len()]
    }
}

#[test]
fn h5_a_source_that_panics_at_a_free_loses_no_block() {
    let (test, [stream, side]) = TestAllocator::new().with_streams();
    let source = Arc::new(Panicking::default());
    test.allocator.record_history(HistoryOptions::new().stack_source(Arc::clone(&source) as _));
    let (owned, used) = (test.allocate(MIB, &stream), test.allocate(MIB, &stream));
    used.record_stream(&side);
    let raw = test.allocate_raw(MIB, &stream);
    source.armed.store(true, Relaxed);
    let panics = |act: &mut dyn FnMut()| catch_unwind(AssertUnwindSafe(act)).is_err();
    assert!(panics(&mut || drop(test.allocator.free_raw(raw))));
    let mut owners = [Some(owned), Some(used)];
    assert!(owners.iter_mut().all(|owner| panics(&mut || drop(owner.take()))));
    source.armed.store(false, Relaxed);
    side.synchronize().unwrap();
    assert!(test.allocator.free_raw(raw).is_err(), "it is free");
    test.allocator.empty_cache().unwrap();
    assert_eq!(test.stats().active.all.current, 0);
    test.assert_returns_everything_after((stream, side));
}

/// A source during whose next capture another thread stops the history.
#[derive(Debug, Default)]
struct Stopped {
    history_of: Mutex<Option<Allocator>>,
}

impl StackSource for Stopped {
    fn capture(&self) -> Option<RawStack> {
        if let Some(allocator) = self.history_of.lock().expect("no thread panicked").take() {
            thread::spawn(move || allocator.stop_history()).join().expect("it ends");
        }
        NonZeroU32::new(7).map(RawStack)
    }

    fn resolve(&self, stacks: &[RawStack]) -> Vec<ResolvedStack> {
        let frames = vec![Frame { name: "here".to_owned(), ..Frame::default() }];
        vec![ResolvedStack { frames, forward: Vec::new() }; stacks.len()]
    }
}

#[test]
fn h7_a_snapshot_names_the_stacks_of_a_history_that_stops_meanwhile() {
    let (test, [stream]) = TestAllocator::new().with_streams();
    let source = Arc::new(Stopped::default());
    test.allocator.record_history(HistoryOptions::new().stack_source(Arc::clone(&source) as _));
    drop(test.allocate(MIB, &stream));
    test.allocator.empty_cache().unwrap();
    *source.history_of.lock().unwrap() = Some(test.allocator.clone());
    let snapshot = test.allocator.snapshot();
    assert!(!test.allocator.records_history());
    let told = named(&snapshot, "here");
    assert!(told.len() >= 4 && told.iter().all(|(_, found)| *found), "{told:?}");
}
