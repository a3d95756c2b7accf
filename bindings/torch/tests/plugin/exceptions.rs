//! Failures reach C++ as PyTorch's own exceptions.

use std::ptr;

use cachette_torch::cachette_torch_alloc;

use super::Case;
use super::bed::{self, MIB};
use super::cpp::{Caller, Folder, Outcome};

pub(crate) const CASES: &[Case] = &[
    ("m18_exhaustion_is_thrown_as_out_of_memory_error", out_of_memory),
    ("s3_more_than_any_device_has_is_thrown_as_out_of_memory_error", too_large),
    ("m20_every_figure_of_pytorch_is_in_its_sentences", figures),
    ("m20_processes_that_use_the_device_are_named", processes),
    ("other_failures_are_thrown_as_error", other),
    ("without_the_class_exhaustion_is_thrown_as_error", without_class),
    ("libraries_of_distributions_are_found_by_their_stem", of_distribution),
    ("without_pytorchs_exceptions_a_standard_one_is_thrown", alone),
    ("in_a_forked_child_the_error_says_what_to_do", forked),
];

fn started(with_device: bool) -> Option<Caller> {
    let caller = Caller::new(with_device)?;
    bed::start("");
    Some(caller)
}

fn allocate(caller: &Caller, bytes: u64, device: i32) -> Result<(), Outcome> {
    let bytes = usize::try_from(bytes).expect("sizes have 64 bits");
    let memory = caller.allocate(cachette_torch_alloc, bytes, device, ptr::null_mut())?;
    assert!(!memory.is_null());
    Ok(())
}

fn out_of_memory() {
    let Some(caller) = started(true) else { return };
    for _ in 0..100 {
        let thrown = allocate(&caller, 300 * MIB, 1).unwrap_err();
        let Outcome::OutOfMemory(text) = thrown else {
            panic!("{thrown:?}");
        };
        let head = "Host out of memory. Tried to allocate 300.00 MiB. GPU 1 has a total capacity of 256.00 MiB of which \
                    256.00 MiB is free. Of the allocated memory 0 bytes is allocated by PyTorch, and 0 bytes is reserved by \
                    PyTorch but unallocated. Cachette: out of memory on device 1: ";
        assert!(text.starts_with(head), "{text}");
        assert!(text.contains("of its 256.00 MiB 256.00 MiB are free"), "{text}");
        assert_eq!(caller.live_errors(), 0, "each is destroyed once");
    }
    assert_eq!(allocate(&caller, 100 * MIB, 1), Ok(()), "all is usable after");
}

fn too_large() {
    let Some(caller) = started(true) else { return };
    let thrown = allocate(&caller, 1 << 60, 0).unwrap_err();
    let Outcome::OutOfMemory(text) = thrown else {
        panic!("{thrown:?}");
    };
    let head = "Host out of memory. Tried to allocate more than 1EB memory.";
    assert!(text.starts_with(head), "{text}");
}

/// What `text` says up to the allocator's own words.
fn sentences(thrown: Outcome) -> String {
    let Outcome::OutOfMemory(text) = thrown else {
        panic!("{thrown:?}");
    };
    let own = text.find("Cachette: ").expect("the allocator's words follow");
    text[..own].to_owned()
}

fn figures() {
    let Some(caller) = Caller::new(true) else { return };
    bed::start("memory_limit:128M");
    let kept = bed::allocate(30 * MIB, 0, bed::DEFAULT);
    assert!(!kept.is_null());
    assert_eq!(super::pools::begin(0, super::pools::POOL), ());
    bed::free(bed::allocate(20 * MIB, 0, bed::DEFAULT), 0);
    super::pools::end(0, super::pools::POOL);
    assert_eq!(
        sentences(allocate(&caller, 800_000_000 << 30, 0).unwrap_err()),
        "Host out of memory. Tried to allocate 800000000.00 GiB. GPU 0 has a total capacity of 256.00 MiB of which \
         206.00 MiB is free. 128.00 MiB allowed; Of the allocated memory 50.00 MiB is allocated by PyTorch, with 20.00 MiB \
         allocated in private pools (e.g., CUDA Graphs), and 0 bytes is reserved by PyTorch but unallocated. "
    );
}

fn processes() {
    let (Some(caller), Some(folder)) = (started(true), Folder::new()) else { return };
    let library = folder.build("libnvidia-ml.so.1", NVML, &[]);
    super::cpp::load(&library);
    let text = sentences(allocate(&caller, 300 * MIB, 0).unwrap_err());
    let used = "is free. Including non-PyTorch memory, this process has 2.00 GiB memory in use. Process 4241 has 3.00 MiB \
                memory in use. ";
    assert!(text.contains(used), "{text}");
    assert!(text.contains("Process 4259 has 3.00 MiB memory in use. Of the allocated"), "{text}");
    assert!(!text.contains("Process 4242"), "its use is not told: {text}");
}

/// A library with twenty processes, of which the third has an unknown use.
const NVML: &str = r#"
#include <string.h>
#include <unistd.h>
#define OPEN extern "C" __attribute__((visibility("default"))) int
struct Process { unsigned id; unsigned long long bytes; };
OPEN nvmlInit_v2() { return 0; }
OPEN nvmlDeviceGetHandleByUUID(const char* name, void** device) {
  *device = (void*)&nvmlInit_v2;
  return strcmp(name, "GPU-63616368-6574-7465-686f-737400000000") == 0 ? 0 : 6;
}
OPEN nvmlDeviceGetComputeRunningProcesses(void* device, unsigned* count, Process* room) {
  if (device != (void*)&nvmlInit_v2) return 2;
  unsigned given = *count;
  *count = 20;
  if (given < 20) return 7;
  for (unsigned each = 0; each < 20; each++) room[each] = {4240 + each, 3 << 20};
  room[0] = {(unsigned)getpid(), 2ull << 30};
  room[2].bytes = ~0ull;
  return 0;
}
"#;

fn other() {
    let Some(caller) = started(true) else { return };
    let thrown = allocate(&caller, MIB, 5).unwrap_err();
    let text = "there is no device host:5; it has 2 devices, numbers 0 to 1";
    assert_eq!(thrown, Outcome::Error(text.into()));
    assert_eq!(caller.live_errors(), 0);
}

fn without_class() {
    let Some(caller) = started(false) else { return };
    let thrown = allocate(&caller, 300 * MIB, 0).unwrap_err();
    let Outcome::Error(text) = thrown else {
        panic!("{thrown:?}");
    };
    assert!(text.starts_with("Host out of memory."), "{text}");
    assert_eq!(caller.live_errors(), 0);
}

fn of_distribution() {
    let Some(caller) = Caller::of_distribution() else { return };
    bed::start("");
    let thrown = allocate(&caller, 300 * MIB, 1).unwrap_err();
    assert!(matches!(thrown, Outcome::OutOfMemory(_)), "{thrown:?}");
    assert_eq!(caller.live_errors(), 0);
}

fn alone() {
    let Some(caller) = Caller::alone() else { return };
    bed::start("");
    let thrown = allocate(&caller, 300 * MIB, 0).unwrap_err();
    let Outcome::Foreign(text) = thrown else {
        panic!("{thrown:?}");
    };
    assert!(text.starts_with("Host out of memory."), "{text}");
}

fn forked() {
    let Some(caller) = started(true) else { return };
    assert_eq!(allocate(&caller, MIB, 0), Ok(()));
    super::forks::in_child(|| {
        let thrown = allocate(&caller, MIB, 0).unwrap_err();
        let Outcome::Error(text) = thrown else {
            panic!("{thrown:?}");
        };
        assert!(text.contains("'spawn'"), "{text}");
    });
    assert_eq!(allocate(&caller, MIB, 0), Ok(()), "the parent goes on");
}
