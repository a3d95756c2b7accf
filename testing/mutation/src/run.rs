//! Runs of thousands of mutants against one parser.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use fastrand::Rng;

use crate::mutate;

/// The seed of every run that is given none.
const SEED: u64 = 0xCAC4_E77E;
/// How much of a mutant is printed.
const SHOWN: usize = 2048;

/// The result of a mutant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The parser accepted it.
    Accepted,
    /// The parser returned an error.
    Refused,
}

/// The files of a folder, by name, so that a seed means the same everywhere.
///
/// # Panics
///
/// If the folder cannot be read or is empty.
#[must_use]
pub fn corpus(folder: impl AsRef<Path>) -> Vec<Vec<u8>> {
    let folder = folder.as_ref();
    let entries = fs::read_dir(folder).expect("the folder of the corpus is there");
    let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    assert!(!paths.is_empty(), "there are files in {}", folder.display());
    let read = |path: &std::path::PathBuf| fs::read(path).expect("a file of the corpus is read");
    paths.iter().map(read).collect()
}

/// A test run of one parser.
#[derive(Clone, Debug)]
pub struct Run<'a> {
    /// Files that it accepts.
    pub files: &'a [Vec<u8>],
    /// Tokens of their format.
    pub words: &'a [&'a [u8]],
    /// How many mutants to try, unless the environment asks for a soak.
    pub mutants: u64,
}

impl Run<'_> {
    /// Hands every file to `try_one`, and then mutant after mutant.
    ///
    /// # Panics
    ///
    /// If a file of the corpus is refused, if no mutant is accepted or none is refused, and whenever `try_one` does.
    pub fn try_all(&self, mut try_one: impl FnMut(&[u8]) -> Outcome) {
        for file in self.files {
            assert_eq!(try_one(file), Outcome::Accepted, "{}", file.escape_ascii());
        }
        let soak = number("CACHETTE_SOAK").map(Duration::from_secs);
        let clock = SystemTime::now().duration_since(UNIX_EPOCH);
        let clock = clock.map_or(SEED, |since| u64::from(since.subsec_nanos()));
        let fallback = soak.map_or(SEED, |_| clock);
        let seed = number("CACHETTE_SEED").unwrap_or(fallback);
        println!("CACHETTE_SEED={seed}");
        let (mut random, begun) = (Rng::with_seed(seed), Instant::now());
        let (mut tried, mut accepted) = (0_u64, 0_u64);
        while soak.map_or(tried < self.mutants, |soak| begun.elapsed() < soak) {
            let mutant = mutate(&mut random, self.files, self.words);
            let last_words = LastWords { seed, tried, mutant: &mutant };
            accepted += u64::from(try_one(last_words.mutant) == Outcome::Accepted);
            tried += 1;
        }
        println!("{tried} mutants, {accepted} of them accepted");
        assert!(0 < accepted && accepted < tried, "the mutants are of use");
    }
}

/// Prints the mutant that made a test panic.
struct LastWords<'a> {
    seed: u64,
    tried: u64,
    mutant: &'a [u8],
}

impl Drop for LastWords<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let (seed, tried, length) = (self.seed, self.tried, self.mutant.len());
            let shown = self.mutant[..length.min(SHOWN)].escape_ascii();
            eprintln!("CACHETTE_SEED={seed}, mutant {tried}, {length} bytes: {shown}");
        }
    }
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.trim().parse().ok()
}
