//! Failures reach C++ as PyTorch's own exceptions.

use std::ptr;

use cachette_torch::{Slot, SlotOptions, cachette_torch_alloc};

use super::Case;
use super::bed::{self, MIB};
use super::cpp::{Caller, Outcome};

pub(crate) const CASES: &[Case] = &[
    (
        "m18_exhaustion_is_thrown_as_out_of_memory_error",
        out_of_memory,
    ),
    (
        "s3_more_than_any_device_has_is_thrown_as_out_of_memory_error",
        too_large,
    ),
    ("other_failures_are_thrown_as_error", other),
    (
        "without_the_class_exhaustion_is_thrown_as_error",
        without_class,
    ),
    ("in_a_forked_child_the_error_says_what_to_do", forked),
    ("a_slot_throws_nothing", slot),
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
    let Some(caller) = started(true) else {
        return;
    };
    for _ in 0..100 {
        let thrown = allocate(&caller, 300 * MIB, 1).unwrap_err();
        let Outcome::OutOfMemory(text) = thrown else {
            panic!("{thrown:?}");
        };
        let head = "Host out of memory. Tried to allocate 300.00 MiB. In full: out of memory on device 1: ";
        assert!(text.starts_with(head), "{text}");
        assert!(
            text.contains("of its 256.00 MiB 256.00 MiB are free"),
            "{text}"
        );
        assert_eq!(caller.live_errors(), 0, "each is destroyed once");
    }
    assert_eq!(
        allocate(&caller, 100 * MIB, 1),
        Ok(()),
        "all is usable after"
    );
}

fn too_large() {
    let Some(caller) = started(true) else {
        return;
    };
    let thrown = allocate(&caller, 1 << 60, 0).unwrap_err();
    let Outcome::OutOfMemory(text) = thrown else {
        panic!("{thrown:?}");
    };
    let head = "Host out of memory. Tried to allocate more than 1EB memory.";
    assert!(text.starts_with(head), "{text}");
}

fn other() {
    let Some(caller) = started(true) else {
        return;
    };
    let thrown = allocate(&caller, MIB, 5).unwrap_err();
    let text = "there is no device host:5; it has 2 devices, numbers 0 to 1";
    assert_eq!(thrown, Outcome::Error(text.into()));
    assert_eq!(caller.live_errors(), 0);
}

fn without_class() {
    let Some(caller) = started(false) else {
        return;
    };
    let thrown = allocate(&caller, 300 * MIB, 0).unwrap_err();
    let Outcome::Error(text) = thrown else {
        panic!("{thrown:?}");
    };
    assert!(text.starts_with("Host out of memory."), "{text}");
    assert_eq!(caller.live_errors(), 0);
}

fn forked() {
    let Some(caller) = started(true) else {
        return;
    };
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

fn slot() {
    let Some(caller) = started(true) else {
        return;
    };
    // SAFETY: 1. the device's own memory is given out.
    let slot = unsafe { Slot::create(SlotOptions::default()) }.unwrap();
    let allocate = super::slots::allocate_function(&slot);
    let most = caller.allocate(allocate, 300 << 20, 0, ptr::null_mut());
    assert_eq!(most, Ok(ptr::null_mut()));
}
