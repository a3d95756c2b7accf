//! Many processes at once.

use crate::process::{Card, Process, RECLAIM, soon};

#[test]
fn two_processes_that_ask_each_other_both_progress() {
    let card = Card::new(64);
    let config = format!("{RECLAIM},reclaim_wait:60");
    let mut both = [card.process(&config), card.process(&config)];
    for process in &mut both {
        process.done("allocate a 30");
        process.done("free a");
    }
    // Each needs what the other holds, at the same time. One of them waits until the other has freed it.
    for round in 0..20 {
        for process in &mut both {
            process.tell("allocate b 40");
            process.tell("free b");
        }
        for process in &mut both {
            process.answer().unwrap_or_else(|error| panic!("round {round}: {error}"));
            process.answer().unwrap();
        }
    }
}

#[test]
fn thirty_two_processes_share_a_card_whose_caches_would_not_fit() {
    // In all they use at most 32 times 6 MiB, and would like to keep more than the card has.
    let card = Card::new(200);
    // On a busy machine a process may answer late.
    let config = format!("{RECLAIM},reclaim_wait:60");
    let mut all: Vec<_> = (0..32).map(|_| card.process(&config)).collect();
    for process in &mut all {
        process.tell("churn 60 6");
    }
    for process in &mut all {
        process.answer().unwrap();
    }
    let reserved: u64 = all.iter_mut().map(Process::reserved_mib).sum();
    assert!(reserved <= 200, "{reserved}");
}

#[test]
fn a_process_that_asks_many_gets_from_many() {
    let card = Card::new(128);
    let mut all: Vec<_> = (0..16).map(|_| card.process(RECLAIM)).collect();
    for process in &mut all {
        process.done("allocate it 8");
        process.done("free it");
    }
    let mut asker = card.process(RECLAIM);
    asker.done("allocate it 100");
    assert!(soon(|| all.iter_mut().map(Process::reserved_mib).sum::<u64>() == 28));
    assert_eq!(asker.figure("asks"), 1);
}
