//! Errors for missing libraries.

use cachette::hal::{Ordinal, Vendor};
use cachette::source::{SourceError, SourceErrorKind};
use cachette_sources::{Nccl, Nvshmem, Rocshmem};

const NOWHERE: &str = "/nowhere/libnothing.so";

/// The error has the names that were tried, why each failed, and what to do.
fn check(error: &SourceError, what: &str, variable: &str) {
    assert_eq!(error.kind(), SourceErrorKind::Unavailable);
    assert_eq!(
        error.to_string(),
        format!(
            "no library of {what} could be opened; tried {NOWHERE} (No such file or directory); \
             install {what}, or name its file in {variable}"
        )
    );
}

#[test]
fn the_error_for_an_absent_library_says_what_to_do() {
    // SAFETY: there is no such file.
    let nccl = unsafe { Nccl::open(Vendor::Nvidia, NOWHERE) }.unwrap_err();
    check(&nccl, "NCCL 2.19 or newer", "CACHETTE_NCCL_LIBRARY");
    // SAFETY: there is no such file.
    let rccl = unsafe { Nccl::open(Vendor::Amd, NOWHERE) }.unwrap_err();
    check(&rccl, "RCCL 2.19 or newer", "CACHETTE_RCCL_LIBRARY");
    // SAFETY: there is no such file.
    let nvshmem = unsafe { Nvshmem::open(NOWHERE, Ordinal(0)) }.unwrap_err();
    check(&nvshmem, "NVSHMEM 3", "CACHETTE_NVSHMEM_LIBRARY");
    // SAFETY: there is no such file.
    let rocshmem = unsafe { Rocshmem::open(NOWHERE, Ordinal(0)) }.unwrap_err();
    check(&rocshmem, "rocSHMEM", "CACHETTE_ROCSHMEM_LIBRARY");
}

#[test]
fn the_error_for_another_library_says_what_it_lacks() {
    // SAFETY: the C library's part for mathematics runs nothing harmful.
    let Err(nccl) = (unsafe { Nccl::open(Vendor::Nvidia, "libm.so.6") }) else {
        panic!("mathematics is not NCCL");
    };
    let lacks = "libm.so.6 is not usable as NCCL 2.19 or newer: it lacks ncclMemAlloc, ncclMemFree";
    assert_eq!(nccl.text(), lacks);
    // SAFETY: the same.
    let Err(rocshmem) = (unsafe { Rocshmem::open("libm.so.6", Ordinal(0)) }) else {
        panic!("mathematics is not rocSHMEM");
    };
    let lacks = "libm.so.6 is not usable as rocSHMEM: it lacks \
                 rocshmem_malloc or _ZN8rocshmem15rocshmem_mallocEm, \
                 rocshmem_free or _ZN8rocshmem13rocshmem_freeEPv";
    assert_eq!(rocshmem.text(), lacks);
    assert!(rocshmem.advice().contains("from_functions"));
}

#[test]
fn host_memory_has_no_such_library() {
    let error = Nccl::load(Vendor::Host).unwrap_err();
    assert_eq!(error.text(), "neither NCCL nor RCCL has memory for host devices");
}
