//! NVSHMEM's memory, over the fake, which checks the structures of its arguments.

use cachette::hal::{Ordinal, StreamRef};
use cachette::source::{AllocContext, Source, SourceErrorKind};
use cachette_sources::{Nvshmem, NvshmemLibrary, NvshmemStatus, UniqueId};

use super::HERE;
use super::fake::second_process;

const SECOND: AllocContext = AllocContext::new(Ordinal(1), StreamRef::DEFAULT);

#[test]
fn one_process_initialises_allocates_and_finalises() {
    let name = "nvshmem::one_process_initialises_allocates_and_finalises";
    second_process(name, &[], |fake| {
        let source = Nvshmem::single(Ordinal(1)).unwrap();
        assert_eq!((source.rank(), source.device()), ((0, 1), Ordinal(1)));
        assert_eq!(source.library().status(), NvshmemStatus::Initialised);
        // SAFETY: 1. the default stream.
        let ptr = unsafe { source.allocate(2 << 20, &SECOND) }.unwrap();
        assert_eq!((fake.count("fake_made_on"), fake.count("fake_live")), (1, 1));
        // SAFETY: 1. it came from there. 2. no work uses it.
        unsafe { source.free(ptr, 2 << 20, &SECOND) }.unwrap();
        assert_eq!((fake.count("fake_live"), fake.count("fake_depth")), (0, 0));
        // SAFETY: 1. nothing is in use. 2. `single` made it.
        unsafe { source.close() }.unwrap();
        assert_eq!(NvshmemLibrary::find().unwrap().status(), NvshmemStatus::NotInitialised);
        assert_eq!(fake.count("fake_retained"), 0);
    });
}

#[test]
fn one_of_several_ranks_joins_by_the_bytes_of_an_id() {
    let name = "nvshmem::one_of_several_ranks_joins_by_the_bytes_of_an_id";
    second_process(name, &[], |_| {
        let library = NvshmemLibrary::find().unwrap();
        let sent = library.unique_id().unwrap().to_bytes();
        let id = UniqueId::from_bytes(&sent);
        let source = library.join(Ordinal(0), id, 2, 4).unwrap();
        assert_eq!(source.rank(), (2, 4));
    });
}

#[test]
fn a_rank_beyond_their_number_is_refused() {
    second_process("nvshmem::a_rank_beyond_their_number_is_refused", &[], |_| {
        let library = NvshmemLibrary::find().unwrap();
        let id = library.unique_id().unwrap();
        let error = library.join(Ordinal(0), id, 4, 4).unwrap_err();
        assert_eq!(error.text(), "there is no rank 4 of 4");
    });
}

#[test]
fn an_initialised_library_is_adopted_not_initialised_again() {
    let name = "nvshmem::an_initialised_library_is_adopted_not_initialised_again";
    second_process(name, &[], |fake| {
        // SAFETY: it is not initialised at all.
        let early = unsafe { Nvshmem::adopt(Ordinal(0)) }.unwrap_err();
        assert!(early.text().ends_with("is not initialised"), "{early}");
        let first = Nvshmem::single(Ordinal(0)).unwrap();
        let twice = Nvshmem::single(Ordinal(0)).unwrap_err();
        assert!(twice.to_string().ends_with("is initialised already; use `adopt`"), "{twice}");
        // SAFETY: 1. the line above.
        let second = unsafe { Nvshmem::adopt(Ordinal(0)) }.unwrap();
        drop(first);
        // SAFETY: 1. the default stream.
        let ptr = unsafe { second.allocate(4096, &HERE) }.unwrap();
        // SAFETY: 1. it came from there. 2. no work uses it.
        unsafe { second.free(ptr, 4096, &HERE) }.unwrap();
        assert_eq!(fake.count("fake_live"), 0);
    });
}

#[test]
fn a_library_without_a_device_is_not_initialised() {
    let settings = [("FAKE_DEAF", "1")];
    let name = "nvshmem::a_library_without_a_device_is_not_initialised";
    second_process(name, &settings, |_| {
        let error = Nvshmem::single(Ordinal(0)).unwrap_err();
        assert_eq!(error.kind(), SourceErrorKind::Unavailable);
        let text = "nvshmemx_hostlib_init_attr did not set up device 0 (status 0)";
        assert_eq!(error.text(), text);
    });
}

#[test]
fn requests_after_finalisation_or_for_other_devices_fail() {
    let name = "nvshmem::requests_after_finalisation_or_for_other_devices_fail";
    second_process(name, &[], |fake| {
        let source = Nvshmem::single(Ordinal(0)).unwrap();
        // SAFETY: 1. the default stream.
        let error = unsafe { source.allocate(4096, &SECOND) }.unwrap_err();
        assert_eq!(error.text(), "NVSHMEM serves device 0 in this process, not device 1");
        // SAFETY: 1. the first line.
        let other = unsafe { Nvshmem::adopt(Ordinal(0)) }.unwrap();
        // SAFETY: 1. nothing is in use. 2. `single` made it.
        unsafe { source.close() }.unwrap();
        // SAFETY: 1. the default stream.
        let error = unsafe { other.allocate(4096, &HERE) }.unwrap_err();
        assert_eq!(error.text(), "NVSHMEM was finalised by other code");
        assert_eq!(fake.count("fake_total"), 0);
    });
}

#[test]
fn out_of_memory_has_its_kind() {
    let settings = [("FAKE_FULL", "1")];
    second_process("nvshmem::out_of_memory_has_its_kind", &settings, |_| {
        let source = Nvshmem::single(Ordinal(0)).unwrap();
        // SAFETY: 1. the default stream.
        let error = unsafe { source.allocate(4096, &HERE) }.unwrap_err();
        assert_eq!(error.kind(), SourceErrorKind::OutOfMemory);
    });
}

#[test]
fn unaligned_memory_is_allocated_again_with_an_alignment() {
    let settings = [("FAKE_SHIFT", "16")];
    let name = "nvshmem::unaligned_memory_is_allocated_again_with_an_alignment";
    second_process(name, &settings, |fake| {
        let source = Nvshmem::single(Ordinal(0)).unwrap();
        // SAFETY: 1. the default stream.
        let ptr = unsafe { source.allocate(4096, &HERE) }.unwrap();
        assert_eq!(ptr.address() % source.alignment(), 0);
        assert_eq!((fake.count("fake_total"), fake.count("fake_live")), (2, 1));
    });
}

#[test]
fn threads_call_the_library_one_at_a_time() {
    second_process("nvshmem::threads_call_the_library_one_at_a_time", &[], |fake| {
        let source = Nvshmem::single(Ordinal(0)).unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..100 {
                        // SAFETY: 1. the default stream.
                        let ptr = unsafe { source.allocate(512, &HERE) }.unwrap();
                        // SAFETY: 1. it came from there. 2. no work uses it.
                        unsafe { source.free(ptr, 512, &HERE) }.unwrap();
                    }
                });
            }
        });
        assert_eq!((fake.count("fake_total"), fake.count("fake_live")), (400, 0));
    });
}
