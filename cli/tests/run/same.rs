//! A program behind the front sees what it sees without the front.

use crate::bed::{self, Vendor};

/// Runs a part of the program both ways, which must say the same.
#[track_caller]
fn same(vendor: Vendor, part: &str, variables: &[(&str, &str)]) {
    let [plain, front] = bed::both(vendor, part, variables);
    assert_eq!(plain.code, Some(0), "{vendor:?} {part} {variables:?}: {plain:?}");
    let mut lines = plain.stdout.lines().zip(front.stdout.lines()).enumerate();
    let difference = lines.find(|(_, (expected, found))| expected != found);
    assert_eq!(difference, None, "{vendor:?} {part} {variables:?}, plain and front: {}", front.stderr);
    assert_eq!(
        (front.code, front.stdout),
        (Some(0), plain.stdout),
        "{vendor:?} {part} {variables:?}: {}",
        front.stderr
    );
}

/// The same for every version of AMD's library.
#[track_caller]
fn same_in_every_hip(part: &str) {
    for version in ["6.4", "7.2", "7.14"] {
        same(Vendor::Hip, part, &[("CACHETTE_EMULATED_HIP", version)]);
    }
}

#[test]
fn the_last_error_is_that_of_the_program_s_calls() {
    same_in_every_hip("last-errors");
}
