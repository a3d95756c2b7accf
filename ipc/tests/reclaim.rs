//! Questions and answers between allocators, which here are counters of bytes in one process.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use cachette_ipc::reclaim::message::{Body, LENGTH, Message};
use cachette_ipc::reclaim::{
    Asker, Device, Figures, Gained, Give, Holder, MOST_REGISTRATIONS, Neighbour, NeighbourAddress, Place, Registration,
    WINDOW, register,
};
use cachette_mutation::{Counting, Outcome, Rng, Run, mutate, usage};
use rustix::net::{AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType};

#[global_allocator]
static COUNTING: Counting = Counting;

/// A neighbour with idle bytes.
#[derive(Default)]
struct Idle {
    bytes: AtomicU64,
    asked: AtomicU64,
    ticks: AtomicU64,
    panics: AtomicBool,
    /// The releases now, and the most at once.
    running: AtomicU64,
    most: AtomicU64,
    /// A release waits for a message or the end of the channel.
    gate: Mutex<Option<mpsc::Receiver<()>>>,
}

impl Neighbour for Idle {
    fn figures(&self) -> Figures {
        self.asked.fetch_add(1, SeqCst);
        let mut figures = Figures::default();
        figures.idle = self.bytes.load(SeqCst);
        figures
    }

    fn give(&self, give: Give) -> u64 {
        assert!(!self.panics.load(SeqCst), "a defect of the allocator");
        if let Some(gate) = &*self.gate.lock().unwrap() {
            let _ = gate.recv();
        }
        self.most.fetch_max(self.running.fetch_add(1, SeqCst) + 1, SeqCst);
        thread::sleep(Duration::from_millis(5));
        self.running.fetch_sub(1, SeqCst);
        let given = give.bytes.min(self.bytes.load(SeqCst));
        self.bytes.fetch_sub(given, SeqCst);
        given
    }

    fn holders(&self) -> Vec<Holder> {
        let holder = |name: &str, is_pool| Holder { name: name.to_owned(), is_pool, bytes: 5 << 20 };
        vec![holder("kv_cache", false), holder("default", true)]
    }

    fn write_snapshot(&self) -> String {
        "/tmp/memory.json".to_owned()
    }

    fn tick(&self) {
        self.ticks.fetch_add(1, SeqCst);
    }
}

/// A device that no other test knows.
fn new_device() -> Device {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    (u128::from(std::process::id()) << 64 | u128::from(NEXT.fetch_add(1, SeqCst))).to_be_bytes()
}

fn neighbour(device: &Device, bytes: u64) -> (Arc<Idle>, Registration) {
    let idle = Arc::new(Idle { bytes: AtomicU64::new(bytes), ..Idle::default() });
    let answers = Some((&Place::Namespace, device));
    let weak: Weak<Idle> = Arc::downgrade(&idle);
    // One test makes as many registrations as a process may have.
    let registered = loop {
        match register(answers, None, weak.clone()) {
            Err(error) if error.kind() == std::io::ErrorKind::QuotaExceeded => thread::yield_now(),
            registered => break registered.expect("sockets work here"),
        }
    };
    (idle, registered)
}

fn asker() -> Asker {
    Asker::new(&Place::Namespace).expect("sockets work here")
}

fn peers_of(device: &Device) -> Vec<NeighbourAddress> {
    asker().peers(Some(device), None).unwrap()
}

/// Whether something becomes true soon: the answering thread closes the socket of a registration that has ended.
fn soon(is_true: impl Fn() -> bool) -> bool {
    (0..1000).any(|_| {
        let done = is_true();
        thread::sleep(Duration::from_millis(u64::from(!done)));
        done
    })
}

/// A process has one release at a time, so tests that ask for one take turns.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    // The release of the test before may not have ended.
    let device = new_device();
    let _idle = neighbour(&device, 0);
    asker().give(&peers_of(&device)[0], IDLE_ONLY, false, || Gained::More).unwrap();
    turn
}

const IDLE_ONLY: Give = Give { bytes: 10, evict: false, below: None };

#[test]
fn neighbours_are_found_and_give_what_they_have() {
    let _turn = turn();
    let device = new_device();
    let (one, of_one) = neighbour(&device, 30);
    let (_two, _of_two) = neighbour(&device, 5);
    let mut asker = asker();
    let peers = asker.peers(Some(&device), Some(&of_one)).unwrap();
    assert_eq!(peers.len(), 1, "the own registration is left out");
    assert_eq!(asker.figures(&peers).unwrap()[0].as_ref().unwrap().idle, 5);
    assert_eq!(asker.give(&peers[0], IDLE_ONLY, false, || Gained::Nothing).unwrap(), 5);
    assert_eq!(asker.figures(&peers).unwrap()[0].as_ref().unwrap().idle, 0, "the figures are those after it");
    assert_eq!(one.bytes.load(SeqCst), 30);
    drop(of_one);
    assert!(soon(|| peers_of(&device).len() == 1), "a registration ends with its drop");
}

#[test]
fn one_question_costs_one_datagram_per_neighbour() {
    let datagrams = [4, 8, 16, 32].map(|count| {
        let device = new_device();
        let all: Vec<_> = (0..count).map(|nth| neighbour(&device, nth)).collect();
        let mut asker = asker();
        let peers = asker.peers(Some(&device), None).unwrap();
        let figures = asker.figures(&peers).unwrap();
        assert_eq!(figures.iter().flatten().map(|figures| figures.idle).sum::<u64>(), (0..count).sum());
        drop(all);
        asker.datagrams()
    });
    assert_eq!(datagrams, [4, 8, 16, 32], "and each neighbour answers once");
}

#[test]
fn many_that_ask_at_once_all_get_answers() {
    let device = new_device();
    let all: Vec<_> = (0..8).map(|_| neighbour(&device, 1)).collect();
    thread::scope(|scope| {
        for _ in 0..32 {
            scope.spawn(|| {
                let mut asker = asker();
                let peers = asker.peers(Some(&device), None).unwrap();
                // A machine with few cores may need more than one window.
                let answered = (0..20).any(|_| asker.figures(&peers).unwrap().iter().flatten().count() == 8);
                assert!(answered);
            });
        }
    });
    drop(all);
}

#[test]
fn one_release_runs_at_a_time_and_who_comes_second_is_served_next() {
    let _turn = turn();
    let device = new_device();
    let (idle, _registered) = neighbour(&device, 20);
    let (open, gate) = mpsc::channel();
    *idle.gate.lock().unwrap() = Some(gate);
    let peers = peers_of(&device);
    let give = || {
        thread::spawn({
            let peer = peers[0].clone();
            // The device seems to gain, so both wait until they are answered.
            move || asker().give(&peer, IDLE_ONLY, false, || Gained::More).unwrap()
        })
    };
    let (first, second) = (give(), give());
    thread::sleep(Duration::from_millis(20));
    assert_eq!(asker().figures(&peers).unwrap().iter().flatten().count(), 1, "figures are answered meanwhile");
    drop(open);
    assert_eq!(first.join().unwrap() + second.join().unwrap(), 20);
    assert_eq!(idle.most.load(SeqCst), 1);
}

/// A neighbour whose release does not end before the channel.
fn stuck(device: &Device) -> (Arc<Idle>, Registration, mpsc::Sender<()>) {
    let (idle, registered) = neighbour(device, 20);
    let (open, gate) = mpsc::channel();
    *idle.gate.lock().unwrap() = Some(gate);
    (idle, registered, open)
}

#[test]
fn a_release_that_frees_nothing_costs_one_window_and_a_patient_asker_its_patience() {
    let _turn = turn();
    let device = new_device();
    let _stuck = stuck(&device);
    let peers = peers_of(&device);
    let patience = Duration::from_secs(1);
    let took = |patient| {
        let mut asker = asker().with_patience(patience);
        let begun = Instant::now();
        assert_eq!(asker.give(&peers[0], IDLE_ONLY, patient, || Gained::Nothing).unwrap(), 0);
        let (took, datagrams) = (begun.elapsed(), asker.datagrams());
        assert!(u128::from(datagrams) <= took.as_millis() / 10 + 10, "{datagrams} questions in {took:?}");
        took
    };
    // The first release says that it works. It goes on, so the neighbour is busy for those that follow.
    let [works, busy, hurried] = [true, true, false].map(took);
    assert!([works, busy].iter().all(|took| *took > 2 * WINDOW && *took < 20 * patience), "{works:?} {busy:?}");
    assert!(hurried >= WINDOW && hurried < WINDOW + patience, "{hurried:?}");
    let figures = asker().figures(&peers).unwrap();
    assert!(figures[0].as_ref().unwrap().is_releasing);
}

#[test]
fn a_release_in_progress_says_so_at_intervals_however_many_ask() {
    let _turn = turn();
    let device = new_device();
    let _stuck = stuck(&device);
    let peers = peers_of(&device);
    let socket = socket();
    let name = format!("cachette-test-intervals-{}", std::process::id());
    rustix::net::bind(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap()).unwrap();
    let begun = Instant::now();
    send_raw(&socket, &peers[0], &Message { request: 5, body: Body::Give(IDLE_ONLY) }.encode());
    let (mut other, mut answers) = (asker(), 0);
    for _ in 0..200 {
        other.figures(&peers).unwrap();
        answers += u128::from(rustix::io::read(&socket, &mut [0_u8; LENGTH]).is_ok());
    }
    assert!(answers <= begun.elapsed().as_millis() / 20 + 2, "{answers} in {:?}", begun.elapsed());
}

#[test]
fn what_arrived_while_the_asker_slept_is_read() {
    let _turn = turn();
    let device = new_device();
    let (_idle, _registered, open) = stuck(&device);
    let peers = peers_of(&device);
    let mut looks = 0;
    let slow_look = || {
        looks += 1;
        thread::sleep(3 * WINDOW / 2);
        if looks == 4 {
            open.send(()).unwrap();
        }
        Gained::Nothing
    };
    assert_eq!(asker().give(&peers[0], IDLE_ONLY, true, slow_look).unwrap(), 10);
}

#[test]
fn the_wait_ends_when_the_device_has_enough_whatever_the_neighbour_says() {
    let _turn = turn();
    let device = new_device();
    let (idle, _registered) = neighbour(&device, 20);
    let (_closed, gate) = mpsc::channel();
    *idle.gate.lock().unwrap() = Some(gate);
    let begun = Instant::now();
    let mut looks = 0;
    let enough = || {
        looks += 1;
        if looks < 3 { Gained::Nothing } else { Gained::Enough }
    };
    let peers = peers_of(&device);
    asker().give(&peers[0], IDLE_ONLY, true, enough).unwrap();
    assert_eq!(looks, 3);
    assert!(begun.elapsed() < 20 * WINDOW);
}

#[test]
fn a_release_that_panics_is_answered_and_the_next_one_runs() {
    let _turn = turn();
    let device = new_device();
    let (idle, _registered) = neighbour(&device, 20);
    let peers = peers_of(&device);
    idle.panics.store(true, SeqCst);
    // A panic takes long to print, so this waits until it is answered.
    assert_eq!(asker().give(&peers[0], IDLE_ONLY, false, || Gained::More).unwrap(), 0);
    idle.panics.store(false, SeqCst);
    assert_eq!(asker().give(&peers[0], IDLE_ONLY, false, || Gained::Nothing).unwrap(), 10);
}

#[test]
fn allocators_that_do_not_answer_cost_one_window_together() {
    let device = new_device();
    let silent: Vec<_> = (0..20).map(|_| neighbour(&device, 20).1).collect();
    let peers = peers_of(&device);
    let begun = Instant::now();
    assert_eq!(asker().figures(&peers).unwrap(), [const { None }; 20]);
    let took = begun.elapsed();
    assert!(took >= WINDOW && took < 20 * WINDOW, "{took:?}");
    drop(silent);
}

#[test]
fn an_interval_ticks_without_a_socket() {
    let _turn = turn();
    let idle = Arc::new(Idle::default());
    let weak: Weak<Idle> = Arc::downgrade(&idle);
    let registered = register(None, Some(Duration::from_millis(5)), weak).unwrap();
    while idle.ticks.load(SeqCst) < 3 {
        thread::sleep(Duration::from_millis(1));
    }
    drop(registered);
}

#[test]
fn there_is_a_last_registration_and_a_drop_makes_room() {
    let device = new_device();
    let idle: Arc<dyn Neighbour> = Arc::new(Idle::default());
    let once = || register(Some((&Place::Namespace, &device)), None, Arc::downgrade(&idle));
    let mut all = Vec::new();
    let refused = loop {
        match once() {
            Ok(registered) => all.push(registered),
            Err(error) => break error,
        }
        assert!(all.len() <= MOST_REGISTRATIONS);
    };
    assert!(refused.to_string().contains("drop one of them"), "{refused}");
    all.clear();
    assert!(soon(|| once().is_ok()));
}

fn socket() -> OwnedFd {
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::NONBLOCK, None).unwrap()
}

/// Sends any bytes to a neighbour.
fn send_raw(socket: &OwnedFd, peer: &NeighbourAddress, bytes: &[u8]) {
    let name = format!("{peer:?}").split('"').nth(1).unwrap().to_owned();
    let to = SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap();
    // A full queue loses it.
    let _ = rustix::net::sendto(socket.as_fd(), bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT, &to);
}

/// A message of every kind.
fn messages() -> Vec<Vec<u8>> {
    let give = Body::Give(Give { bytes: 0, evict: true, below: Some(7) });
    let mut figures = Figures::default();
    "python3 train.py".clone_into(&mut figures.program);
    figures.limit = Some(1 << 40);
    let figures = Body::Figures(Box::new(figures));
    let bodies = [Body::HowAreYou, figures, give, Body::Working, Body::Given(9), Body::Busy];
    bodies.map(|body| Message { request: 5, body }.encode().to_vec()).into()
}

#[test]
fn damaged_messages() {
    let files = messages();
    let run = Run { files: &files, words: &[b"CRCL"], mutants: 20_000 };
    run.try_all(|mutant| {
        let (read, used) = usage(|| Message::decode(mutant));
        assert!(used.peak <= 8 * LENGTH, "{used:?}");
        let Some(message) = read else { return Outcome::Refused };
        assert_eq!(mutant.len(), LENGTH);
        assert_eq!(Message::decode(&message.encode()).as_ref().map(|again| again.request), Some(message.request));
        Outcome::Accepted
    });
}

#[test]
fn a_neighbour_that_receives_damaged_messages_answers_others() {
    let _turn = turn();
    let device = new_device();
    let (idle, _registered) = neighbour(&device, 20);
    let peers = peers_of(&device);
    let socket = socket();
    let (mut random, files) = (Rng::with_seed(11), messages());
    let mut other_version = files[0].clone();
    other_version[4] += 1;
    send_raw(&socket, &peers[0], &other_version);
    for _ in 0..2000 {
        send_raw(&socket, &peers[0], &mutate(&mut random, &files, &[b"CRCL"]));
    }
    assert_eq!(asker().figures(&peers).unwrap().iter().flatten().count(), 1);
    assert!(idle.bytes.load(SeqCst) <= 20);
}

#[test]
fn a_flood_of_questions_asks_the_allocator_seldom() {
    let device = new_device();
    let (idle, _registered) = neighbour(&device, 20);
    let peers = peers_of(&device);
    let mut asker = asker();
    let begun = Instant::now();
    for _ in 0..1000 {
        asker.figures(&peers).unwrap();
    }
    let most = begun.elapsed().as_millis() / 2 + 2;
    assert!(u128::from(idle.asked.load(SeqCst)) <= most, "{} in {:?}", idle.asked.load(SeqCst), begun.elapsed());
}

#[test]
fn a_forked_child_neither_answers_nor_keeps_the_name() {
    let device = new_device();
    let (_idle, registered) = neighbour(&device, 20);
    let (mut wait, end) = std::io::pipe().unwrap();
    // SAFETY: the child makes only system calls.
    let child = unsafe { libc::fork() };
    if child == 0 {
        drop(end);
        let _ = std::io::Read::read(&mut wait, &mut [0]);
        // SAFETY: it ends the child without destructors.
        unsafe { libc::_exit(0) };
    }
    drop(wait);
    assert_eq!(peers_of(&device).len(), 1);
    drop(registered);
    let gone = soon(|| peers_of(&device).is_empty());
    drop(end);
    // SAFETY: it waits for the child.
    unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
    assert!(gone, "the name ends with the parent's socket, although the child lives");
}
