//! Requests that wait for others, and those that may not.

use std::time::{Duration, Instant};

use crate::process::{Card, RECLAIM};

#[test]
fn a_request_waits_for_the_peak_of_another_process_to_pass() {
    let card = Card::new(64);
    let mut one = card.process(RECLAIM);
    one.done("allocate live 48");
    let mut two = card.process(&format!("{RECLAIM},reclaim_wait:60"));
    two.tell("allocate it 40");
    std::thread::sleep(Duration::from_millis(300));
    one.done("free live");
    two.answer().unwrap();
    assert_eq!(two.figure("ooms"), 0);
}

#[test]
fn a_request_waits_no_longer_than_it_may() {
    let card = Card::new(64);
    let mut one = card.process(RECLAIM);
    one.done("allocate live 48");
    let mut two = card.process(&format!("{RECLAIM},reclaim_wait:0.4"));
    let begun = Instant::now();
    assert!(two.ask("allocate it 40").is_err());
    let took = begun.elapsed();
    assert!(took >= Duration::from_millis(400) && took < Duration::from_secs(20), "{took:?}");
    assert_eq!(two.figure("ooms"), 1);
    // What the card never has is not waited for: the test would take an hour.
    let mut patient = card.process(&format!("{RECLAIM},reclaim_wait:3600"));
    assert!(patient.ask("allocate it 100").is_err());
}

#[test]
fn never_block_asks_nobody() {
    let card = Card::new(64);
    let mut one = card.process(RECLAIM);
    one.done("allocate it 48");
    one.done("free it");
    let mut two = card.process(&format!("{RECLAIM},never_block:True,reclaim_wait:60"));
    assert!(two.ask("allocate it 40").is_err());
    assert_eq!((two.figure("asks"), one.reserved_mib()), (0, 48));
}

/// The steps of a process at its peak need their memory again and again. One that waits for that peak to pass leaves it.
#[test]
fn a_request_that_waits_leaves_others_a_part_of_their_idle_memory() {
    let card = Card::new(256);
    let mut one = card.process(RECLAIM);
    one.done("allocate live 192");
    one.done("allocate step 6");
    one.done("free step");
    let mut two = card.process(&format!("{RECLAIM},reclaim_wait:60"));
    two.tell("allocate it 100");
    for _ in 0..20 {
        std::thread::sleep(Duration::from_millis(20));
        one.done("allocate step 6");
        one.done("free step");
    }
    assert_eq!(one.figure("asks"), 0, "nobody took it");
    one.done("free live");
    two.answer().unwrap();
    two.done("free it");
    // At the end of its time it takes all that it needs.
    let mut three = card.process(&format!("{RECLAIM},reclaim_wait:0.3"));
    one.done("allocate live 192");
    three.done("allocate it 62");
}
