//! What moves between processes, and in which order.

use crate::process::{Card, MIB, Process, RECLAIM, soon};

/// A process that holds so many MiB idle.
fn idle(card: &Card, config: &str, mib: u64) -> Process {
    let mut process = card.process(config);
    process.done(&format!("allocate it {mib}"));
    process.done("free it");
    process
}

#[test]
fn idle_memory_of_one_process_serves_another() {
    let card = Card::new(64);
    for config in [RECLAIM, "expandable_segments:False,reclaim:True", "reclaim:True"] {
        let mut one = idle(&card, config, 48);
        let mut two = card.process(config);
        two.done("allocate it 40");
        let (kept, held) = (one.reserved_mib(), two.reserved_mib());
        assert!(kept + held <= 64, "{config}: {kept} and {held}");
        assert_eq!((two.figure("received") > 0, two.figure("asks")), (true, 1), "{config}");
        // The request goes on with the memory, and the release ends a moment later.
        assert!(soon(|| one.figure("given") > 0), "{config}");
        assert_eq!((one.figure("asks"), two.figure("given"), two.figure("ooms")), (0, 0, 0), "{config}");
        // And back.
        two.done("free it");
        one.done("allocate it 48");
    }
}

#[test]
fn a_call_past_the_cache_gets_idle_memory_of_others_and_evicts_their_pools() {
    let card = Card::new(64);
    let mut one = idle(&card, RECLAIM, 48);
    let mut two = card.process(RECLAIM);
    two.done("take 40");
    one.comes_to(24);
    assert_eq!((two.figure("asks") > 0, two.figure("ooms")), (true, 0));
    // It counts a little later than it releases.
    assert!(soon(|| one.figure("given") == 24 * MIB));
    one.done("pool weights 1 20");
    two.done("take 16");
    assert_eq!((one.ask("asleep weights").as_deref(), two.figure("ooms")), (Ok("true"), 0));
    two.ask("take 16").unwrap_err();
    assert_eq!(two.figure("ooms"), 1);
    two.done("take 8");
}

#[test]
fn a_request_of_all_that_the_limit_allows_asks_the_others() {
    let card = Card::new(64);
    let mut one = idle(&card, RECLAIM, 48);
    let mut two = card.process(&format!("{RECLAIM},memory_limit:40M"));
    two.done("allocate it 40");
    one.comes_to(24);
}

#[test]
fn a_pool_evicts_others_of_a_lower_priority_alone() {
    let card = Card::new(64);
    let mut one = card.process(RECLAIM);
    one.done("pool theirs 1 40");
    let mut two = card.process(RECLAIM);
    assert!(two.ask("pool equal 1 40").is_err());
    assert_eq!(one.ask("asleep theirs").unwrap(), "false");
    two.done("pool higher 2 40");
    assert!(soon(|| one.ask("asleep theirs").unwrap() == "true"));
}

#[test]
fn a_process_without_the_key_neither_asks_nor_gives() {
    let card = Card::new(64);
    for [first, second] in [["", RECLAIM], [RECLAIM, ""], [RECLAIM, "reclaim:False"]] {
        let mut one = idle(&card, first, 48);
        let mut two = card.process(second);
        let error = two.ask("allocate it 40").unwrap_err();
        assert!(error.starts_with("out of memory"), "{error}");
        assert_eq!(one.reserved_mib(), 48);
        assert!(!error.contains("process "), "nobody answers: {error}");
    }
}

#[test]
fn no_more_is_given_than_is_asked_for() {
    let card = Card::new(64);
    let mut one = card.process("expandable_segments:False,reclaim:True");
    for name in ["a", "b", "c"] {
        one.done(&format!("allocate {name} 16"));
    }
    for name in ["a", "b", "c"] {
        one.done(&format!("free {name}"));
    }
    let mut two = card.process(RECLAIM);
    two.done("allocate it 20");
    one.comes_to(32); // one of its three segments is enough
    let mut elastic = card.process(RECLAIM);
    drop((one, two));
    elastic.done("allocate it 60");
    elastic.done("free it");
    card.process(RECLAIM).done("allocate it 20");
    elastic.comes_to(44); // it has chunks of 2 MiB
}

#[test]
fn who_has_most_idle_gives_first_and_others_keep_theirs() {
    let card = Card::new(96);
    let mut most = idle(&card, RECLAIM, 50);
    let mut least = idle(&card, RECLAIM, 30);
    let mut asker = card.process(RECLAIM);
    asker.done("allocate it 40");
    most.comes_to(26);
    least.comes_to(30);
    // Both are needed.
    let mut second = card.process(RECLAIM);
    second.done("allocate it 50");
    assert!(soon(|| most.reserved_mib() + least.reserved_mib() == 6));
}

#[test]
fn who_is_above_its_share_gives_before_one_that_has_more() {
    let card = Card::new(96);
    let mut rich = idle(&card, &format!("{RECLAIM},reclaim_share:60M"), 50);
    let mut above = idle(&card, &format!("{RECLAIM},reclaim_share:10M"), 30);
    card.process(RECLAIM).done("allocate it 30");
    above.comes_to(16);
    rich.comes_to(50);
}

#[test]
fn evictable_pools_of_another_process_are_evicted_and_come_back() {
    let card = Card::new(64);
    let mut one = card.process(RECLAIM);
    one.done("pool weights 0 40");
    let mut two = card.process(RECLAIM);
    two.done("allocate it 40");
    // The request continues once it has enough, before the eviction has ended.
    assert!(soon(|| (one.figure("evictions"), one.reserved_mib(), one.figure("given")) == (1, 0, 40 * MIB)));
    two.done("free it");
    // The pool asks, too, when it wakes.
    one.done("resident weights");
    assert_eq!(one.ask("holds weights").unwrap(), "true");
    assert!(two.ask("allocate it 40").is_err(), "a pool with a guard stays");
    one.done("leave weights");
    two.done("allocate it 40");
}

#[test]
fn idle_memory_of_others_comes_before_own_pools_and_those_before_pools_of_others() {
    let card = Card::new(64);
    let mut one = card.process(RECLAIM);
    one.done("pool theirs 0 16");
    one.done("allocate idle 12");
    one.done("free idle");
    let mut two = card.process(RECLAIM);
    two.done("pool ours 0 24");
    let asleep = |one: &mut Process, two: &mut Process| {
        [one.ask("asleep theirs").unwrap() == "true", two.ask("asleep ours").unwrap() == "true"]
    };
    two.done("allocate a 20");
    one.comes_to(20);
    assert_eq!(asleep(&mut one, &mut two), [false, false], "idle memory was enough");
    two.done("allocate b 20");
    assert_eq!(asleep(&mut one, &mut two), [false, true], "the own pool is next");
    two.done("allocate c 16");
    assert!(soon(|| asleep(&mut one, &mut two) == [true, true]));
}

#[test]
fn a_request_of_an_evictable_pool_evicts_only_lower_ones_of_others() {
    let card = Card::new(64);
    let mut one = card.process(RECLAIM);
    one.done("pool high 5 20");
    one.done("pool low 1 20");
    let mut two = card.process(RECLAIM);
    two.done("pool own 3 30");
    assert_eq!([one.ask("asleep high").unwrap(), one.ask("asleep low").unwrap()], ["false", "true"]);
    // It evicts the pool of its own process, and there is still too little.
    let error = two.ask("pool more 3 50").unwrap_err();
    assert!(error.starts_with("out of memory"), "{error}");
    assert_eq!(one.ask("asleep high").unwrap(), "false");
}

#[test]
fn a_process_below_its_share_gives_idle_memory_only() {
    let card = Card::new(64);
    let mut one = card.process(&format!("{RECLAIM},reclaim_share:50M"));
    one.done("pool weights 0 30");
    one.done("allocate idle 10");
    one.done("free idle");
    let mut two = card.process(RECLAIM);
    two.done("allocate it 30");
    one.comes_to(34);
    let error = two.ask("allocate more 30").unwrap_err();
    assert!(error.contains(&format!("process {} (reclaim", one.pid())), "{error}");
    one.comes_to(30);
    assert_eq!(one.figure("evictions"), 0, "no pool is evicted, though all else was given");
}

#[test]
fn a_failed_request_names_the_others_and_what_they_hold() {
    let card = Card::new(64);
    let mut one = card.process(RECLAIM);
    one.done("allocate live 40");
    let error = card.process(RECLAIM).ask("allocate it 40").unwrap_err();
    let expected = format!("\nprocess {} (reclaim-", one.pid());
    assert!(error.contains(&expected) && error.contains(") holds 40.00 MiB, 0 bytes of them idle\n"), "{error}");
}

#[test]
fn the_own_limit_is_no_reason_to_ask() {
    let card = Card::new(64);
    let mut one = idle(&card, RECLAIM, 20);
    let mut two = card.process(&format!("{RECLAIM},memory_limit:30MiB"));
    let error = two.ask("allocate it 40").unwrap_err();
    assert!(error.contains("limit"), "{error}");
    assert_eq!((two.figure("asks"), one.reserved_mib()), (0, 20));
}

#[test]
fn a_program_can_switch_it_on_and_off_while_it_runs() {
    let card = Card::new(64);
    let mut one = idle(&card, "elastic_setting:compact", 48);
    let mut two = card.process(RECLAIM);
    assert!(two.ask("allocate it 40").is_err());
    one.done(&format!("config {RECLAIM}"));
    // The next miss registers it.
    one.done("allocate more 2");
    one.done("allocate more 50");
    one.done("free more");
    two.done("allocate it 40");
    two.done("free it");
    two.done("config reclaim:False");
    one.done("allocate it 20");
    assert!(one.ask("allocate more 40").is_err());
}

#[test]
fn memory_that_was_just_received_is_not_asked_back_unless_a_request_would_fail() {
    let card = Card::new(64);
    let mut one = idle(&card, RECLAIM, 60);
    let mut two = card.process(RECLAIM);
    two.done("allocate it 40");
    two.done("free it");
    one.comes_to(24);
    // Within the second, unless the machine is very busy: then the pool stays, and the last line still holds.
    let mut three = card.process(RECLAIM);
    let asked = std::time::Instant::now();
    three.done("pool own 0 24");
    three.done("allocate a 20");
    let own_went = three.ask("asleep own").unwrap() == "true";
    assert!(
        own_went || asked.elapsed().as_millis() > 500,
        "the own pool goes before memory that two has just received"
    );
    three.done("allocate b 40");
    assert!(soon(|| two.reserved_mib() <= 4));
}

#[test]
fn a_process_is_not_evicted_below_its_share() {
    let card = Card::new(64);
    let mut one = card.process(&format!("{RECLAIM},reclaim_share:20M"));
    one.done("pool first 0 20");
    one.done("pool second 0 20");
    let error = card.process(RECLAIM).ask("allocate it 60").unwrap_err();
    assert!(error.starts_with("out of memory"), "{error}");
    one.comes_to(20);
    card.process(RECLAIM).done("allocate it 44");
}

#[test]
fn a_process_whose_need_rises_asks_a_few_times_and_not_for_every_request() {
    let card = Card::new(512);
    let mut one = card.process(RECLAIM);
    one.done("allocate it 480");
    one.done("free it");
    let mut two = card.process(RECLAIM);
    for number in 0..200 {
        two.done(&format!("allocate {number} 2"));
    }
    // 184 requests needed memory of the other process. At most a sixteenth of the card is asked for ahead.
    assert!(two.figure("asks") <= 40, "{}", two.figure("asks"));
    assert!(one.reserved_mib() >= 480 - 400 - 32, "{}", one.reserved_mib());
}
