//! Processes that are stopped, killed or forked, and places where they cannot meet.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::process::{Card, MIB, RECLAIM, soon};

#[test]
fn a_stopped_process_costs_one_window_per_round_and_others_still_give() {
    let card = Card::new(96);
    let mut stopped = card.process(RECLAIM);
    stopped.done("allocate it 40");
    stopped.done("free it");
    stopped.signal(libc::SIGSTOP);
    let mut other = card.process(RECLAIM);
    other.done("allocate it 40");
    other.done("free it");
    let mut asker = card.process(RECLAIM);
    let begun = Instant::now();
    asker.done("allocate a 40");
    let took = begun.elapsed();
    assert!(took >= Duration::from_millis(50) && took < Duration::from_secs(5), "{took:?}");
    assert_eq!(asker.figure("asks"), 1);
    let error = asker.ask("allocate b 40").unwrap_err();
    assert!(!error.contains(&format!("process {}", stopped.pid())), "it did not answer: {error}");
    assert_eq!(asker.figure("asks"), 3, "a request that fails asks for idle memory, and for all");
    stopped.signal(libc::SIGCONT);
    asker.done("allocate b 40");
    assert!(soon(|| stopped.reserved_mib() < 40));
}

#[test]
fn a_killed_process_leaves_nothing_and_is_not_asked() {
    let folder = std::env::temp_dir().join(format!("cachette-killed-{}", std::process::id()));
    fs::create_dir(&folder).unwrap();
    for card in [Card::new(64), Card::new(64).meeting_in(folder.to_str().unwrap())] {
        let mut one = card.process(RECLAIM);
        one.done("allocate it 60");
        one.kill();
        let mut two = card.process(RECLAIM);
        two.done("allocate it 60");
        assert_eq!(two.figure("asks"), 0, "there was room");
        assert!(two.ask("allocate more 60").is_err());
        assert_eq!(two.figure("asks"), 0, "nobody is left");
        two.kill();
    }
    let mut three = Card::new(64).meeting_in(folder.to_str().unwrap()).process(RECLAIM);
    assert!(three.ask("allocate it 65").is_err());
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 2, "the file of the last killed process, and its own");
    let card = Card::new(64).meeting_in(folder.to_str().unwrap());
    let [mut one, mut two] = [card.process(RECLAIM), card.process(RECLAIM)];
    one.done("allocate it 40");
    one.done("free it");
    two.done("allocate it 40");
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 3, "an ask removes the files of killed processes");
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_request_waits_for_the_memory_of_a_process_that_is_ending() {
    let card = Card::new(64);
    for state in ["ending", "dying"] {
        let mut ending = card.process("reclaim:False");
        ending.done("allocate it 60");
        ending.done(&format!("claim 60 {state}"));
        let mut asker = card.process(RECLAIM);
        asker.tell("allocate a 40");
        std::thread::sleep(Duration::from_millis(400));
        let begun = Instant::now();
        ending.kill();
        assert_eq!(asker.answer(), Ok(String::new()), "{state}");
        assert!(begun.elapsed() < Duration::from_secs(4), "the wait ends when the memory is free");
    }
}

#[test]
fn what_a_live_process_claims_and_does_not_give_is_not_waited_for() {
    let card = Card::new(64);
    let mut all: Vec<_> = (0..3).map(|_| card.process("reclaim:False")).collect();
    all[0].done("allocate it 60");
    for (process, claim) in all.iter_mut().zip(["60 lying", "17592186044415 lying", "17592186044415 lying"]) {
        process.done(&format!("claim {claim}"));
    }
    // Too little, although it ends.
    all[0].done("claim 10 ending");
    let mut asker = card.process(RECLAIM);
    let begun = Instant::now();
    assert!(asker.ask("allocate a 40").is_err());
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
}

#[test]
fn a_forked_child_does_not_answer_for_its_parent() {
    let card = Card::new(64);
    let mut one = card.process(RECLAIM);
    one.done("allocate it 40");
    one.done("free it");
    one.done("fork");
    let mut two = card.process(RECLAIM);
    two.done("allocate it 40");
    two.done("free it");
    assert_eq!(two.figure("asks"), 1, "the parent answered");
    one.kill();
    two.done("allocate it 60");
    assert!(two.ask("allocate more 60").is_err());
    assert_eq!(two.figure("asks"), 1, "the child lives and has no name");
}

#[test]
fn processes_meet_in_a_folder() {
    let folder = std::env::temp_dir().join(format!("cachette-meet-{}", std::process::id()));
    fs::create_dir(&folder).unwrap();
    let card = Card::new(64).meeting_in(folder.to_str().unwrap());
    let mut one = card.process(RECLAIM);
    one.done("allocate it 40");
    one.done("free it");
    let mut two = card.process(RECLAIM);
    two.done("allocate it 40");
    assert!(soon(|| one.figure("given") == 16 * MIB));
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 2, "the socket of an asker is gone");
    drop((one, two));
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn where_processes_cannot_meet_each_works_alone_and_says_so_once() {
    for folder in ["/nowhere/at/all", "/proc"] {
        let card = Card::new(64).meeting_in(folder);
        let mut one = card.process(RECLAIM);
        one.done("allocate a 40");
        assert!(one.ask("allocate b 40").is_err() && one.ask("allocate b 40").is_err());
        assert_eq!((one.figure("alone"), one.figure("asks")), (1, 0), "{folder}");
    }
    let mut one = Card::new(64).process_with(RECLAIM, |command| before_start(command, forbid_sockets));
    one.done("allocate a 40");
    assert!(one.ask("allocate b 40").is_err() && one.ask("allocate b 40").is_err());
    assert_eq!((one.figure("alone"), one.figure("asks")), (1, 0), "a sandbox");
}

/// Makes the child call a function before it starts the program.
fn before_start(command: &mut Command, call: fn() -> libc::c_int) {
    let call = move || if call() == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) };
    // SAFETY: the functions make only system calls.
    unsafe { command.pre_exec(call) };
}

/// Makes the system refuse every new socket of this process.
fn forbid_sockets() -> libc::c_int {
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let (refuse, allow) = (libc::SECCOMP_RET_ERRNO | libc::EPERM.cast_unsigned(), libc::SECCOMP_RET_ALLOW);
    let socket = u32::try_from(libc::SYS_socket).unwrap();
    // Loads the number of the call, compares it, and returns.
    let mut steps = [step(0x20, 0, 0, 0), step(0x15, 0, 1, socket), step(0x06, 0, 0, refuse), step(0x06, 0, 0, allow)];
    let filter = libc::sock_fprog { len: 4, filter: steps.as_mut_ptr() };
    // SAFETY: it changes this process alone.
    unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    // SAFETY: the filter and its steps are live.
    unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter) }
}

/// Puts this process into a network namespace of its own.
fn leave_network() -> libc::c_int {
    // SAFETY: it changes this process alone.
    unsafe { libc::unshare(libc::CLONE_NEWNET) }
}

/// Lets every user write the files of this process.
fn open_files() -> libc::c_int {
    // SAFETY: it changes this process alone.
    unsafe { libc::umask(0) };
    0
}

/// Whether idle memory of one process serves another, which are prepared. No file keeps them apart.
fn gives(card: &Card, one: &dyn Fn(&mut Command), other: &dyn Fn(&mut Command)) -> bool {
    let start = |prepare: &dyn Fn(&mut Command)| {
        card.process_with(RECLAIM, |command| {
            before_start(command, open_files);
            prepare(command);
        })
    };
    let mut one = start(one);
    one.done("allocate it 40");
    one.done("free it");
    let mut other = start(other);
    let served = other.ask("allocate it 40");
    one.kill();
    assert!(served.as_ref().err().is_none_or(|error| !error.contains("process ")), "nobody answers: {served:?}");
    served.is_ok()
}

#[test]
fn other_users_never_meet_and_other_networks_only_in_a_folder() {
    let folder = std::env::temp_dir().join(format!("cachette-users-{}", std::process::id()));
    let anybody = |path: &Path| fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
    fs::create_dir(&folder).unwrap();
    anybody(&folder);
    let cards = [Card::new(64), Card::new(64).meeting_in(folder.to_str().unwrap())];
    // SAFETY: it only reads. Other users can be started by root alone.
    let is_root = unsafe { libc::geteuid() } == 0;
    let mut probe = Command::new("true");
    before_start(&mut probe, leave_network);
    let has_networks = probe.status().is_ok();
    for (nth, card) in cards.iter().enumerate() {
        fs::write(card.file(), "").unwrap();
        anybody(card.file());
        let another_user = |command: &mut Command| {
            command.uid(65534);
        };
        let another_network = |command: &mut Command| before_start(command, leave_network);
        assert!(!is_root || !gives(card, &another_user, &|_| {}));
        assert!(!is_root || !gives(card, &|_| {}, &another_user));
        assert!(!has_networks || gives(card, &|_| {}, &another_network) == (nth == 1));
    }
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_folder_that_vanishes_is_said_once_and_stops_nobody() {
    let folder = std::env::temp_dir().join(format!("cachette-vanish-{}", std::process::id()));
    fs::create_dir(&folder).unwrap();
    let card = Card::new(64).meeting_in(folder.to_str().unwrap());
    let mut one = card.process(RECLAIM);
    one.done("allocate a 40");
    fs::remove_dir_all(folder).unwrap();
    assert!(one.ask("allocate b 40").is_err() && one.ask("allocate b 40").is_err());
    assert_eq!(one.figure("alone"), 1);
    one.done("free a");
    one.done("allocate b 60");
}

#[test]
fn idle_memory_returns_to_neighbours_that_do_not_ask() {
    let card = Card::new(64);
    for config in ["idle_release:0.2", "idle_release:0.2,expandable_segments:False"] {
        let mut one = card.process(config);
        one.done("allocate live 8");
        one.done("allocate it 40");
        one.done("free it");
        assert!(soon(|| one.reserved_mib() < 40), "{config}");
        assert_eq!((one.reserved_mib() >= 8, one.figure("given"), one.figure("alone")), (true, 0, 0));
        // A neighbour without Cachette's key.
        card.process("").done("allocate it 40");
    }
}
