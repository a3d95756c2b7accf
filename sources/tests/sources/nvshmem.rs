//! NVSHMEM's memory, over the fake, which the tests initialise as a program would.

use cachette::hal::{Ordinal, StreamRef};
use cachette::source::{ALIGNMENT, AllocContext, SourceErrorKind};
use cachette_sources::Nvshmem;

use super::fake::{Fake, second_process};
use super::{HERE, allocate, free};

const SECOND: AllocContext = AllocContext::new(Ordinal(1), StreamRef::DEFAULT);

/// The source, after the fake was initialised for device 0.
fn start(fake: &Fake) -> Nvshmem {
    fake.count("fake_start");
    // SAFETY: 1. the line above.
    unsafe { Nvshmem::adopt(Ordinal(0)) }.expect("the fake has started")
}

#[test]
fn a_started_library_is_adopted() {
    second_process("nvshmem::a_started_library_is_adopted", &[], |fake| {
        // SAFETY: it is refused before the promise counts.
        let early = unsafe { Nvshmem::adopt(Ordinal(1)) }.unwrap_err();
        assert!(early.to_string().contains("is not initialised; initialise NVSHMEM in the program first"), "{early}");
        fake.count("fake_start");
        // SAFETY: 1. the line above.
        let source = unsafe { Nvshmem::adopt(Ordinal(1)) }.unwrap();
        let ptr = allocate(&source, 2 << 20, &SECOND).unwrap();
        assert_eq!(fake.count("fake_live"), 1);
        free(&source, ptr, 2 << 20, &SECOND).unwrap();
        assert_eq!(fake.count("fake_live"), 0);
    });
}

#[test]
fn requests_after_finalisation_or_for_other_devices_fail() {
    let name = "nvshmem::requests_after_finalisation_or_for_other_devices_fail";
    second_process(name, &[], |fake| {
        let source = start(fake);
        let error = allocate(&source, 4096, &SECOND).unwrap_err();
        assert_eq!(error.text(), "NVSHMEM serves device 0 in this process, not device 1");
        fake.count("fake_end");
        let error = allocate(&source, 4096, &HERE).unwrap_err();
        assert_eq!(error.text(), "NVSHMEM was finalised by other code");
        assert_eq!(fake.count("fake_total"), 0);
    });
}

#[test]
fn out_of_memory_has_its_kind() {
    let settings = [("FAKE_FULL", "1")];
    second_process("nvshmem::out_of_memory_has_its_kind", &settings, |fake| {
        let source = start(fake);
        let error = allocate(&source, 4096, &HERE).unwrap_err();
        assert_eq!(error.kind(), SourceErrorKind::OutOfMemory);
    });
}

#[test]
fn unaligned_memory_is_allocated_again_with_an_alignment() {
    let settings = [("FAKE_SHIFT", "16")];
    let name = "nvshmem::unaligned_memory_is_allocated_again_with_an_alignment";
    second_process(name, &settings, |fake| {
        let source = start(fake);
        let ptr = allocate(&source, 4096, &HERE).unwrap();
        assert_eq!(ptr.address() % ALIGNMENT, 0);
        assert_eq!((fake.count("fake_total"), fake.count("fake_live")), (2, 1));
    });
}

#[test]
fn threads_call_the_library_one_at_a_time() {
    second_process("nvshmem::threads_call_the_library_one_at_a_time", &[], |fake| {
        let source = start(fake);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..100 {
                        let ptr = allocate(&source, 512, &HERE).unwrap();
                        free(&source, ptr, 512, &HERE).unwrap();
                    }
                });
            }
        });
        assert_eq!((fake.count("fake_total"), fake.count("fake_live")), (400, 0));
    });
}
