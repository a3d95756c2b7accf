//! Addresses that a process saves, and another one restores: on host memory, and over the emulated libraries.
//!
//! Each process is this program again: [`role`] runs what the variable says.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use cachette::addresses::Addresses;
use cachette::hal::DevicePtr;
use cachette::{Allocator, Backends, Stream};
use cachette_emulated_hip::{Personality, install};

const ROLE: &str = "CACHETTE_TEST_ROLE";
const MIB: u64 = 1 << 20;
const SIZES: [u64; 6] = [3 * MIB, 512, 20 * MIB, 4096, 7 * MIB, 1000];

/// A device of a new process: its name, and the variables that lead to its library.
struct Place {
    target: &'static str,
    variables: Vec<(&'static str, PathBuf)>,
}

impl Place {
    fn host() -> Self {
        Self { target: "host", variables: Vec::new() }
    }

    fn cuda() -> Self {
        let program = env::current_exe().unwrap();
        let library = "libcachette_emulated_cuda.so";
        let built = program.ancestors().skip(1).take(2).map(|folder| folder.join(library)).find(|file| file.exists());
        Self { target: "cuda:0", variables: vec![("CACHETTE_CUDA_LIBRARY", built.unwrap())] }
    }

    fn hip(version: Personality) -> Self {
        Self { target: "hip:0", variables: vec![("CACHETTE_HIP_LIBRARY", install(version).unwrap())] }
    }

    fn all() -> impl Iterator<Item = Self> {
        [Self::host(), Self::cuda()].into_iter().chain(Personality::ALL.into_iter().map(Self::hip))
    }

    /// Runs this program in a role, with a file.
    fn run(&self, role: &str, file: &Path, variables: &[(&str, &str)]) -> Output {
        let mut command = Command::new(env::current_exe().unwrap());
        command.args(["--exact", "role", "--ignored", "--nocapture"]);
        command.env(ROLE, format!("{role} {} {}", self.target, file.display()));
        command.env("CACHETTE_EMULATED_CAPACITY", (512 * MIB).to_string());
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command.envs(variables.iter().copied()).output().unwrap()
    }

    /// Runs a role that must succeed.
    fn must(&self, role: &str, file: &Path) {
        let output = self.run(role, file, &[]);
        assert!(output.status.success(), "{role} {}: {}", self.target, String::from_utf8_lossy(&output.stderr));
    }

    /// A restore that must fail, after which the process goes on. Returns the error.
    fn refused(&self, file: &Path, variables: &[(&str, &str)]) -> String {
        let output = self.run("refused", file, variables);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{}: {text} {}", self.target, String::from_utf8_lossy(&output.stderr));
        text
    }
}

#[test]
#[ignore = "the other tests start it in new processes"]
fn role() {
    let words = env::var(ROLE).unwrap();
    let [role, target, file] = words.splitn(3, ' ').collect::<Vec<_>>()[..] else { panic!("{words}") };
    let allocator = Allocator::new(Backends::open(target).unwrap());
    let stream = allocator.create_stream().unwrap();
    match role {
        "save" => save(&allocator, &stream, file),
        "restore" => restore(&allocator, &stream, file),
        "refused" => refused(&allocator, &stream, file),
        "taken" => {
            let saved = Addresses::read_from(file).unwrap();
            let (memory, first) = (allocator.device().virtual_memory().unwrap(), saved.segments()[0]);
            let taken = memory.reserve(first.bytes, DevicePtr::new(first.base)).unwrap();
            assert_eq!(taken.address(), first.base, "nothing had them");
            refused(&allocator, &stream, file);
            // SAFETY: 1. it was reserved above, and nothing is mapped there.
            unsafe { memory.release(taken, first.bytes) }.unwrap();
            restore(&allocator, &stream, file);
        }
        _ => panic!("{role}"),
    }
}

/// Prints the error of a restore, and goes on.
fn refused(allocator: &Allocator, stream: &Stream, file: &str) {
    let before = allocator.reserved_bytes();
    let saved = Addresses::read_from(file);
    let error = saved.and_then(|saved| allocator.restore_addresses(&saved, stream).map(drop)).unwrap_err();
    println!("{error}");
    assert_eq!(allocator.reserved_bytes(), before);
    drop(allocator.allocate(30 * MIB, stream).unwrap());
    allocator.check().unwrap();
    allocator.empty_cache().unwrap();
}

fn save(allocator: &Allocator, stream: &Stream, file: &str) {
    let pool = allocator.create_capture_pool();
    let mut blocks: Vec<_> = SIZES.iter().map(|bytes| Some(pool.allocate(*bytes, stream).unwrap())).collect();
    blocks[3] = None;
    pool.save_addresses().unwrap().write_to(file).unwrap();
}

/// Restores, writes, and reads again after other allocations have come and gone.
fn restore(allocator: &Allocator, stream: &Stream, path: &str) {
    let saved = Addresses::read_from(path).unwrap();
    let (pool, blocks) = allocator.restore_addresses(&saved, stream).unwrap();
    let found: Vec<_> = blocks.iter().map(|it| (it.address(), it.bytes(), it.requested())).collect();
    let wanted: Vec<_> = saved.blocks().iter().map(|it| (it.address, it.bytes, it.requested)).collect();
    assert_eq!(found, wanted);
    assert_eq!(blocks.len(), SIZES.len() - 1);
    let transfer = allocator.device().transfer().unwrap();
    let fill = |at: u64, bytes, byte| {
        // SAFETY: 1. 3. the stream and the memory live until the stream has been waited for.
        unsafe { transfer.fill(DevicePtr::new(at).unwrap(), byte, bytes, stream.handle()) }.unwrap();
    };
    for (byte, (at, bytes, _)) in (1..).zip(&found) {
        fill(*at, *bytes, byte);
    }
    let others =
        SIZES.map(|bytes| [allocator.allocate(bytes, stream), pool.allocate(bytes, stream)].map(Result::unwrap));
    others.iter().flatten().for_each(|other| fill(other.address(), other.bytes(), 0xee));
    for (byte, (at, bytes, _)) in (1..).zip(&found) {
        let mut read = vec![0; usize::try_from(*bytes).unwrap()];
        let at = DevicePtr::new(*at).unwrap();
        // SAFETY: 1. 3. 4. all of it lives until the stream has been waited for.
        unsafe { transfer.download(read.as_mut_ptr(), at, read.len(), stream.handle()) }.unwrap();
        stream.synchronize().unwrap();
        assert!(read.iter().all(|read| *read == byte), "block {byte}");
    }
    drop((others, blocks, pool));
    allocator.check().unwrap();
    allocator.empty_cache().unwrap();
    assert_eq!(allocator.reserved_bytes(), 0);
}

fn file() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("addresses");
    (folder, path)
}

#[test]
fn what_a_process_saved_another_one_restores_and_writes_on_every_backend() {
    for place in Place::all() {
        let (_folder, file) = file();
        place.must("save", &file);
        place.must("restore", &file);
        place.must("restore", &file);
    }
}

#[test]
fn a_file_of_another_driver_is_refused_and_the_process_goes_on() {
    let (_folder, file) = file();
    Place::cuda().must("save", &file);
    let newer = Place::cuda().refused(&file, &[("CACHETTE_EMULATED_VERSION", "13000")]);
    assert!(newer.contains("the driver is 12.8, and here it is 13.0"), "{newer}");
    let vendor = Place::hip(Personality::V7_2).refused(&file, &[]);
    assert!(vendor.contains("the vendor is NVIDIA, and here it is AMD"), "{vendor}");
    Place::hip(Personality::V7_2).must("save", &file);
    let older = Place::hip(Personality::V6_4).refused(&file, &[]);
    assert!(older.contains("the driver is 7.2, and here it is 6.4"), "{older}");
}

#[test]
fn a_taken_address_names_the_mapping_and_is_restored_once_it_is_free() {
    for place in Place::all() {
        let (_folder, file) = file();
        place.must("save", &file);
        let output = place.run("taken", &file, &[]);
        let (told, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{}: {told} {errors}", place.target);
        let text = std::fs::read_to_string(&file).unwrap();
        let first = text.lines().find_map(|line| line.strip_prefix("segment 0x")).unwrap();
        let base = first.split(' ').next().unwrap();
        assert!(told.contains(&format!("the addresses 0x{base} to 0x")), "{told}");
        assert!(told.contains("are taken by the mapping \"") && told.contains("---p"), "{told}");
        assert!(told.contains("restore before anything else allocates on the device"), "{told}");
    }
}
