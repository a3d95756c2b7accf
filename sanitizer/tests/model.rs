//! The sanitizer against a model that keeps the whole graph of work.

use std::collections::{BTreeSet, HashMap};

use cachette::history::Frame;
use cachette_hal::Use;
use cachette_sanitizer::{EventId, Options, Sanitizer, Site, StreamId, Text};
use proptest::prelude::*;

const STREAMS: usize = 4;
const EVENTS: usize = 3;
/// The addresses that blocks are cut from.
const PLACES: usize = 5;

/// Findings: the request of the later life, and the stream of the earlier use.
type Pairs = BTreeSet<(u32, usize)>;

#[derive(Clone, Copy, Debug)]
enum Op {
    Record(usize, usize),
    StreamWait(usize, usize),
    HostWait(usize),
    Synchronize(usize),
    SynchronizeDevice,
    Allocate(usize, usize, usize),
    Free(usize),
    Uses(usize, usize, bool),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        8 => (0..EVENTS, 0..STREAMS).prop_map(|(event, stream)| Op::Record(event, stream)),
        8 => (0..STREAMS, 0..EVENTS).prop_map(|(stream, event)| Op::StreamWait(stream, event)),
        1 => (0..EVENTS).prop_map(Op::HostWait),
        1 => (0..STREAMS).prop_map(Op::Synchronize),
        1 => Just(Op::SynchronizeDevice),
        18 => (0..STREAMS, 0..PLACES, 1..4_usize).prop_map(|(stream, at, length)| Op::Allocate(stream, at, length)),
        14 => (0..PLACES).prop_map(Op::Free),
        30 => (0..STREAMS, 0..PLACES, any::<bool>()).prop_map(|(stream, at, write)| Op::Uses(stream, at, write)),
    ];
    prop::collection::vec(op, 0..200)
}

/// Each piece of work is a node, with edges from the nodes before it.
#[derive(Default)]
struct Model {
    before: Vec<Vec<usize>>,
    last_of_stream: [Option<usize>; STREAMS],
    last_of_host: Option<usize>,
    events: HashMap<usize, usize>,
    /// The life at each place.
    lives: [Option<usize>; PLACES],
    /// The place of the request of each life.
    requests: Vec<u32>,
    /// Stream, place, life, access, node.
    uses: Vec<(usize, usize, usize, bool, usize)>,
    found: Pairs,
}

impl Model {
    fn node(&mut self, before: impl IntoIterator<Item = Option<usize>>) -> usize {
        self.before.push(before.into_iter().flatten().collect());
        self.before.len() - 1
    }

    fn queue(&mut self, stream: usize, after: Option<usize>) -> usize {
        let node = self.node([self.last_of_stream[stream], self.last_of_host, after]);
        self.last_of_stream[stream] = Some(node);
        node
    }

    fn reaches(&self, from: usize, to: usize) -> bool {
        let (mut open, mut seen) = (vec![to], BTreeSet::new());
        while let Some(node) = open.pop() {
            if node == from {
                return true;
            }
            if seen.insert(node) {
                open.extend(&self.before[node]);
            }
        }
        false
    }

    /// The places of the life at a place.
    fn extent(&self, life: usize) -> Vec<usize> {
        (0..PLACES).filter(|place| self.lives[*place] == Some(life)).collect()
    }

    fn uses(&mut self, stream: usize, place: usize, write: bool) {
        let node = self.queue(stream, None);
        let Some(life) = self.lives[place] else { return };
        let extent = self.extent(life);
        for &(other, at, earlier, wrote, from) in &self.uses {
            if earlier != life && extent.contains(&at) && (write || wrote) && !self.reaches(from, node) {
                self.found.insert((self.requests[life], other));
            }
        }
        // A use counts for the whole block.
        self.uses.extend(extent.into_iter().map(|at| (stream, at, life, write, node)));
    }
}

/// The findings of the sanitizer, and those of the model.
fn run(ops: &[Op]) -> (Pairs, Pairs) {
    let (mut model, mut sanitizer) = (Model::default(), Sanitizer::new(Options::default()));
    let stream_id = |stream: usize| StreamId(stream as u64 + 1);
    for (site, op) in (1..).zip(ops.iter().copied()) {
        match op {
            Op::Record(event, stream) => {
                let node = model.queue(stream, None);
                model.events.insert(event, node);
                sanitizer.record(EventId(event as u64), stream_id(stream));
            }
            Op::StreamWait(stream, event) => {
                let recorded = model.events.get(&event).copied();
                model.queue(stream, recorded);
                sanitizer.stream_wait(stream_id(stream), EventId(event as u64));
            }
            Op::HostWait(event) => {
                let node = model.node([model.last_of_host, model.events.get(&event).copied()]);
                model.last_of_host = Some(node);
                sanitizer.host_wait(EventId(event as u64));
            }
            Op::Synchronize(stream) => {
                let node = model.node([model.last_of_host, model.last_of_stream[stream]]);
                model.last_of_host = Some(node);
                sanitizer.synchronize(stream_id(stream));
            }
            Op::SynchronizeDevice => {
                let all = model.last_of_stream;
                let node = model.node(all.into_iter().chain([model.last_of_host]));
                model.last_of_host = Some(node);
                sanitizer.synchronize_device();
            }
            Op::Allocate(stream, at, length) => {
                let end = at + length;
                if end > PLACES || model.lives[at..end].iter().any(Option::is_some) {
                    continue;
                }
                model.lives[at..end].fill(Some(model.requests.len()));
                model.requests.push(site);
                sanitizer.allocate(stream_id(stream), at as u64 * 512, length as u64 * 512, Site(site));
            }
            Op::Free(at) => {
                let Some(life) = model.lives[at] else { continue };
                let extent = model.extent(life);
                for place in &extent {
                    model.lives[*place] = None;
                }
                sanitizer.free(extent[0] as u64 * 512, Site(site));
            }
            Op::Uses(stream, at, write) => {
                if model.lives[at].is_none() {
                    continue;
                }
                model.uses(stream, at, write);
                let access = if write { Use::Write } else { Use::Read };
                sanitizer.uses(stream_id(stream), at as u64 * 512 + 8, access, Text::default(), Site(site));
            }
        }
    }
    let number = |site: Site| vec![Frame { name: site.0.to_string(), ..Frame::default() }];
    let found = sanitizer.findings(&number).into_iter().map(|finding| {
        let given = finding.steps.iter().find(|step| step.what.starts_with("given")).expect("a request");
        let earlier = finding.steps[1].what.split("(0x").nth(1).expect("a stream");
        let earlier: usize = earlier[..1].parse().expect("a number");
        (given.lines[0].function.parse().expect("a place"), earlier - 1)
    });
    (found.collect(), model.found)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn it_finds_what_the_whole_graph_shows_and_nothing_else(ops in ops()) {
        let (found, expected) = run(&ops);
        prop_assert_eq!(found, expected);
    }
}

#[test]
fn random_programs_have_findings_and_some_have_none() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    let counts: Vec<usize> = (0..200).map(|_| run(&ops().new_tree(&mut runner).unwrap().current()).0.len()).collect();
    assert!(counts.contains(&0) && counts.iter().any(|count| *count > 3), "{counts:?}");
}
