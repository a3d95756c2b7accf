//! One round, with threads or step by step.

use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, Scope, ScopedJoinHandle};

use crate::fixture::{Fixture, Tally};
use crate::kind::Kind;
use crate::program::{Program, Selection};
use crate::random::Random;
use crate::worker::Worker;

const WORKERS: u64 = 4;
/// Steps of each worker.
const STEPS: u64 = 200;
/// Steps of a stepped round between two checks of every invariant.
const CHECKED: u64 = 16;

/// A worker that is left alone where its thread panics: the device may still write memory of the host that it has.
type Hand<'a> = ManuallyDrop<Worker<'a>>;

/// A thread for each worker, and one for each stream of the device.
pub(crate) fn threaded(kind: Kind) -> Tally {
    let (fixture, program) = (Fixture::new(kind, false), Program::new(kind));
    let failed = AtomicBool::new(false);
    let workers = hands(&fixture);
    let workers = thread::scope(|scope| {
        let start = |worker| start(scope, worker, &program, &failed);
        let threads: Vec<_> = workers.into_iter().map(start).collect();
        let ended: Result<Vec<_>, _> = threads.into_iter().map(ScopedJoinHandle::join).collect();
        ended.unwrap_or_else(|panic| resume_unwind(panic))
    });
    let steps = end(&fixture, &program, workers);
    finish(fixture, &program, steps)
}

/// Lets a worker take its steps on another thread. After a failure of one, all stop.
fn start<'scope, 'env>(
    scope: &'scope Scope<'scope, 'env>,
    mut worker: Hand<'env>,
    program: &'env Program,
    failed: &'env AtomicBool,
) -> ScopedJoinHandle<'scope, Hand<'env>> {
    scope.spawn(move || {
        for _ in 0..STEPS {
            if failed.load(Relaxed) {
                break;
            }
            let step = catch_unwind(AssertUnwindSafe(|| worker.step()));
            if let Err(panic) = step {
                failed.store(true, Relaxed);
                tell(program, Some(&worker));
                resume_unwind(panic);
            }
        }
        worker
    })
}

/// One thread: the seed says which worker takes a step, and how far the device runs after it.
pub(crate) fn stepped(kind: Kind) -> Tally {
    let (fixture, program) = (Fixture::new(kind, true), Program::new(kind));
    let (mut workers, selection) = (hands(&fixture), Selection::of_environment());
    for step in (0..WORKERS * STEPS).filter(|step| selection.has(*step)) {
        let mut random = Random::new(kind.seed, WORKERS + step);
        let (at, runs) = (random.below(workers.len()), random.below(4));
        program.begin(step, at);
        with(&program, &mut workers[at], |worker| {
            worker.step_with(random);
            if step.is_multiple_of(CHECKED) {
                let sound = fixture.allocator.check();
                sound.expect("every invariant holds");
            }
        });
        program.name(workers[at].doing);
        for _ in 0..runs {
            let _ = fixture.host.step();
        }
    }
    let steps = end(&fixture, &program, workers);
    finish(fixture, &program, steps)
}

fn hands(fixture: &Fixture) -> Vec<Hand<'_>> {
    let hand = |number| ManuallyDrop::new(Worker::new(fixture, number));
    (0..WORKERS).map(hand).collect()
}

/// Lets every worker check and free what it has, without failures; their steps.
fn end(fixture: &Fixture, program: &Program, mut workers: Vec<Hand<'_>>) -> u64 {
    fixture.host.clear_failures();
    fixture.armed.store(0, Relaxed);
    fixture.allocator.set_memory_limit(None);
    for worker in &mut workers {
        with(program, worker, Worker::finish);
    }
    let mut steps = 0;
    for mut worker in workers {
        with(program, &mut worker, Worker::leave);
        steps += worker.steps;
        drop(ManuallyDrop::into_inner(worker));
    }
    steps
}

fn finish(fixture: Fixture, program: &Program, steps: u64) -> Tally {
    let tally = catch_unwind(AssertUnwindSafe(|| fixture.finish()));
    let tally = tally.unwrap_or_else(|panic| {
        tell(program, None);
        resume_unwind(panic)
    });
    Tally { steps, ..tally }
}

/// Lets a worker act; a panic says where it was.
fn with<'a>(program: &Program, worker: &mut Worker<'a>, act: impl FnOnce(&mut Worker<'a>)) {
    let acted = catch_unwind(AssertUnwindSafe(|| act(worker)));
    if let Err(panic) = acted {
        tell(program, Some(worker));
        resume_unwind(panic);
    }
}

/// Says where a round failed, and how to repeat it.
fn tell(program: &Program, worker: Option<&Worker<'_>>) {
    let kind = program.kind;
    match worker {
        Some(Worker { number, steps, doing, .. }) => {
            program.name(doing);
            eprintln!("failed: {kind}; worker {number}, step {steps}: {doing}");
        }
        None => eprintln!("failed: {kind}; when everything was freed"),
    }
    eprintln!("{program}");
}
