//! NCCL's and RCCL's memory, over the fake.

use cachette::hal::Vendor;
use cachette::source::{Source, SourceErrorKind};
use cachette_sources::Nccl;

use super::fake::second_process;
use super::{HERE, allocate, free};

#[test]
fn nccl_and_rccl_have_the_same_functions() {
    second_process("nccl::nccl_and_rccl_have_the_same_functions", &[], |fake| {
        for (vendor, name) in [(Vendor::Nvidia, "NCCL"), (Vendor::Amd, "RCCL")] {
            let source = Nccl::load(vendor).unwrap();
            assert_eq!((source.name(), source.version()), (name, Some(22705)));
            let ptr = allocate(&source, 2 << 20, &HERE).unwrap();
            assert_eq!(fake.count("fake_live"), 1);
            free(&source, ptr, 2 << 20, &HERE).unwrap();
            assert_eq!(fake.count("fake_live"), 0);
        }
    });
}

#[test]
fn out_of_memory_has_its_kind() {
    let settings = [("FAKE_FULL", "1")];
    second_process("nccl::out_of_memory_has_its_kind", &settings, |_| {
        let source = Nccl::load(Vendor::Nvidia).unwrap();
        let error = allocate(&source, 4096, &HERE).unwrap_err();
        assert_eq!(error.kind(), SourceErrorKind::OutOfMemory);
        assert_eq!(
            error.text(),
            "ncclMemAlloc failed for 4096 bytes: status 1, unhandled cuda error, \
             Cuda failure 2 'out of memory'"
        );
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
        assert_eq!(fake.count("fake_live"), 1);
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
