//! Damaged configurations: no panic, bounded memory, and an accepted one is written as it was read.

use cachette::Config;
use cachette_mutation::{Counting, Outcome, Run, corpus, usage};

#[global_allocator]
static COUNTING: Counting = Counting;

fn folder(name: &str) -> Vec<Vec<u8>> {
    corpus(format!("{}/corpus/{name}", env!("CARGO_MANIFEST_DIR")))
}

/// Runs a parser over the mutants of a folder, and bounds what it takes.
fn try_all(name: &str, words: &[&[u8]], mutants: u64, mut try_one: impl FnMut(&[u8]) -> Outcome) {
    let files = folder(name);
    let run = Run { files: &files, words, mutants };
    run.try_all(|mutant| {
        let (outcome, used) = usage(|| try_one(mutant));
        // Every byte may become a word with its text and its place, once in the text and once in a copy of it.
        let most = 1024 * mutant.len() + (64 << 10);
        assert!(used.peak <= most, "{used:?} of {}", mutant.len());
        assert!(used.total <= 8 * most, "{used:?} of {}", mutant.len());
        outcome
    });
}

#[test]
fn configurations_that_were_damaged() {
    let words: [&[u8]; 10] = [
        b"[64:8,>:2]",
        b",",
        b":",
        b"]",
        b"True",
        b"caching:False,",
        b"expandable_segments_reserve_by_class:[a:1]",
        b"1e308",
        b"0.5",
        "\u{3000}é".as_bytes(),
    ];
    try_all("config", &words, 10_000, |mutant| {
        let text = String::from_utf8_lossy(mutant);
        match text.parse::<Config>() {
            Ok(config) => {
                assert_eq!(config.to_string().parse(), Ok(config));
                Outcome::Accepted
            }
            Err(error) => {
                let span = error.span().expect("an error in a text has a place");
                assert!(text.get(span).is_some(), "{error:?}");
                Outcome::Refused
            }
        }
    });
}
