//! A program behind the front sees what it sees without the front.

use crate::bed::{self, Ran, VENDORS, Vendor};

/// Runs a part of the program both ways, which must say the same.
#[track_caller]
fn same(vendor: Vendor, part: &str, variables: &[(&str, &str)]) {
    let run = |is_plain| bed::said(vendor, part, variables, is_plain);
    compare(&format!("{vendor:?} {part} {variables:?}"), &run(true), &run(false));
}

/// Runs a part behind the front with every version for HIP. It must say what 6.4 says alone, which notices streams that
/// do not exist. Later versions crash or report success.
#[track_caller]
fn same_as_a_careful_driver(part: &str) {
    same(Vendor::Cuda, part, &[]);
    let run = |version, is_plain| bed::said(Vendor::Hip, part, &[("CACHETTE_EMULATED_HIP", version)], is_plain);
    let plain = run("6.4", true);
    for version in bed::HIP_VERSIONS {
        compare(&format!("{part} of {version}"), &plain, &run(version, false));
    }
}

#[track_caller]
fn compare(what: &str, plain: &Ran, front: &Ran) {
    assert_eq!(plain.code, Some(0), "{what}: {plain:?}");
    let mut lines = plain.stdout.lines().zip(front.stdout.lines()).enumerate();
    let difference = lines.find(|(_, (expected, found))| expected != found);
    assert_eq!(difference, None, "{what}, plain and front: {}", front.stderr);
    assert_eq!((front.code, &front.stdout), (Some(0), &plain.stdout), "{what}: {}", front.stderr);
}

/// The same for each vendor.
#[track_caller]
fn same_everywhere(part: &str) {
    same(Vendor::Cuda, part, &[]);
    same_in_every_hip(part);
}

/// The same for every version of AMD's library.
#[track_caller]
fn same_in_every_hip(part: &str) {
    for version in bed::HIP_VERSIONS {
        same(Vendor::Hip, part, &[("CACHETTE_EMULATED_HIP", version)]);
    }
}

#[test]
fn the_last_error_is_that_of_the_program_s_calls() {
    same_in_every_hip("last-errors");
}

#[test]
fn a_new_stream_does_not_wait_for_the_work_of_a_destroyed_one() {
    same(Vendor::Cuda, "pending-streams", &[]);
    // AMD's own library waits for the work of a stream that it destroys.
    let front = bed::said(Vendor::Hip, "pending-streams", &[], false);
    assert_eq!(front.code, Some(0), "{front:?}");
}

#[test]
fn a_destroyed_stream_is_none() {
    same_as_a_careful_driver("destroyed-streams");
}

#[test]
fn streams_and_addresses_that_do_not_exist_get_the_driver_s_statuses() {
    same_as_a_careful_driver("odd-calls");
}

#[test]
fn stream_ordered_calls_do_not_wait_for_other_streams_after_a_graph_is_gone() {
    same_everywhere("blocked-streams");
}

#[test]
fn memory_that_a_graph_leaves_can_be_freed_after_every_launch() {
    same_everywhere("unfreed-memory");
}

#[test]
fn memory_from_before_a_capture_cannot_be_freed_in_it() {
    same_everywhere("frees-in-captures");
}

#[test]
fn a_program_may_exit_in_a_signal_handler() {
    for vendor in VENDORS {
        for _ in 0..4 {
            let front = bed::said(vendor, "exits-in-handlers", &[], false);
            assert_eq!(front.code, Some(3), "{vendor:?}: {front:?}");
        }
    }
}

#[test]
fn a_child_that_is_forked_beside_busy_threads_is_refused_everything() {
    same_everywhere("forks");
}

#[test]
fn a_context_of_the_program_is_the_driver_s() {
    same(Vendor::Cuda, "contexts", &[]);
}

#[test]
fn a_stream_keeps_its_priority() {
    same_everywhere("priorities");
}

#[test]
fn a_copy_of_a_graph_keeps_its_memory() {
    same_everywhere("copies");
}
