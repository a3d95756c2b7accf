//! One look at all devices and processes.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::time::Instant;

use cachette_ipc::reclaim::{Asker, Figures, Gained, Give, NeighbourAddress, Place};
use nvml_wrapper::Nvml;
use serde::Serialize;

use super::card::{Card, program_of};
use super::{amd, nvidia};

/// Who holds memory, by device.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Sample {
    pub(super) devices: Vec<Device>,
}

#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Device {
    /// The identity, in hexadecimal digits.
    pub(super) uuid: String,
    /// The figures of the vendor; `None` where no vendor knows the device, such as the host.
    #[serde(flatten)]
    pub(super) card: Option<Facts>,
    pub(super) processes: Vec<Process>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Facts {
    pub(super) name: String,
    pub(super) total: u64,
    pub(super) used: u64,
    /// Bytes that no listed process has.
    pub(super) unattributed: u64,
}

/// An allocator of Cachette, or a process without one.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Process {
    pub(super) pid: u32,
    pub(super) program: String,
    /// What it says; `None` for a process without Cachette, or one that did not answer.
    pub(super) cachette: Option<AllocatorFigures>,
    /// Whether it has Cachette and did not answer in time.
    pub(super) silent: bool,
    /// What the vendor says that the process has; `None` if it does not tell.
    pub(super) driver: Option<u64>,
    /// The rest: contexts, libraries and memory that the program took past Cachette. Where the vendor does not tell, only
    /// what the process counts.
    pub(super) outside: Option<u64>,
    /// The labels and pools that hold most; only in `--json`.
    pub(super) holders: Vec<HeldBy>,
    /// Whom a question reaches.
    #[serde(skip)]
    pub(super) peer: Option<NeighbourAddress>,
}

/// A label or a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct HeldBy {
    pub(super) name: String,
    pub(super) is_pool: bool,
    pub(super) bytes: u64,
}

/// The figures of an allocator.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct AllocatorFigures {
    pub(super) reserved: u64,
    pub(super) in_use: u64,
    pub(super) idle: u64,
    pub(super) evictable: u64,
    pub(super) peak: u64,
    pub(super) limit: Option<u64>,
    pub(super) share: Option<u64>,
    pub(super) requests: u64,
    /// `None` at the first look.
    pub(super) requests_per_second: Option<f64>,
    pub(super) retries: u64,
    pub(super) failures: u64,
    pub(super) evictions: u64,
    pub(super) asked: u64,
    pub(super) received: u64,
    pub(super) given: u64,
    /// What the program took past the allocator; `None` if that is not counted.
    pub(super) outside: Option<u64>,
    pub(super) outside_managed: u64,
    pub(super) outside_host: u64,
}

impl AllocatorFigures {
    #[expect(clippy::cast_precision_loss, reason = "a rate needs far fewer digits than are kept")]
    fn new(figures: &Figures, before: Option<&Seen>, now: Instant) -> Self {
        let rate = |seen: &Seen| {
            let served = figures.requests.saturating_sub(seen.requests);
            served as f64 / now.duration_since(seen.at).as_secs_f64().max(1e-3)
        };
        Self {
            reserved: figures.reserved,
            in_use: figures.allocated,
            idle: figures.idle,
            evictable: figures.evictable,
            peak: figures.peak,
            limit: figures.limit,
            share: figures.share,
            requests: figures.requests,
            requests_per_second: before.map(rate),
            retries: figures.retries,
            failures: figures.ooms,
            evictions: figures.evictions,
            asked: figures.asks,
            received: figures.received,
            given: figures.given,
            outside: figures.outside,
            outside_managed: figures.outside_managed,
            outside_host: figures.outside_host,
        }
    }
}

/// The requests of an allocator at an earlier look.
#[derive(Clone, Copy, Debug)]
struct Seen {
    at: Instant,
    requests: u64,
}

/// Looks again and again.
pub(super) struct Sampler {
    pub(super) asker: Asker,
    place: Place,
    nvml: Option<Nvml>,
    /// By the name of the socket.
    seen: HashMap<String, Seen>,
}

impl Sampler {
    pub(super) fn new(place: &Place) -> io::Result<Self> {
        Ok(Self { asker: Asker::new(place)?, place: place.clone(), nvml: nvidia::load(), seen: HashMap::new() })
    }

    /// One look. A process that does not answer costs one window of the questions.
    pub(super) fn look(&mut self) -> io::Result<Sample> {
        let peers = self.asker.peers(None, None)?;
        let figures = self.asker.figures(&peers)?;
        let now = Instant::now();
        let seen = peers.iter().zip(&figures).filter_map(|(peer, figures)| {
            let requests = figures.as_ref()?.requests;
            Some((peer.name().to_owned(), Seen { at: now, requests }))
        });
        let seen: HashMap<_, _> = seen.collect();
        let answered = peers.into_iter().zip(figures).map(|(peer, figures)| {
            let held = figures.as_ref().map(|figures| AllocatorFigures::new(figures, self.seen.get(peer.name()), now));
            let program = figures.map_or_else(|| program_of(peer.pid), |figures| figures.program);
            let (device, pid, silent) = (peer.device, peer.pid, held.is_none());
            (device, Process { pid, program, silent, cachette: held, peer: Some(peer), ..Process::default() })
        });
        let answered = answered.collect();
        self.seen = seen;
        let cards = self.nvml.as_ref().map(nvidia::cards).into_iter().flatten().chain(amd::cards());
        Ok(join(cards.collect(), answered))
    }

    /// Asks a process to give memory back. Returns what it says it has released; zero if it does not answer.
    pub(super) fn give(&self, peer: &NeighbourAddress, evict: bool) -> io::Result<u64> {
        // Each release may take the whole patience of an asker.
        Asker::new(&self.place)?.give(peer, Give { bytes: u64::MAX, evict, below: None }, true, || Gained::Nothing)
    }

    /// Adds the labels and pools of every process that answers.
    pub(super) fn add_holders(&mut self, sample: &mut Sample) -> io::Result<()> {
        for process in sample.devices.iter_mut().flat_map(|device| &mut device.processes) {
            let Some(peer) = process.peer.clone().filter(|_| !process.silent) else { continue };
            let holders = self.asker.holders(&peer)?.unwrap_or_default();
            let listed = holders.into_iter().map(|it| HeldBy { name: it.name, is_pool: it.is_pool, bytes: it.bytes });
            process.holders = listed.collect();
        }
        Ok(())
    }
}

/// Puts the answers beside what the vendors tell: devices of vendors first.
fn join(cards: Vec<Card>, answered: Vec<([u8; 16], Process)>) -> Sample {
    let mut by_device: BTreeMap<[u8; 16], Vec<Process>> = BTreeMap::new();
    for (device, mut process) in answered {
        process.outside = process.cachette.as_ref().and_then(|held| held.outside);
        by_device.entry(device).or_default().push(process);
    }
    let mut devices: Vec<_> = cards
        .into_iter()
        .map(|card| {
            let ours = by_device.remove(&card.id).unwrap_or_default();
            device_of(card, ours)
        })
        .collect();
    let hidden = by_device.into_iter().map(|(id, processes)| Device { uuid: digits(&id), card: None, processes });
    devices.extend(hidden);
    Sample { devices }
}

fn device_of(card: Card, mut processes: Vec<Process>) -> Device {
    let held = |process: &Process| process.cachette.as_ref().map_or(0, |held| held.reserved);
    let mut reserved: BTreeMap<u32, u64> = BTreeMap::new();
    for process in &processes {
        let of_pid = reserved.entry(process.pid).or_default();
        *of_pid = of_pid.saturating_add(held(process));
    }
    for process in &mut processes {
        process.driver = card.processes.get(&process.pid).copied().flatten();
        // A process with several allocators has the rest in its first row.
        let own = reserved.remove(&process.pid);
        if let Some(driver) = process.driver {
            process.outside = own.map(|own| driver.saturating_sub(own));
        }
    }
    let known: Vec<u32> = processes.iter().map(|process| process.pid).collect();
    let others = card.processes.iter().filter(|(pid, _)| !known.contains(pid));
    processes.extend(others.map(|(pid, bytes)| Process {
        pid: *pid,
        program: program_of(*pid),
        driver: *bytes,
        outside: *bytes,
        ..Process::default()
    }));
    let listed = processes.iter().flat_map(|process| [held(process), process.outside.unwrap_or(0)]);
    let listed = listed.fold(0, u64::saturating_add);
    let unattributed = card.used.saturating_sub(listed);
    let facts = Facts { name: card.name, total: card.total, used: card.used, unattributed };
    Device { uuid: digits(&card.id), card: Some(facts), processes }
}

fn digits(id: &[u8; 16]) -> String {
    format!("{:032x}", u128::from_be_bytes(*id))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use cachette_ipc::reclaim::{Holder, Neighbour, register};

    use super::*;

    const MIB: u64 = 1 << 20;

    fn ours(pid: u32, reserved: u64) -> ([u8; 16], Process) {
        let held = AllocatorFigures { reserved, ..AllocatorFigures::default() };
        ([1; 16], Process { pid, cachette: Some(held), ..Process::default() })
    }

    #[test]
    fn what_the_vendor_says_beyond_the_cache_is_outside() {
        let processes = BTreeMap::from([(1, Some(100 * MIB)), (2, Some(50 * MIB)), (3, None)]);
        let card = Card { id: [1; 16], name: "card".to_owned(), total: 1000 * MIB, used: 200 * MIB, processes };
        let sample = join(vec![card], vec![ours(1, 60 * MIB), ours(1, 10 * MIB), ours(9, 5 * MIB)]);
        let [device] = &*sample.devices else { panic!("one device") };
        let rows =
            device.processes.iter().map(|it| (it.pid, it.driver.map(|it| it / MIB), it.outside.map(|it| it / MIB)));
        let rows = rows.collect::<Vec<_>>();
        assert_eq!(
            rows,
            [(1, Some(100), Some(30)), (1, Some(100), None), (9, None, None), (2, Some(50), Some(50)), (3, None, None)]
        );
        // 100 of the first, 5 of the ninth and 50 of the second are listed.
        assert_eq!(device.card.as_ref().map(|card| card.unattributed), Some(45 * MIB));
        let lies =
            join(vec![Card { id: [1; 16], used: 1, ..Card::default() }], [(); 2].map(|()| ours(1, u64::MAX)).into());
        assert_eq!(lies.devices[0].card.as_ref().map(|card| card.unattributed), Some(0));
    }

    #[test]
    fn what_the_process_counts_is_outside_where_no_vendor_tells() {
        let counts = |mut of: ([u8; 16], Process), outside| {
            of.1.cachette.as_mut().unwrap().outside = outside;
            of
        };
        let card = Card {
            id: [1; 16],
            used: 100 * MIB,
            processes: BTreeMap::from([(1, Some(90 * MIB)), (2, None)]),
            ..Card::default()
        };
        let answered =
            vec![counts(ours(1, 60 * MIB), Some(5 * MIB)), counts(ours(2, 3 * MIB), Some(4 * MIB)), ours(3, MIB)];
        let sample = join(vec![card], answered);
        let outside: Vec<_> = sample.devices[0].processes.iter().map(|it| it.outside.map(|it| it / MIB)).collect();
        assert_eq!(outside, [Some(30), Some(4), None], "the vendor sees contexts too");
        assert_eq!(sample.devices[0].card.as_ref().map(|card| card.unattributed), Some(2 * MIB));
    }

    #[test]
    fn a_device_that_no_vendor_knows_comes_last() {
        let card = Card { id: [2; 16], ..Card::default() };
        let sample = join(vec![card], vec![ours(1, 1)]);
        let names: Vec<_> = sample.devices.iter().map(|device| (&device.uuid[..2], device.card.is_some())).collect();
        assert_eq!(names, [("02", true), ("01", false)]);
    }

    /// An allocator that needs more than half of the patience for each release.
    struct Slow;

    impl Neighbour for Slow {
        fn figures(&self) -> Figures {
            Figures::default()
        }
        fn give(&self, _: Give) -> u64 {
            std::thread::sleep(std::time::Duration::from_millis(2700));
            7
        }
        fn holders(&self) -> Vec<Holder> {
            Vec::new()
        }
        fn write_snapshot(&self) -> String {
            String::new()
        }
        fn tick(&self) {}
    }

    #[test]
    fn each_release_has_the_whole_patience() {
        let folder = tempfile::tempdir().unwrap();
        let place = Place::Folder(folder.path().to_owned());
        let slow: Arc<dyn Neighbour> = Arc::new(Slow);
        let _registered = register(Some((&place, &[5; 16])), None, Arc::downgrade(&slow)).unwrap();
        let mut sampler = Sampler::new(&place).unwrap();
        let peer = sampler.look().unwrap().devices[0].processes[0].peer.clone().unwrap();
        assert_eq!([(); 2].map(|()| sampler.give(&peer, false).unwrap()), [7, 7]);
    }

    #[test]
    fn requests_a_second_need_two_looks() {
        let at = Instant::now();
        let figures = Figures::default();
        assert_eq!(AllocatorFigures::new(&figures, None, at).requests_per_second, None);
        let later = at + std::time::Duration::from_secs(2);
        let mut figures = Figures::default();
        figures.requests = 300;
        let rate = AllocatorFigures::new(&figures, Some(&Seen { at, requests: 100 }), later).requests_per_second;
        assert_eq!(rate, Some(100.0));
    }
}
