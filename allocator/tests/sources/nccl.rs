//! NCCL's and RCCL's memory, over the fake.

use cachette::hal::{Ordinal, StreamRef, Vendor};
use cachette::source::{AllocContext, Nccl, Source, SourceErrorKind};

use super::HERE;
use super::fake::second_process;

#[test]
fn nccl_makes_memory_on_the_place_and_leaves_the_current_device_alone() {
    let name = "nccl::nccl_makes_memory_on_the_place_and_leaves_the_current_device_alone";
    second_process(name, &[], |fake| {
        let source = Nccl::load(Vendor::Nvidia).unwrap();
        assert_eq!((source.name(), source.version()), ("NCCL", Some(22705)));
        let second = AllocContext::new(Ordinal(1), StreamRef::DEFAULT);
        for place in [HERE, second, HERE] {
            // SAFETY: 1. the default stream.
            let ptr = unsafe { source.allocate(2 << 20, &place) }.unwrap();
            assert_eq!(fake.asked("fake_made_on").unsigned_abs(), place.device.0);
            assert_eq!(fake.asked("fake_live"), 1);
            // SAFETY: 1. it came from there. 2. nobody uses it.
            unsafe { source.free(ptr, 2 << 20, &place) }.unwrap();
            assert_eq!((fake.asked("fake_live"), fake.asked("fake_depth")), (0, 0));
        }
        assert_eq!(fake.asked("fake_retained"), 2, "one context a device, once");
        drop(source);
        assert_eq!(fake.asked("fake_retained"), 0);
    });
}

#[test]
fn rccl_has_the_same_functions() {
    second_process("nccl::rccl_has_the_same_functions", &[], |fake| {
        let source = Nccl::load(Vendor::Amd).unwrap();
        assert_eq!(source.name(), "RCCL");
        let second = AllocContext::new(Ordinal(1), StreamRef::DEFAULT);
        // SAFETY: 1. the default stream.
        let ptr = unsafe { source.allocate(2 << 20, &second) }.unwrap();
        assert_eq!((fake.asked("fake_made_on"), fake.asked("fake_hip_device")), (1, 0));
        // SAFETY: 1. it came from there. 2. nobody uses it.
        unsafe { source.free(ptr, 2 << 20, &second) }.unwrap();
        assert_eq!((fake.asked("fake_live"), fake.asked("fake_hip_device")), (0, 0));
    });
}

#[test]
fn want_of_memory_is_told_apart() {
    let settings = [("FAKE_FULL", "1")];
    second_process("nccl::want_of_memory_is_told_apart", &settings, |fake| {
        let source = Nccl::load(Vendor::Nvidia).unwrap();
        // SAFETY: 1. the default stream.
        let error = unsafe { source.allocate(4096, &HERE) }.unwrap_err();
        assert_eq!(error.kind(), SourceErrorKind::OutOfMemory);
        assert_eq!(
            error.text(),
            "ncclMemAlloc failed for 4096 bytes: status 1, unhandled cuda error, \
             Cuda failure 2 'out of memory'"
        );
        assert_eq!(fake.asked("fake_depth"), 0);
    });
}

#[test]
fn a_free_that_fails_says_why() {
    let settings = [("FAKE_STUCK", "1")];
    second_process("nccl::a_free_that_fails_says_why", &settings, |fake| {
        let source = Nccl::load(Vendor::Nvidia).unwrap();
        // SAFETY: 1. the default stream.
        let ptr = unsafe { source.allocate(4096, &HERE) }.unwrap();
        // SAFETY: 1. it came from there. 2. nobody uses it.
        let error = unsafe { source.free(ptr, 4096, &HERE) }.unwrap_err();
        let text = "ncclMemFree failed: status 5, invalid usage, the memory is registered";
        assert_eq!((error.kind(), error.text()), (SourceErrorKind::Other, text));
        assert_eq!((fake.asked("fake_live"), fake.asked("fake_depth")), (1, 0));
    });
}

#[test]
fn unaligned_memory_goes_back() {
    let settings = [("FAKE_SHIFT", "16")];
    second_process("nccl::unaligned_memory_goes_back", &settings, |fake| {
        let source = Nccl::load(Vendor::Nvidia).unwrap();
        // SAFETY: 1. the default stream.
        let error = unsafe { source.allocate(4096, &HERE) }.unwrap_err();
        assert!(error.text().ends_with("it was given back"), "{error}");
        assert_eq!((fake.asked("fake_total"), fake.asked("fake_live")), (1, 0));
    });
}

#[test]
fn a_device_that_is_not_there_is_told() {
    second_process("nccl::a_device_that_is_not_there_is_told", &[], |fake| {
        let source = Nccl::load(Vendor::Nvidia).unwrap();
        let third = AllocContext::new(Ordinal(2), StreamRef::DEFAULT);
        // SAFETY: 1. the default stream.
        let error = unsafe { source.allocate(4096, &third) }.unwrap_err();
        let text = "the device cannot be made current: cuDeviceGet failed with status 101";
        assert_eq!(error.text(), text);
        assert_eq!(fake.asked("fake_total"), 0);
    });
}
