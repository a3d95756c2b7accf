//! Tests of the suite itself: every planted defect of a host device fails the case that is meant to notice it.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use cachette_conformance::{Fixture, Options, Report, child, run};
use cachette_hal_host::{Defect, HostBackend, HostConfig};
use libtest_mimic::{Arguments, Failed, Trial};

/// A defect may leave a case waiting forever; on a correct device no case takes a tenth of this.
const LIMIT: Duration = Duration::from_secs(4);
/// How often a case that misses its defect runs. A case gives a wrong call a fixed time to show; on a busy
/// machine it may show later.
const TRIES: usize = 10;
/// Most cases wait more than they work.
const THREADS: usize = 4;

/// The cases that are meant to notice a defect; others may notice it too.
const fn meant_for(defect: Defect) -> &'static [&'static str] {
    match defect {
        Defect::EventDoneTooEarly => &["events::poll_is_pending_while_work_is_held"],
        Defect::WaitIgnored => &[
            "events::stream_wait_holds_later_work",
            "virtual_memory::aliases_are_coherent_between_streams_behind_an_event",
        ],
        Defect::HostWaitReturnsEarly => &["events::wait_blocks_until_the_work_finished"],
        Defect::SynchronizeReturnsEarly => &["streams::synchronize_blocks_until_queued_work_finished"],
        Defect::SynchronizeSkipsDefault => &["streams::synchronize_device_waits_for_every_stream"],
        Defect::SynchronizeSkipsDestroyed => &["streams::synchronize_device_waits_for_a_destroyed_stream"],
        Defect::DestroyedStreamLives => &[
            "destroyed_streams::take_no_events",
            "destroyed_streams::are_not_waited_for_or_destroyed_again",
            "destroyed_streams::run_no_transfers",
            "destroyed_streams::run_no_host_functions",
            "destroyed_streams::order_no_memory",
            "destroyed_streams::are_not_captured",
        ],
        Defect::AllocationsOverlap => &["memory::live_ranges_do_not_overlap"],
        Defect::CapacityNeverReturned | Defect::MemoryInfoFixed => &["memory::free_memory_falls_and_rises"],
        Defect::CapacityNotEnforced => &["memory::more_than_the_device_has_is_out_of_memory"],
        Defect::MapIsCopy => &[
            "virtual_memory::aliases_are_the_same_bytes",
            "virtual_memory::aliases_are_coherent_between_streams_behind_an_event",
        ],
        Defect::UnmapDoesNothing | Defect::RemapShowsOldContent => {
            &["virtual_memory::addresses_show_the_backing_of_the_moment"]
        }
        Defect::WrongKindOnExhaustion => &["errors::they_name_the_call_and_the_remedy"],
        Defect::CaptureExecutesEagerly => &["capture::nothing_runs_before_the_launch"],
        Defect::CopiesOutOfOrder => &["streams::held_work_runs_in_the_order_it_was_queued"],
        Defect::HandlesReused => &["events::live_ones_have_different_handles"],
        Defect::MisalignedAllocation => &["memory::addresses_are_aligned"],
        Defect::FirstRecordSticks => &["events::a_later_record_replaces_an_earlier_one"],
        Defect::StreamWaitFollowsLaterRecords => &["events::stream_wait_is_for_the_record_of_that_moment"],
        Defect::DestroyedBackingLosesMapping => &["virtual_memory::a_destroyed_backing_stays_while_mapped"],
        Defect::AccessNotEnforced => &["faults::touching_without_a_right_is_reported"],
        Defect::ReleaseWithMappings => &["virtual_memory::releasing_with_a_mapping_inside_is_an_invalid_value"],
        Defect::DeviceAddressOfAnything => &["host_memory::an_unknown_pointer_has_no_device_address"],
        Defect::GraphRunsOnce => &["capture::every_launch_runs_it_again"],
        Defect::CaptureIdReused => &["capture::numbers_of_captures_differ"],
        Defect::FreshCaptureHasNodes => &["capture::a_fresh_one_has_no_node_or_one_root"],
        Defect::FrontierStaysBehind => &[
            "capture::work_becomes_the_frontier_of_its_stream",
            "capture::a_wait_lets_a_frontier_reach_the_other_streams_work",
        ],
        Defect::FrontierOfAllStreams | Defect::DependenciesOnEverything => {
            &["capture::a_frontier_does_not_reach_what_another_stream_did_since"]
        }
        Defect::IdleStreamHasFrontier => &["capture::an_idle_stream_has_no_frontier"],
        Defect::FrontierBreaksCapture => &["capture::asking_for_nodes_breaks_nothing"],
        Defect::BrokenCaptureHasFrontier => &["capture::a_broken_one_has_no_frontier"],
        Defect::DependenciesForgotten => &["capture::work_becomes_the_frontier_of_its_stream"],
        Defect::CapturedWaitTakesAll => &["capture::a_wait_reaches_no_further_than_its_event"],
        Defect::RelaxedModeIgnored => &["capture::a_relaxed_thread_may_allocate"],
        Defect::EnableTwiceFails => &["peer_access::a_second_change_changes_nothing"],
        Defect::TokenIsCopy => &["ipc::the_parent_reads_what_a_child_wrote"],
        Defect::TrimDoesNothing => &["stream_ordered::trim_gives_memory_back"],
        Defect::StreamOrderedFreeEarly => &["stream_ordered::memory_freed_in_a_held_stream_is_not_written_by_another"],
        Defect::FillShort => &["transfer::fill_sets_every_byte"],
        Defect::DownloadEager => &["transfer::download_happens_in_stream_order"],
        Defect::ExportsPrivate => &["descriptors::private_backing_is_not_exported"],
        Defect::DestroyStreamDropsWork => &["streams::a_destroyed_one_finishes_its_work"],
        Defect::WrongErrorForBadOrdinal => &["errors::an_ordinal_past_the_last_is_no_such_device"],
        Defect::ZeroSizeAccepted => &["memory::zero_bytes_is_an_invalid_value"],
        Defect::ExportsFabricUnasked => &["fabric::only_what_was_made_for_it_is_named"],
        Defect::FabricIsOtherMemory => &[
            "fabric::an_imported_backing_is_the_same_memory",
            "fabric::a_child_reads_what_the_parent_wrote",
            "fabric::the_parent_reads_what_a_child_wrote",
        ],
        Defect::FabricImportsAnything => &["fabric::a_forged_handle_is_refused", "fabric::a_wrong_size_is_noticed"],
        Defect::VirtualMemoryWaits => &[
            "virtual_memory::mapping_does_not_wait_for_a_held_stream",
            "virtual_memory::unmapping_does_not_wait_for_a_held_stream",
            "virtual_memory::a_chunk_moves_behind_work_in_flight",
            "virtual_memory::unmapping_an_alias_leaves_held_work_through_the_other",
            "virtual_memory::making_and_giving_back_do_not_wait_for_a_held_stream",
        ],
        Defect::UnmapTakesNeighbour => &["virtual_memory::unmapping_one_of_several_leaves_its_neighbours"],
        Defect::AccessStopsAtFirstMapping => &["virtual_memory::access_is_set_over_several_mappings_at_once"],
        Defect::AccessTakesFromNeighbour => &["virtual_memory::rights_to_one_mapping_leave_its_neighbours"],
        Defect::AliasedMemoryFreedEarly => &["virtual_memory::memory_stays_taken_until_the_last_alias_is_unmapped"],
        Defect::MapFailsBesideUnmap => &["threads::one_backing_is_mapped_and_unmapped_by_many"],
        Defect::ReservationsRunOut => &["virtual_memory::many_reservations_live_at_once"],
        Defect::ReservationBoundByMemory => &["virtual_memory::a_reservation_may_exceed_the_device"],
    }
}

/// A host device with one defect, or none.
fn fixture(defect: Option<Defect>) -> Arc<Fixture> {
    let open = move || {
        let sound = HostConfig::default().devices(2).capacity(256 << 20);
        let config = match defect {
            Some(defect) => sound.defect(defect),
            None => sound,
        };
        let backend = HostBackend::new(config).map_err(|error| error.to_string())?;
        Ok(Arc::new(backend) as _)
    };
    let name = defect.map_or("none", Defect::name);
    Arc::new(Fixture::new(name, open).isolated().containing_faults())
}

fn report(defect: Option<Defect>, limit: Duration, case: Option<&str>) -> Result<Report, Failed> {
    let options = Options { filter: case.map(str::to_owned), threads: THREADS, limit, ..Options::default() };
    run(&fixture(defect), &options).map_err(Failed::from)
}

fn is_caught(defect: Defect) -> Result<(), Failed> {
    for case in meant_for(defect) {
        if !is_noticed(defect, case)? {
            return Err(Failed::from(format!("{case} does not notice")));
        }
    }
    Ok(())
}

fn is_noticed(defect: Defect, case: &str) -> Result<bool, Failed> {
    for _ in 0..TRIES {
        let report = report(Some(defect), LIMIT, Some(case))?;
        if report.failures().any(|failed| failed.name == case) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn soundness_is_not_blamed() -> Result<(), Failed> {
    let report = report(None, cachette_conformance::LIMIT, None)?;
    if report.is_success() { Ok(()) } else { Err(Failed::from(report)) }
}

fn main() -> ExitCode {
    if let Some(name) = child::fixture_name() {
        let defect = Defect::ALL.iter().copied().find(|defect| defect.name() == name);
        child::play_if_child(&fixture(defect));
    }
    let mut trials = vec![Trial::test("soundness_is_not_blamed", soundness_is_not_blamed)];
    for defect in Defect::ALL.iter().copied() {
        let name = format!("is_caught::{}", defect.name());
        trials.push(Trial::test(name, move || is_caught(defect)));
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
