//! Contents that a sleeping pool keeps: they can be read, and moved to a file that a wake trusts only if it is whole.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use cachette::Label;
use cachette::hal::Device;
use cachette::pool::PoolProblem;
use cachette::sleep::Contents;
use cachette_hal_host::HostConfig;

use crate::fixture::{Allocation, ELASTIC, MIB, Pool, Stream, TestAllocator};
use crate::sleep::problem;

/// A pool that sleeps, with memory that is filled with 7 and then 9.
fn asleep() -> (TestAllocator, Stream, Pool, [Allocation; 2]) {
    let test = TestAllocator::checked(HostConfig::default(), ELASTIC);
    let stream = test.stream();
    let pool = test.allocator.create_pool();
    let memory = [7, 9].map(|byte| {
        let memory = pool.allocate(3 * MIB, &stream).expect("there is room");
        test.fill(&memory, byte, &stream);
        memory
    });
    pool.sleep(Contents::Keep).expect("it can sleep");
    (test, stream, pool, memory)
}

fn read(pool: &Pool, address: u64, bytes: usize) -> Option<Vec<u8>> {
    let mut into = vec![1; bytes];
    pool.read_contents(address, &mut into).expect("it sleeps").then_some(into)
}

/// The path by which this process can open the one unnamed file in a folder.
fn unnamed(folder: &Path) -> PathBuf {
    let open = fs::read_dir("/proc/self/fd").expect("the process has files");
    let paths = open.map(|entry| entry.expect("it can be read").path());
    let mut found = paths.filter(|path| fs::read_link(path).is_ok_and(|target| target.starts_with(folder)));
    found.next().expect("the contents are in a file")
}

#[test]
fn contents_of_a_sleeping_pool_can_be_read() {
    let (test, stream, pool, [first, second]) = asleep();
    assert_eq!(read(&pool, first.address(), 3 << 20), Some(vec![7; 3 << 20]));
    assert_eq!(read(&pool, second.address() + 5, 100), Some(vec![9; 100]));
    assert_eq!(read(&pool, second.address() + (3 << 20) - 5, 100), None, "beyond the memory");
    assert_eq!(read(&pool, 512, 1), None);
    let place = first.address();
    drop(first);
    pool.wake().expect("there is room");
    assert_eq!(problem(pool.read_contents(place, &mut [0])), PoolProblem::Awake);
    test.assert_returns_everything_after((second, pool, stream));
}

#[test]
fn contents_leave_the_host_and_come_back_from_a_file() {
    let folder = tempfile::tempdir().expect("there is a folder");
    let (test, stream, pool, memory) = asleep();
    let freed = pool.spill_contents(folder.path()).expect("there is room");
    assert!(freed >= 6 * MIB);
    assert_eq!(pool.spill_contents(folder.path()), Ok(0), "they are there already");
    assert_eq!(fs::read_dir(folder.path()).expect("it is a folder").count(), 0, "the file has no name");
    assert!(fs::metadata(unnamed(folder.path())).is_ok_and(|file| file.len() >= 6 * MIB));
    assert_eq!(read(&pool, 512, 1), None);
    assert_eq!(pool.spill_contents(folder.path()), Ok(0), "nothing was read for an address of others");
    assert_eq!(read(&pool, memory[1].address(), 10), Some(vec![9; 10]));
    assert_eq!(pool.spill_contents(folder.path()), Ok(freed), "a read has brought them back");
    pool.wake().expect("there is room");
    for (memory, byte) in memory.iter().zip([7, 9]) {
        assert_eq!(test.content(memory, &stream), Some(byte));
    }
    assert_eq!(problem(pool.spill_contents(folder.path())), PoolProblem::Awake);
    test.assert_returns_everything_after((memory, pool, stream));
}

#[test]
fn a_damaged_file_wakes_nothing_and_a_whole_one_does() {
    let folder = tempfile::tempdir().expect("there is a folder");
    let (test, stream, pool, memory) = asleep();
    pool.spill_contents(folder.path()).expect("there is room");
    let path = unnamed(folder.path());
    let mut file = OpenOptions::new().read(true).write(true).open(path).expect("it is open");
    let mut whole = Vec::new();
    file.read_to_end(&mut whole).expect("it can be read");
    let mut put = |bytes: &[u8]| {
        file.set_len(0).expect("it can be cut");
        file.seek(SeekFrom::Start(0)).expect("it is a file");
        file.write_all(bytes).expect("there is room");
    };
    let mut changed = whole.clone();
    changed[5] ^= 1;
    for (bytes, kind) in [(&whole[..100], ErrorKind::UnexpectedEof), (&changed[..], ErrorKind::InvalidData)] {
        put(bytes);
        assert_eq!(problem(pool.wake()), PoolProblem::File { kind });
        assert!(pool.is_asleep() && pool.stats().reserved_bytes == 0);
        assert_eq!(problem(pool.read_contents(memory[0].address(), &mut [0])), PoolProblem::File { kind });
    }
    put(&whole);
    pool.wake().expect("it is whole");
    assert_eq!(test.content(&memory[1], &stream), Some(9));
    // A pool whose memory is freed needs no file.
    pool.sleep(Contents::Keep).expect("it can sleep");
    pool.spill_contents(folder.path()).expect("there is room");
    let file = OpenOptions::new().write(true).open(unnamed(folder.path())).expect("it is open");
    file.set_len(0).expect("it can be cut");
    drop(memory);
    pool.wake().expect("nothing is needed");
    test.assert_returns_everything_after((pool, stream));
}

#[test]
fn a_folder_that_takes_no_file_leaves_the_contents_on_the_host() {
    let (test, stream, pool, memory) = asleep();
    let nowhere = Path::new("/none/such");
    assert_eq!(problem(pool.spill_contents(nowhere)), PoolProblem::File { kind: ErrorKind::NotFound });
    pool.wake().expect("there is room");
    assert_eq!(test.content(&memory[0], &stream), Some(7));
    test.assert_returns_everything_after((memory, pool, stream));
}

#[test]
fn after_a_sleep_one_sees_who_holds_the_rest() {
    let test = TestAllocator::on(HostConfig::default().capacity(1 << 30), ELASTIC);
    let stream = test.stream();
    let pool = test.allocator.create_pool();
    let weights = pool.allocate(20 * MIB, &stream).expect("there is room");
    let held = test.allocate(6 * MIB, &stream);
    // SAFETY: 1. 2. the stream is the allocator's, and lives as long as it.
    let named =
        unsafe { test.allocator.allocate_raw_as(4 * MIB, stream.handle(), Label::TORCH) }.expect("there is room");
    drop(test.allocate(8 * MIB, &stream));
    let outside = test.device.allocate(32 * MIB).expect("there is room");
    pool.sleep(Contents::Keep).expect("it can sleep");
    let left = test.allocator.memory_holders();
    assert_eq!(left.by_label, [("", 6 * MIB), ("torch", 4 * MIB)]);
    assert_eq!(left.cached, test.allocator.reserved_bytes() - 10 * MIB);
    assert_eq!(left.outside, Some(32 * MIB));
    pool.wake().expect("there is room");
    assert_eq!(test.allocator.memory_holders().by_label, [("", 26 * MIB), ("torch", 4 * MIB)]);
    // SAFETY: 1. 2. it was allocated above, and nothing uses it.
    unsafe { test.device.free(outside) }.expect("it is live");
    test.allocator.free_raw(named).expect("it is live");
    drop((weights, held));
}
