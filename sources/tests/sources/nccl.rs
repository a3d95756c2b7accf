//! NCCL's and RCCL's memory, over the fake.

use cachette::hal::{Ordinal, StreamRef, Vendor};
use cachette::source::{AllocContext, Source, SourceErrorKind};
use cachette_sources::Nccl;

use super::fake::second_process;
use super::{HERE, allocate, free};

#[test]
fn nccl_uses_the_requests_device_and_restores_the_current_one() {
    let name = "nccl::nccl_uses_the_requests_device_and_restores_the_current_one";
    second_process(name, &[], |fake| {
        let source = Nccl::load(Vendor::Nvidia).unwrap();
        assert_eq!((source.name(), source.version()), ("NCCL", Some(22705)));
        let second = AllocContext::new(Ordinal(1), StreamRef::DEFAULT);
        for context in [HERE, second, HERE] {
            let ptr = allocate(&source, 2 << 20, &context).unwrap();
            assert_eq!(fake.count("fake_made_on").unsigned_abs(), context.device.0);
            assert_eq!(fake.count("fake_live"), 1);
            free(&source, ptr, 2 << 20, &context).unwrap();
            assert_eq!((fake.count("fake_live"), fake.count("fake_depth")), (0, 0));
        }
        assert_eq!(fake.count("fake_retained"), 2, "each device's context is retained once");
        drop(source);
        assert_eq!(fake.count("fake_retained"), 0);
    });
}

#[test]
fn rccl_has_the_same_functions() {
    second_process("nccl::rccl_has_the_same_functions", &[], |fake| {
        let source = Nccl::load(Vendor::Amd).unwrap();
        assert_eq!(source.name(), "RCCL");
        let second = AllocContext::new(Ordinal(1), StreamRef::DEFAULT);
        let ptr = allocate(&source, 2 << 20, &second).unwrap();
        assert_eq!((fake.count("fake_made_on"), fake.count("fake_hip_device")), (1, 0));
        free(&source, ptr, 2 << 20, &second).unwrap();
        assert_eq!((fake.count("fake_live"), fake.count("fake_hip_device")), (0, 0));
    });
}

#[test]
fn out_of_memory_has_its_kind() {
    let settings = [("FAKE_FULL", "1")];
    second_process("nccl::out_of_memory_has_its_kind", &settings, |fake| {
        let source = Nccl::load(Vendor::Nvidia).unwrap();
        let error = allocate(&source, 4096, &HERE).unwrap_err();
        assert_eq!(error.kind(), SourceErrorKind::OutOfMemory);
        assert_eq!(
            error.text(),
            "ncclMemAlloc failed for 4096 bytes: status 1, unhandled cuda error, \
             Cuda failure 2 'out of memory'"
        );
        assert_eq!(fake.count("fake_depth"), 0);
    });
}

#[test]
fn a_failed_free_has_the_librarys_reason() {
    let settings = [("FAKE_STUCK", "1")];
    second_process("nccl::a_failed_free_has_the_librarys_reason", &settings, |fake| {
        let source = Nccl::load(Vendor::Nvidia).unwrap();
        let ptr = allocate(&source, 4096, &HERE).unwrap();
        let error = free(&source, ptr, 4096, &HERE).unwrap_err();
        let text = "ncclMemFree failed: status 5, invalid usage, the memory is registered";
        assert_eq!((error.kind(), error.text()), (SourceErrorKind::Other, text));
        assert_eq!((fake.count("fake_live"), fake.count("fake_depth")), (1, 0));
    });
}

#[test]
fn unaligned_memory_is_freed() {
    let settings = [("FAKE_SHIFT", "16")];
    second_process("nccl::unaligned_memory_is_freed", &settings, |fake| {
        let source = Nccl::load(Vendor::Nvidia).unwrap();
        let error = allocate(&source, 4096, &HERE).unwrap_err();
        assert!(error.text().ends_with("it was freed"), "{error}");
        assert_eq!((fake.count("fake_total"), fake.count("fake_live")), (1, 0));
    });
}

#[test]
fn a_missing_device_is_an_error() {
    second_process("nccl::a_missing_device_is_an_error", &[], |fake| {
        let source = Nccl::load(Vendor::Nvidia).unwrap();
        let third = AllocContext::new(Ordinal(2), StreamRef::DEFAULT);
        let error = allocate(&source, 4096, &third).unwrap_err();
        let text = "the device cannot be made current: cuDeviceGet failed with status 101";
        assert_eq!(error.text(), text);
        assert_eq!(fake.count("fake_total"), 0);
    });
}
