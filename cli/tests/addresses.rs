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
        let built = Path::new(env!("CARGO_BIN_EXE_cachette")).with_file_name("libcachette_emulated_cuda.so");
        assert!(built.exists(), "the library was built");
        Self { target: "cuda:0", variables: vec![("CACHETTE_CUDA_LIBRARY", built)] }
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

    /// Runs a role that must fail with an error, after which the process goes on. Returns the error.
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
        "refused" => {
            // The addresses of the first requests are likely those that were saved.
            let early = allocator.allocate(5 * MIB, &stream).unwrap();
            let saved = Addresses::read_from(file);
            let error = saved.and_then(|saved| allocator.restore_addresses(&saved, &stream).map(drop)).unwrap_err();
            println!("{error}");
            drop(early);
            // Only what is in the way was refused.
            drop(allocator.allocate(30 * MIB, &stream).unwrap());
            allocator.check().unwrap();
        }
        _ => panic!("{role}"),
    }
}

fn save(allocator: &Allocator, stream: &Stream, file: &str) {
    let pool = allocator.create_capture_pool();
    let mut blocks: Vec<_> = SIZES.iter().map(|bytes| Some(pool.allocate(*bytes, stream).unwrap())).collect();
    blocks[3] = None;
    pool.save_addresses().unwrap().write_to(file).unwrap();
}

/// Restores, writes, and reads again after other allocations have come and gone.
fn restore(allocator: &Allocator, stream: &Stream, file: &str) {
    let saved = Addresses::read_from(file).unwrap();
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
    let others = SIZES.map(|bytes| [allocator.allocate(bytes, stream), pool.allocate(bytes, stream)].map(Result::unwrap));
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
fn addresses_that_an_earlier_allocation_has_are_refused_and_the_process_goes_on() {
    // Saved from the default stream's first segment, so that the first allocation of the next process takes them.
    for place in Place::all() {
        let (_folder, file) = file();
        place.must("save", &file);
        let text = std::fs::read_to_string(&file).unwrap();
        let at = text.lines().find_map(|line| line.strip_prefix("segment ")).unwrap();
        let base = u64::from_str_radix(at.split(' ').next().unwrap().trim_start_matches("0x"), 16).unwrap();
        let output = place.run("refused", &file, &[]);
        let told = String::from_utf8_lossy(&output.stdout);
        // Where addresses differ from process to process nothing is taken, and the role finds no error.
        if output.status.success() {
            assert!(told.contains(&format!("the addresses {base:#x} to ")), "{told}");
            assert!(told.contains("of pool {0, 0} of this process; restore before anything else"), "{told}");
        }
    }
}
