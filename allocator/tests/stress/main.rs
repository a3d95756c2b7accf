//! Everything at once: random programs on one allocator, and every byte of theirs checked.
//!
//! A round has four workers and two allocators on one device. Each worker draws its next step: allocate in every way,
//! fill, copy, read on other streams and devices and free before they are done, exchange and share memory, sleep and
//! wake, save and restore, capture and launch, stage in pinned memory, change settings, let a tracker panic. The device
//! frees memory without waiting, and faults where work still uses it. In half of the rounds driver calls fail at random. The device reports every
//! wrong call. In the end every figure is zero, and the device has everything back.
//!
//! A seed determines what a round is made of ([`kind`]) and what its workers draw. The rounds come in two ways:
//! with real threads, and step by step on one thread, where one seed repeats one run call for call.
//!
//! | variable | meaning |
//! |---|---|
//! | `CACHETTE_SOAK=SECONDS` | rounds are run for so long, and not a fixed number of them |
//! | `CACHETTE_SEED=N` | the first round has this seed, the next one the seed after it |
//! | `CACHETTE_STEPS=0-17,20` | one round step by step has these steps only; a failure prints its steps |

mod bytes;
mod fixture;
mod kind;
mod program;
mod random;
mod rounds;
mod trace;
mod worker;

use std::io::{self, Write};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use cachette::hal::Call;

use fixture::Tally;
use kind::{Extra, KINDS, Kind};

/// Rounds of each way without [`SOAK`]: one of each kind.
const ROUNDS: u64 = KINDS as u64;
/// Rounds that are run twice and compared.
const REPEATED: usize = 6;
const SOAK: &str = "CACHETTE_SOAK";
const SEED: &str = "CACHETTE_SEED";
/// How often a long run says where it is.
const PROGRESS: Duration = Duration::from_secs(10);

/// The number in a variable of the environment, if it is set.
fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    let number = text.parse();
    Some(number.unwrap_or_else(|_| panic!("{variable} is '{text}'; set it to a whole number")))
}

/// The first seed: what was asked for, the same one in every plain run, and another one in every long run.
fn first_seed() -> u64 {
    let by_time = || {
        let time = SystemTime::now().duration_since(UNIX_EPOCH);
        time.map_or(0, |time| time.as_secs())
    };
    let fresh = number(SOAK).map_or(0, |_| by_time());
    number(SEED).unwrap_or(fresh)
}

/// Says something at once, also where the output of tests is kept back.
fn say(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// What the rounds of one kind have done.
#[derive(Clone, Copy, Debug, Default)]
struct Row {
    rounds: u64,
    steps: u64,
    failures: u64,
}

/// Runs rounds until there are enough, and says what they did.
fn run(way: &str, round: fn(Kind) -> Tally) {
    let (first, seconds) = (first_seed(), number(SOAK));
    let rounds = if std::env::var_os(program::STEPS).is_some() { 1 } else { ROUNDS };
    say(&format!("{way}: the first seed is {first}"));
    let (begun, mut said) = (Instant::now(), Instant::now());
    let mut rows = [Row::default(); KINDS];
    let mut failed = vec![0; Call::ALL.len()];
    for seed in first.. {
        let enough = match seconds {
            Some(seconds) => begun.elapsed() >= Duration::from_secs(seconds),
            None => seed >= first + rounds,
        };
        if enough {
            break;
        }
        if seconds.is_some() && said.elapsed() > PROGRESS {
            said = Instant::now();
            say(&format!("{way}: {} rounds, now seed {seed}", seed - first));
        }
        let kind = Kind::of(seed);
        let tally = round(kind);
        let row = &mut rows[kind.number()];
        row.rounds += 1;
        row.steps += tally.steps;
        for (sum, calls) in failed.iter_mut().zip(&tally.failed) {
            *sum += calls;
            row.failures += calls;
        }
    }
    if seconds.is_some() {
        summarise(way, &rows, &failed);
    }
}

fn summarise(way: &str, rows: &[Row; KINDS], failed: &[u64]) {
    for (number, row) in rows.iter().enumerate() {
        let name = kind::SETTINGS[number / 2].name;
        let fails = if number % 2 == 1 { ", failing calls" } else { "" };
        let Row { rounds, steps, failures } = row;
        say(&format!("{way}: {name}{fails}: {rounds} rounds, {steps} operations, {failures} calls failed"));
    }
    let calls = Call::ALL.iter().zip(failed);
    let calls: Vec<String> =
        calls.filter(|(_, failed)| **failed > 0).map(|(call, failed)| format!("{call} {failed}")).collect();
    say(&format!("{way}: calls that failed: {}", calls.join(", ")));
}

#[test]
fn no_byte_is_lost_among_threads() {
    run("threads", rounds::threaded);
}

#[test]
fn no_byte_is_lost_in_any_order_of_the_device() {
    run("steps", rounds::stepped);
}

#[test]
fn one_seed_repeats_one_run_call_for_call() {
    let first = first_seed();
    // Seven kinds further each time: direct and elastic segments, with and without failures, on every other device.
    let kinds = (first..).step_by(7).map(Kind::of).filter(|kind| !kind.has(Extra::Sharing));
    for kind in kinds.take(REPEATED) {
        let (one, two) = (rounds::stepped(kind).lines, rounds::stepped(kind).lines);
        assert!(!one.is_empty(), "calls were written down");
        let differs = one.iter().zip(&two).position(|(one, two)| one != two);
        if let Some(at) = differs {
            let from = at.saturating_sub(4);
            let (one, two) = (&one[from..=at], &two[from..=at]);
            panic!("{kind}: call {at} differs, {one:#?} and then {two:#?}");
        }
        assert_eq!(one.len(), two.len(), "{kind}");
    }
}
