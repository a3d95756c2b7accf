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
