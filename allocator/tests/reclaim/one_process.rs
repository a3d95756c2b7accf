//! Two allocators of one process on one device, which are neighbours like any others.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use cachette::hal::{AnyDevice, Call, CaptureMode, Device, ErrorKind, Ordinal};
use cachette::{Allocator, Error, Notice, OutsideKind, Stream};
use cachette_hal_host::{HostBackend, HostConfig, HostDevice};
use cachette_ipc::reclaim::{Asker, Gained, Give, Place};

use crate::process::{Card, MIB, RECLAIM, soon};

fn device(card: &Card) -> HostDevice {
    let backend = HostBackend::new(HostConfig::default().capacity(64 * MIB).shared(card.file())).unwrap();
    backend.device(Ordinal(0)).unwrap()
}

fn allocator(device: &HostDevice, config: &str) -> (Allocator, Stream) {
    let allocator = Allocator::with_config(Arc::new(device.clone()) as AnyDevice, &config.parse().unwrap());
    let stream = allocator.create_stream().unwrap();
    (allocator, stream)
}

/// A process runs one release at a time, so these tests take turns.
static ONE_RELEASE: Mutex<()> = Mutex::new(());

#[test]
fn two_allocators_of_a_process_give_each_other_memory() {
    let _only = ONE_RELEASE.lock().unwrap_or_else(PoisonError::into_inner);
    let card = Card::new(64);
    let device = device(&card);
    let (one, of_one) = allocator(&device, RECLAIM);
    let (two, of_two) = allocator(&device, RECLAIM);
    drop(one.allocate(48 * MIB, &of_one).unwrap());
    let memory = two.allocate(40 * MIB, &of_two).unwrap();
    assert!(soon(|| (one.reserved_bytes(), one.stats().given_bytes) == (24 * MIB, 24 * MIB)));
    assert_eq!((two.reserved_bytes(), two.stats().reclaimed_bytes), (40 * MIB, 24 * MIB));
    let page = two.metrics().to_string();
    for line in ["cachette_reclaims_total{", "cachette_reclaimed_bytes_total{", "cachette_given_bytes_total{"] {
        assert!(page.contains(line), "{line}");
    }
    two.reset_totals();
    assert_eq!((two.stats().num_reclaims, two.stats().reclaimed_bytes), (0, 0));
    drop(memory);
    one.check().unwrap();
    two.check().unwrap();
}

#[test]
fn decommitted_memory_goes_to_a_neighbour_and_committed_memory_stays() {
    let _only = ONE_RELEASE.lock().unwrap_or_else(PoisonError::into_inner);
    let card = Card::new(64);
    let device = device(&card);
    let (one, of_one) = allocator(&device, RECLAIM);
    let (two, of_two) = allocator(&device, RECLAIM);
    let cache = one.allocate_growable(1 << 40, &of_one).unwrap();
    cache.commit(0..8 * MIB).unwrap();
    cache.commit(8 * MIB..48 * MIB).unwrap();
    cache.decommit(8 * MIB..48 * MIB).unwrap();
    let memory = two.allocate(40 * MIB, &of_two).unwrap();
    assert!(soon(|| (8 * MIB..=24 * MIB).contains(&one.reserved_bytes())), "{}", one.reserved_bytes());
    assert_eq!(cache.committed(), 8 * MIB);
    assert!(two.allocate(20 * MIB, &of_two).is_err(), "committed memory stays");
    drop(memory);
    cache.commit(8 * MIB..56 * MIB).unwrap();
    drop(cache);
    one.check().unwrap();
    two.check().unwrap();
}

#[test]
fn figures_count_memory_that_bypasses_the_cache() {
    let _only = ONE_RELEASE.lock().unwrap_or_else(PoisonError::into_inner);
    let card = Card::new(64);
    let device = device(&card);
    let (allocator, stream) = allocator(&device, RECLAIM);
    let _cached = allocator.allocate(4 * MIB, &stream).unwrap();
    allocator.set_config(&format!("{RECLAIM},caching:False").parse().unwrap());
    let _uncached = allocator.allocate(6 * MIB, &stream).unwrap();
    let mut asker = Asker::new(&Place::of_environment()).unwrap();
    let peers = asker.peers(Some(&device.info().uuid), None).unwrap();
    let figures = asker.figures(&peers).unwrap().remove(0).expect("it answers");
    let found = (figures.reserved, figures.allocated, figures.idle, figures.is_ending);
    assert_eq!(found, (10 * MIB, 10 * MIB, 0, false));
    device.fail_next(Call::MemoryInfo, 1, ErrorKind::ShuttingDown);
    asker.give(&peers[0], Give::default(), true, || Gained::Nothing).unwrap();
    assert!(soon(|| asker.figures(&peers).unwrap()[0].as_ref().is_some_and(|figures| figures.is_ending)));
}

#[test]
#[cfg(feature = "history")]
fn a_snapshot_for_others_follows_no_link_of_another_user() {
    let _only = ONE_RELEASE.lock().unwrap_or_else(PoisonError::into_inner);
    let card = Card::new(64);
    let device = device(&card);
    let (allocator, stream) = allocator(&device, RECLAIM);
    let _memory = allocator.allocate(4 * MIB, &stream).unwrap();
    let temporary = |name: String| std::env::temp_dir().join(name);
    let kept = temporary(format!("cachette-kept-{}", std::process::id()));
    std::fs::write(&kept, b"kept").unwrap();
    let links = [0, 1].map(|nth| temporary(format!("cachette-{}-{nth}.json", std::process::id())));
    links.iter().for_each(|link| std::os::unix::fs::symlink(&kept, link).unwrap());
    let mut asker = Asker::new(&Place::of_environment()).unwrap();
    let peers = asker.peers(Some(&device.info().uuid), None).unwrap();
    let written = [(); 2].map(|()| asker.snapshot(&peers[0]).unwrap().expect("it is written"));
    assert_eq!((std::fs::read(&kept).unwrap(), written[0] == written[1]), (b"kept".to_vec(), false));
    let files = written.iter().map(PathBuf::from).chain(links).chain([kept]);
    files.for_each(|file| std::fs::remove_file(file).unwrap());
}

#[test]
fn idle_memory_goes_back_before_a_host_that_shares_it_runs_short() {
    let _only = ONE_RELEASE.lock().unwrap_or_else(PoisonError::into_inner);
    let host = Arc::new(AtomicU64::new(0));
    let config = HostConfig::default().capacity(64 * MIB).integrated(Arc::clone(&host));
    let device = HostBackend::new(config).unwrap().device(Ordinal(0)).unwrap();
    for kind in ["expandable_segments:False", "elastic_setting:compact,idle_release:1000"] {
        let (allocator, stream) = allocator(&device, &format!("{kind},host_reserve:8MiB"));
        let kept = allocator.allocate(10 * MIB, &stream).unwrap();
        for _ in 0..2 {
            drop((allocator.allocate(16 * MIB, &stream).unwrap(), allocator.allocate(12 * MIB, &stream).unwrap()));
        }
        // The host takes 2 MiB of its reserve. What is in use stays, and so does what the host does not need.
        let available = device.host_available().unwrap();
        let before = allocator.reserved_bytes();
        host.store(available - 6 * MIB, SeqCst);
        assert!(soon(|| device.host_available() >= Some(8 * MIB)), "{kind}");
        assert!((2 * MIB..=before - 10 * MIB).contains(&(before - allocator.reserved_bytes())), "{kind}");
        host.store(64 * MIB, SeqCst);
        assert!(soon(|| allocator.reserved_bytes() <= 12 * MIB), "{kind}: all that is idle");
        assert!(allocator.allocate(MIB, &stream).is_ok() || allocator.reserved_bytes() == 10 * MIB);
        host.store(0, SeqCst);
        drop(kept);
        allocator.check().unwrap();
    }
}

#[test]
fn a_captured_stream_gets_idle_memory_of_others_and_evicts_nothing() {
    let _only = ONE_RELEASE.lock().unwrap_or_else(PoisonError::into_inner);
    let card = Card::new(64);
    let device = device(&card);
    let (one, of_one) = allocator(&device, RECLAIM);
    let (two, of_two) = allocator(&device, RECLAIM);
    drop(one.allocate(40 * MIB, &of_one).unwrap());
    let keeps = two.allocate(2 * MIB, &of_two).unwrap();
    let capture = device.capture().unwrap();
    // SAFETY: the stream lives.
    unsafe { capture.begin_capture(of_two.handle(), CaptureMode::Global) }.unwrap();
    let memory = two.allocate(40 * MIB, &of_two).unwrap();
    assert!(soon(|| one.reserved_bytes() == 22 * MIB));
    // SAFETY: the stream lives, and captures.
    let graph = unsafe { capture.end_capture(of_two.handle()) }.expect("the capture is intact");
    drop((memory, keeps));
    let _ = graph;
}

#[test]
fn a_request_that_would_fail_waits_for_a_release_behind_queued_work() {
    let _only = ONE_RELEASE.lock().unwrap_or_else(PoisonError::into_inner);
    let card = Card::new(64);
    let device = device(&card);
    let (one, of_one) = allocator(&device, RECLAIM);
    let (two, of_two) = allocator(&device, RECLAIM);
    drop(one.allocate(48 * MIB, &of_one).unwrap());
    let hold = device.hold(of_one.handle()).unwrap();
    thread::scope(|scope| {
        let request = scope.spawn(|| two.allocate(40 * MIB, &of_two).map(drop));
        thread::sleep(Duration::from_millis(400));
        drop(hold);
        request.join().unwrap().expect("the neighbour said that it works");
    });
}

#[test]
fn a_release_behind_work_that_does_not_end_is_waited_for_some_seconds() {
    let _only = ONE_RELEASE.lock().unwrap_or_else(PoisonError::into_inner);
    let card = Card::new(64);
    let device = device(&card);
    let (one, of_one) = allocator(&device, RECLAIM);
    let (two, of_two) = allocator(&device, RECLAIM);
    drop(one.allocate(48 * MIB, &of_one).unwrap());
    let hold = device.hold(of_one.handle()).unwrap();
    let begun = Instant::now();
    assert!(matches!(two.allocate(40 * MIB, &of_two), Err(Error::OutOfMemory(_))));
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
    drop(hold);
    assert!(soon(|| two.allocate(40 * MIB, &of_two).is_ok()), "the release that was begun ends now");
}

#[test]
fn memory_that_another_frees_during_any_step_serves_the_request() {
    let _only = ONE_RELEASE.lock().unwrap_or_else(PoisonError::into_inner);
    for nth in 0..20 {
        let card = Card::new(64);
        let device = device(&card);
        let (one, of_one) = allocator(&device, RECLAIM);
        let (two, of_two) = allocator(&device, &format!("{RECLAIM},expandable_segments:False"));
        let held = Arc::new(Mutex::new(Some(one.allocate(40 * MIB, &of_one).unwrap())));
        let (waits, freed) = (AtomicU64::new(0), Arc::clone(&held));
        two.on_notice(move |notice| {
            if matches!(notice, Notice::Waited { .. }) && waits.fetch_add(1, SeqCst) == nth {
                freed.lock().unwrap().take();
                one.empty_cache().unwrap();
            }
        });
        assert_eq!(two.allocate(40 * MIB, &of_two).is_ok(), held.lock().unwrap().is_none(), "freed after wait {nth}");
        if held.lock().unwrap().is_some() {
            return assert!(nth > 2, "the request waited {nth} times");
        }
    }
}

#[test]
fn a_driver_that_keeps_a_part_of_its_free_memory_gets_more_of_others() {
    let _only = ONE_RELEASE.lock().unwrap_or_else(PoisonError::into_inner);
    let card = Card::new(512);
    let config = HostConfig::default().capacity(512 * MIB).shared(card.file());
    let device = HostBackend::new(config).unwrap().device(Ordinal(0)).unwrap();
    let (one, of_one) = allocator(&device, RECLAIM);
    let (two, _of_two) = allocator(&device, RECLAIM);
    drop(one.allocate(500 * MIB, &of_one).unwrap());
    let free = || device.memory_info().unwrap().free;
    let refuses = || if free() < 240 * MIB { Err(ErrorKind::OutOfMemory) } else { Ok(()) };
    let take = || refuses().map_err(|kind| cachette::hal::Error::new(kind, "allocate"));
    two.take_outside(OutsideKind::Device, 40 * MIB, take).expect("others gave enough");
    assert!(one.reserved_bytes() > 0, "and no more");
}

#[test]
fn a_dropped_allocator_is_not_asked() {
    let _only = ONE_RELEASE.lock().unwrap_or_else(PoisonError::into_inner);
    let card = Card::new(64);
    let device = device(&card);
    let (one, of_one) = allocator(&device, RECLAIM);
    let (two, of_two) = allocator(&device, RECLAIM);
    drop(one.allocate(48 * MIB, &of_one).unwrap());
    drop((one, of_one));
    assert!(two.allocate(70 * MIB, &of_two).is_err());
    let memory = two.allocate(60 * MIB, &of_two).unwrap();
    assert!(soon(|| two.allocate(40 * MIB, &of_two).is_err()));
    drop(memory);
}

#[test]
fn processes_with_devices_of_their_own_never_meet() {
    let _only = ONE_RELEASE.lock().unwrap_or_else(PoisonError::into_inner);
    let alone = HostBackend::new(HostConfig::default().capacity(64 * MIB)).unwrap().device(Ordinal(0)).unwrap();
    let (one, of_one) = allocator(&alone, RECLAIM);
    let (two, of_two) = allocator(&alone, RECLAIM);
    drop(one.allocate(48 * MIB, &of_one).unwrap());
    assert!(two.allocate(40 * MIB, &of_two).is_err());
    assert_eq!((two.stats().num_reclaims, one.reserved_bytes()), (0, 48 * MIB));
    assert_eq!(two.device().memory_info().unwrap().free, 16 * MIB);
}
