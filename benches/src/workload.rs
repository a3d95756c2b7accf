//! The loops whose time is measured.

use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use cachette::Error;

use cachette_replay::replay::ns_each;

use crate::random::{LogUniform, SplitMix64};
use crate::subject::{Owned, Subject};

/// Pairs before the clock starts.
const WARM_UP: usize = 64;
/// How often a loop of pairs is repeated; its figure is the median.
const REPETITIONS: usize = 9;
/// How often the threads are run; their figure is the median.
const THREAD_REPETITIONS: usize = 5;
/// The seed of every churn.
const SEED: u64 = 42;

/// Nanoseconds a pair of `bytes` bytes on one stream.
pub fn pair_ns<S: Subject>(subject: &S, bytes: u64, pairs: usize) -> Result<f64, Error> {
    repeated_ns(pairs, |pairs| repeat(subject, bytes, 0, pairs))
}

/// Bytes of a prefetched buffer, and of the small blocks beside it.
pub(crate) const PREFETCHED: u64 = 8 << 20;
const BESIDE: u64 = 64 << 10;
/// Small blocks for every buffer.
const BESIDE_COUNT: usize = 4;

/// Nanoseconds a buffer that stream 0 fills and stream 1 uses. The owner frees it at once, and allocates some small
/// blocks on stream 0 while it is pending.
pub fn prefetch_ns(subject: &Owned, buffers: usize) -> Result<f64, Error> {
    repeated_ns(buffers, |buffers| prefetch(subject, buffers))
}

fn prefetch(subject: &Owned, buffers: usize) -> Result<(), Error> {
    for _ in 0..buffers {
        let buffer = subject.allocate(PREFETCHED, 0)?;
        buffer.record_stream(subject.stream(1));
        subject.free(buffer)?;
        for small in 1..=BESIDE_COUNT as u64 {
            subject.pair(small * BESIDE, 0)?;
        }
    }
    Ok(())
}

/// Wall-clock nanoseconds a pair, over all pairs of all threads: perfect scaling divides it by their number.
pub fn threads_ns<S: Subject>(
    subject: &S,
    bytes: u64,
    threads: usize,
    own_stream: bool,
    pairs: usize,
) -> Result<f64, Error> {
    let took = median(THREAD_REPETITIONS, || threads_time(subject, bytes, threads, own_stream, pairs))?;
    Ok(ns_each(took, pairs * threads))
}

/// How long it takes until each of `threads` threads has made `pairs` pairs.
///
/// Each thread allocates on its own stream, or all on one. The time runs from the first thread's first pair to the last
/// thread's last.
fn threads_time<S: Subject>(
    subject: &S,
    bytes: u64,
    threads: usize,
    own_stream: bool,
    pairs: usize,
) -> Result<Duration, Error> {
    let barrier = Barrier::new(threads);
    let work = |stream: usize| {
        let warm = repeat(subject, bytes, stream, WARM_UP);
        // A thread that failed still lets the others go on.
        barrier.wait();
        warm?;
        let start = Instant::now();
        repeat(subject, bytes, stream, pairs)?;
        Ok((start, Instant::now()))
    };
    let times = thread::scope(|scope| {
        let running: Vec<_> =
            (0..threads).map(|thread| scope.spawn(move || work(if own_stream { thread } else { 0 }))).collect();
        let finished = running.into_iter().map(|it| match it.join() {
            Ok(result) => result,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        finished.collect::<Result<Vec<_>, Error>>()
    })?;
    let start = times.iter().map(|(start, _)| *start).min();
    let end = times.iter().map(|(_, end)| *end).max();
    Ok(start.zip(end).map_or(Duration::ZERO, |(start, end)| end - start))
}

/// Slots that are full of memory; each step frees one at random and fills it again.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Churn {
    /// How many slots there are, at least one.
    pub slots: usize,
    /// The sizes they are filled with.
    pub sizes: LogUniform,
}

/// A churn on its way.
#[derive(Debug)]
pub struct Churning<'a, S: Subject> {
    subject: &'a S,
    churn: Churn,
    random: SplitMix64,
    /// Each is full, except in the middle of a step.
    live: Vec<Option<S::Memory>>,
}

impl Churn {
    /// Fills every slot.
    pub fn begin<S: Subject>(self, subject: &S) -> Result<Churning<'_, S>, Error> {
        let mut random = SplitMix64::new(SEED);
        let fill = (0..self.slots).map(|_| {
            let bytes = self.sizes.draw(&mut random);
            subject.allocate(bytes, 0).map(Some)
        });
        let live = fill.collect::<Result<_, Error>>()?;
        Ok(Churning { subject, churn: self, random, live })
    }

    /// Nanoseconds a step, after as many steps again to warm up. The steps are drawn before the clock starts, so that
    /// only the allocator is measured.
    pub fn ns<S: Subject>(self, subject: &S, steps: usize) -> Result<f64, Error> {
        let mut churning = self.begin(subject)?;
        churning.run(steps)?;
        let plan = churning.plan(steps);
        let start = Instant::now();
        churning.follow(&plan)?;
        let took = start.elapsed();
        churning.end()?;
        Ok(ns_each(took, steps))
    }
}

impl<S: Subject> Churning<'_, S> {
    /// Takes `steps` steps.
    pub fn run(&mut self, steps: usize) -> Result<(), Error> {
        for _ in 0..steps {
            let slot = self.random.below(self.churn.slots);
            let bytes = self.churn.sizes.draw(&mut self.random);
            refill(self.subject, &mut self.live[slot], bytes)?;
        }
        Ok(())
    }

    /// Draws `steps` steps without taking them.
    pub fn plan(&mut self, steps: usize) -> Vec<(usize, u64)> {
        let random = &mut self.random;
        let step = |_| {
            let slot = random.below(self.churn.slots);
            (slot, self.churn.sizes.draw(random))
        };
        (0..steps).map(step).collect()
    }

    /// Takes the steps that were drawn before.
    pub fn follow(&mut self, plan: &[(usize, u64)]) -> Result<(), Error> {
        for &(slot, bytes) in plan {
            refill(self.subject, &mut self.live[slot], bytes)?;
        }
        Ok(())
    }

    /// Empties every slot.
    pub fn end(self) -> Result<(), Error> {
        let mut left = self.live.into_iter().flatten();
        left.try_for_each(|memory| self.subject.free(memory))
    }
}

/// Frees what is in the slot, then fills it again.
#[inline]
fn refill<S: Subject>(subject: &S, slot: &mut Option<S::Memory>, bytes: u64) -> Result<(), Error> {
    if let Some(memory) = slot.take() {
        subject.free(memory)?;
    }
    *slot = Some(subject.allocate(bytes, 0)?);
    Ok(())
}

/// Takes `pairs` pairs.
#[inline]
pub fn repeat<S: Subject>(subject: &S, bytes: u64, stream: usize, pairs: usize) -> Result<(), Error> {
    (0..pairs).try_for_each(|_| subject.pair(bytes, stream))
}

/// Nanoseconds of one of `count` rounds of `run`, after some to warm up.
fn repeated_ns(count: usize, run: impl Fn(usize) -> Result<(), Error>) -> Result<f64, Error> {
    run(WARM_UP)?;
    let took = median(REPETITIONS, || {
        let start = Instant::now();
        run(count)?;
        Ok(start.elapsed())
    })?;
    Ok(ns_each(took, count))
}

/// The middle one of `count` times.
fn median(count: usize, mut time: impl FnMut() -> Result<Duration, Error>) -> Result<Duration, Error> {
    let times = (0..count).map(|_| time());
    let mut times = times.collect::<Result<Vec<_>, Error>>()?;
    times.sort();
    Ok(times[count / 2])
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// Writes down what it is asked.
    #[derive(Debug, Default)]
    struct Diary(Mutex<Vec<(char, u64, usize)>>);

    impl Subject for Diary {
        type Memory = u64;

        fn allocate(&self, bytes: u64, stream: usize) -> Result<u64, Error> {
            self.0.lock().unwrap().push(('a', bytes, stream));
            Ok(bytes)
        }

        fn free(&self, memory: u64) -> Result<(), Error> {
            self.0.lock().unwrap().push(('f', memory, 0));
            Ok(())
        }
    }

    impl Diary {
        fn sizes(&self, letter: char) -> Vec<u64> {
            let entries = self.0.lock().unwrap();
            let chosen = entries.iter().filter(|(what, ..)| *what == letter);
            chosen.map(|(_, bytes, _)| *bytes).collect()
        }
    }

    const SMALL: Churn = Churn { slots: 3, sizes: LogUniform::TO_64_MIB };

    #[test]
    fn a_churn_asks_for_what_the_other_programs_ask_for() {
        let diary = Diary::default();
        let mut churning = SMALL.begin(&diary).unwrap();
        churning.run(4).unwrap();
        churning.end().unwrap();
        let allocated = [3_193_269, 3369, 13_646, 801, 6713, 28_110, 5726];
        assert_eq!(diary.sizes('a'), allocated);
        // Slots 0, 0, 2, 2; then what is left, in order.
        let freed = [3_193_269, 801, 13_646, 28_110, 6713, 3369, 5726];
        assert_eq!(diary.sizes('f'), freed);
    }

    #[test]
    fn long_churns_draw_the_same_sums() {
        for (slots, sizes, sum) in [
            (1000, LogUniform::TO_64_MIB, 4_037_650_069_059_925_597),
            (1000, LogUniform::TO_1_MIB, 12_242_326_464_836_466_126),
            (10_000, LogUniform::TO_1_MIB, 3_171_694_259_505_786_116),
        ] {
            let diary = Diary::default();
            let mut churning = Churn { slots, sizes }.begin(&diary).unwrap();
            let add = |sum: u64, drawn: u64| sum.wrapping_mul(31).wrapping_add(drawn);
            let filled = diary.sizes('a').into_iter().fold(0, add);
            let plan = churning.plan(100_000);
            let drawn = plan.iter().fold(filled, |sum, (slot, bytes)| add(add(sum, *slot as u64), *bytes));
            assert_eq!(drawn, sum);
        }
    }

    #[test]
    fn a_plan_is_what_the_steps_would_have_been() {
        let (run, followed) = (Diary::default(), Diary::default());
        SMALL.begin(&run).unwrap().run(50).unwrap();
        let mut churning = SMALL.begin(&followed).unwrap();
        let plan = churning.plan(50);
        churning.follow(&plan).unwrap();
        assert_eq!(*run.0.lock().unwrap(), *followed.0.lock().unwrap());
    }

    #[test]
    fn every_pair_of_every_thread_is_made() {
        for own_stream in [true, false] {
            let diary = Diary::default();
            let took = threads_time(&diary, 1024, 3, own_stream, 100).unwrap();
            assert!(!took.is_zero());
            assert_eq!(diary.sizes('a').len(), 3 * (WARM_UP + 100));
            let entries = diary.0.lock().unwrap();
            let last = entries.iter().map(|(.., stream)| *stream).max();
            assert_eq!(last, Some(if own_stream { 2 } else { 0 }));
        }
    }

    #[test]
    fn a_pair_is_repeated_and_warmed_up() {
        let diary = Diary::default();
        assert!(pair_ns(&diary, 1024, 10).unwrap() > 0.0);
        assert_eq!(diary.sizes('f'), [1024; WARM_UP + REPETITIONS * 10]);
    }
}
