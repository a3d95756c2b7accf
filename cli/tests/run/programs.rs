//! `cachette run` puts Cachette in front of the driver of programs that were not written for it.

use std::fs;
use std::process::Command;

use cachette_snapshot::Snapshot;

use crate::bed::{self, Ran, VENDORS, Vendor, WAYS, Way};

/// Runs a part of the C program for each vendor and each way to the driver.
#[track_caller]
fn everywhere(part: &str, options: &[&str], check: impl Fn(&Ran)) {
    for vendor in VENDORS {
        for way in WAYS {
            check(&kept(vendor, way, part, options));
        }
    }
}

/// Runs a part of the C program, which keeps its promises.
#[track_caller]
fn kept(vendor: Vendor, way: Way, part: &str, options: &[&str]) -> Ran {
    let ran = bed::run(vendor, options, &bed::program(vendor, way), &[part]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "kept\n"), "{vendor:?} {way:?}: {}", ran.stderr);
    ran
}

/// The number after a word of the summary.
#[track_caller]
fn figure(ran: &Ran, word: &str) -> u64 {
    let rest = ran.stderr.split(&format!(" {word} ")).nth(1).unwrap_or_else(|| panic!("{word} in {ran:?}"));
    rest.split([',', '\n']).next().and_then(|text| text.parse().ok()).expect("a figure is a number")
}

#[test]
fn every_request_is_served_by_cachette_and_keeps_its_contents() {
    everywhere("pairs", &[], |ran| {
        assert_eq!(figure(ran, "requests"), 900, "{ran:?}");
        assert_eq!(figure(ran, "hits"), 898, "{ran:?}");
        assert_eq!(figure(ran, "driver calls"), 2, "{ran:?}");
        assert!(ran.stderr.contains("peak 1.17 MiB, reserved 4.00 MiB"), "{ran:?}");
    });
}

/// The reserve is of the machine's real memory, which the emulated devices say that they share.
#[test]
fn a_device_that_shares_the_memory_of_the_host_leaves_it_the_reserve() {
    for vendor in VENDORS {
        let program = bed::program(vendor, Way::Linked);
        for (reserve, code) in [("1KiB", 0), ("1000TiB", 70)] {
            let option = format!("host_reserve:{reserve}");
            let mut command = bed::cachette_run(vendor, &["--config", &option]);
            command.arg("--").arg(&program).arg("questions").env("CACHETTE_EMULATED_INTEGRATED", "1");
            let ran = Ran::of(&command.output().expect("the program starts"));
            assert_eq!(ran.code, Some(code), "{vendor:?}, {reserve}: {ran:?}");
        }
    }
}

#[test]
fn a_configuration_and_a_limit_reach_the_program() {
    let options = ["--config", "expandable_segments:True", "--limit", "64M"];
    everywhere("pairs", &options, |ran| {
        assert!(ran.stderr.contains("configuration expandable_segments:True,memory_limit:64M\n"), "{ran:?}");
        assert_eq!(figure(ran, "requests"), 900, "{ran:?}");
    });
    everywhere("streams", &options, |_| {});
    everywhere("captures", &options[..2], |_| {});
    let program = bed::program(Vendor::Cuda, Way::Linked);
    let ran = bed::run(Vendor::Cuda, &["--limit", "8M"], &program, &["questions"]);
    assert_eq!(ran.code, Some(70), "32 MiB are more than the limit: {ran:?}");
    assert_eq!(figure(&ran, "out of memory"), 1, "{ran:?}");
}

#[test]
fn memory_freed_on_another_stream_waits_for_it_and_streams_may_end() {
    everywhere("streams", &[], |ran| assert_eq!(figure(ran, "driver calls"), 1, "{ran:?}"));
}

#[test]
fn wrong_calls_get_the_driver_s_statuses_and_a_line_each() {
    everywhere("wrong", &[], |ran| {
        assert_eq!(ran.stderr.matches("nothing is allocated there; it may have been freed before").count(), 2);
        assert_eq!(ran.stderr.matches("it lies 512 bytes inside the allocation").count(), 1, "{ran:?}");
        assert_eq!(figure(ran, "out of memory"), 2, "{ran:?}");
    });
}

#[test]
fn questions_about_memory_are_answered_as_the_program_sees_it() {
    everywhere("questions", &[], |_| {});
}

#[test]
fn other_processes_are_refused_what_shares_a_segment() {
    everywhere("others", &[], |ran| {
        assert_eq!(ran.stderr.matches("IpcGetMemHandle is not supported").count(), 1, "{ran:?}");
    });
}

#[test]
fn memory_of_a_graph_is_its_own_until_the_graph_is_gone() {
    everywhere("captures", &[], |ran| assert_eq!(figure(ran, "driver calls"), 3, "{ran:?}"));
}

#[test]
fn memory_of_graphs_that_are_gone_serves_others() {
    for options in [&[][..], &["--config", "expandable_segments:True"]] {
        for vendor in VENDORS {
            kept(vendor, Way::Opened, "many-captures", options);
        }
    }
}

/// Runs a part of the C program for every version of AMD's library.
#[track_caller]
fn in_every_hip(part: &str, options: &[&str]) {
    for version in bed::HIP_VERSIONS {
        let program = bed::program(Vendor::Hip, Way::Opened);
        let mut command = bed::cachette_run(Vendor::Hip, options);
        command.env("CACHETTE_EMULATED_HIP", version).arg("--").arg(program).arg(part);
        let ran = Ran::of(&command.output().expect("the program starts"));
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "kept\n"), "{version}: {}", ran.stderr);
    }
}

#[test]
fn a_stream_destroyed_in_a_capture_leaves_nothing_behind() {
    for options in [&[][..], &["--config", "expandable_segments:True"]] {
        kept(Vendor::Cuda, Way::Opened, "abandoned-captures", options);
        in_every_hip("abandoned-captures", options);
    }
}

#[test]
fn a_stream_destroyed_in_the_capture_of_another_breaks_nothing() {
    in_every_hip("joined-captures", &[]);
}

#[test]
fn a_stream_with_memory_is_never_destroyed_however_it_was_made() {
    for options in [&[][..], &["--config", "expandable_segments:True"]] {
        for way in WAYS {
            kept(Vendor::Hip, way, "masked-streams", options);
        }
    }
}

#[test]
fn what_the_front_asks_leaves_the_last_error() {
    kept(Vendor::Hip, Way::Opened, "last-error", &[]);
}

#[test]
fn a_refused_end_leaves_the_capture_its_memory() {
    everywhere("refused-ends", &[], |_| {});
}

#[test]
fn a_free_without_a_stream_waits_for_the_device() {
    everywhere("free-waits", &[], |_| {});
}

#[test]
fn threads_pass_memory_between_their_streams() {
    everywhere("threads", &[], |_| {});
    for config in ["expandable_segments:True", "caching:False", "backend:cudaMallocAsync"] {
        everywhere("threads", &["--config", config], |_| {});
    }
}

#[test]
fn plain_pools_of_the_driver_are_served_and_no_others() {
    for way in WAYS {
        kept(Vendor::Cuda, way, "pools", &[]);
        kept(Vendor::Cuda, way, "current-pools", &[]);
    }
}

#[test]
fn memory_is_of_the_device_of_its_stream() {
    for way in WAYS {
        kept(Vendor::Cuda, way, "other-devices", &[]);
    }
    let ran = kept(Vendor::Hip, Way::Opened, "second-device", &[]);
    assert!(ran.stderr.contains(", device 1: peak 4.00 KiB"), "{ran:?}");
}

#[test]
fn a_device_that_was_reset_is_the_driver_s() {
    for way in WAYS {
        let ran = kept(Vendor::Cuda, way, "resets", &[]);
        assert!(ran.stderr.contains("device 0 was reset; the driver serves it from now on"), "{ran:?}");
        assert!(!ran.stderr.contains("device 7 was reset"), "the driver refused it: {ran:?}");
        kept(Vendor::Cuda, way, "reset-graphs", &[]);
    }
}

#[test]
fn the_default_stream_of_a_thread_is_the_driver_s() {
    let ran = kept(Vendor::Cuda, Way::Asked, "per-thread", &[]);
    assert_eq!(figure(&ran, "requests"), 2, "{ran:?}");
}

#[test]
fn a_forked_child_gets_the_driver_s_status_and_nothing_else() {
    everywhere("forks", &[], |ran| assert_eq!(ran.stderr.lines().count(), 2, "{ran:?}"));
}

#[test]
fn child_processes_are_served_and_report_for_themselves() {
    everywhere("children", &[], |ran| {
        assert_eq!(figure(ran, "requests"), 900, "{ran:?}");
        assert!(ran.stderr.contains("asked the driver for no memory"), "{ran:?}");
    });
}

#[test]
fn a_snapshot_has_the_history_of_the_program() {
    for (vendor, file) in [(Vendor::Cuda, "cuda.json"), (Vendor::Hip, "hip.pickle")] {
        let path = bed::folder().join(file);
        let _ = fs::remove_file(&path);
        let options = ["--snapshot", path.to_str().unwrap()];
        let ran = bed::run(vendor, &options, &bed::program(vendor, Way::Opened), &["pairs"]);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let snapshot = Snapshot::read(&path).unwrap();
        let allocations = snapshot.traces.iter().flat_map(|trace| &trace.events);
        let allocations = allocations.filter(|event| event.action == cachette_snapshot::TraceAction::Alloc);
        assert_eq!(allocations.count(), 900, "{ran:?}");
    }
}

#[test]
fn the_holders_of_a_snapshot_are_lines_of_the_program() {
    let plain = bed::built("libcachette_front.so");
    let stripped = bed::folder().join("libcachette_front.so");
    let strip = Command::new("strip").arg(&plain).arg("-o").arg(&stripped).status();
    assert!(strip.expect("it starts").success());
    for (vendor, front) in [(Vendor::Cuda, &plain), (Vendor::Cuda, &stripped), (Vendor::Hip, &stripped)] {
        let flags = ["-g", "-O0", &format!("-D{}", format!("{vendor:?}").to_uppercase()), "-DOPENED"];
        let program = bed::compile(&bed::source("holders.c"), &format!("{vendor:?}-holders"), &flags);
        let path = bed::folder().join("holders.json");
        let mut command = bed::cachette_run(vendor, &["--snapshot", path.to_str().unwrap()]);
        let ran = Ran::of(&command.env("CACHETTE_FRONT", front).arg("--").arg(program).output().unwrap());
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "kept\n"), "{ran:?}");
        let info = crate::program::run(&["snapshot", "info", path.to_str().unwrap()]);
        for line in
            ["20.00 MiB   83.3 %       1 block  weights holders.c:6 < main holders.c:13", " 1 block  main holders.c:14"]
        {
            assert!(info.stdout.contains(line), "{vendor:?} {}\n{line}\n{}", front.display(), info.stdout);
        }
    }
}

#[test]
fn a_driver_in_another_namespace_is_reported_once() {
    let program = bed::compile(&bed::source("namespace.c"), "namespace", &[] as &[&str]);
    let ran = bed::run(Vendor::Cuda, &[], &program, &[]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "kept\n"), "{ran:?}");
    assert_eq!(figure(&ran, "requests"), 1, "{ran:?}");
    assert!(!ran.stderr.contains("asked the driver for no memory"), "{ran:?}");
}

#[test]
fn the_versions_of_the_driver_s_symbols_are_kept() {
    let map = bed::source("versions.map");
    let flags =
        ["-shared", "-fPIC", "-Wl,-soname,libamdhip64.so.7", &format!("-Wl,--version-script={}", map.display())];
    let library = bed::compile(&bed::source("versions.c"), "libversions.so", &flags);
    let flags = ["-DPROGRAM", library.to_str().unwrap()];
    let program = bed::compile(&bed::source("versions.c"), "versions", &flags);
    let mut command = bed::cachette_run(Vendor::Hip, &["--"]);
    let ran = Ran::of(&command.arg(program).env("CACHETTE_HIP_LIBRARY", library).output().unwrap());
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "7\n"), "{ran:?}");
    assert!(!ran.stderr.contains("version information"), "{ran:?}");
    assert!(ran.stderr.contains("it loaded") && ran.stderr.contains("libversions.so"), "{ran:?}");
}
