//! Memory that a program takes past the cache is counted, limited and shown.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use cachette_snapshot::{OutsideMemory, Snapshot};
use serde_json::Value;

use crate::bed::{self, Ran, VENDORS, Vendor, WAYS, Way};

const MIB: u64 = 1 << 20;
const LIMITED: [&str; 2] = ["--limit", "128M"];

/// Runs a part of the C program with variables of the environment. It keeps its promises.
#[track_caller]
fn kept(vendor: Vendor, way: Way, part: &str, options: &[&str], variables: &[(&str, &str)]) -> Ran {
    let mut command = bed::cachette_run(vendor, options);
    command.arg("--").arg(bed::program(vendor, way)).arg(part).envs(variables.iter().copied());
    let ran = Ran::of(&command.output().expect("the program starts"));
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "kept\n"), "{vendor:?} {way:?}: {}", ran.stderr);
    ran
}

/// The same for each vendor and each way to the driver, under a limit.
#[track_caller]
fn everywhere(part: &str, check: impl Fn(Vendor, &Ran)) {
    for vendor in VENDORS {
        for way in WAYS {
            check(vendor, &kept(vendor, way, part, &LIMITED, &[]));
        }
    }
}

#[test]
fn every_call_is_counted_and_gives_back() {
    everywhere("each-call", |vendor, ran| {
        let outside = if vendor == Vendor::Cuda { "4.00 MiB" } else { "10.00 MiB" };
        let line = format!(", outside {outside}, outside managed 144.00 MiB, outside pinned 3.00 MiB\n");
        assert!(ran.stderr.contains(&line), "{line}: {ran:?}");
    });
}

#[test]
fn physical_memory_counts_until_its_last_handle_and_mapping_are_gone() {
    everywhere("references", |_, ran| assert!(ran.stderr.contains(", outside 6.00 MiB\n"), "{ran:?}"));
    for version in bed::HIP_VERSIONS {
        kept(Vendor::Hip, Way::Opened, "references", &LIMITED, &[("CACHETTE_EMULATED_HIP", version)]);
    }
}

#[test]
fn memory_of_another_process_is_not_counted() {
    for way in WAYS {
        kept(Vendor::Cuda, way, "imports", &LIMITED, &[]);
        kept(Vendor::Hip, way, "imports", &LIMITED, &[]);
    }
}

#[test]
fn the_limit_holds_for_the_cache_and_everything_else_together() {
    for options in [&LIMITED[..], &["--limit", "128M", "--config", "expandable_segments:True"]] {
        for vendor in VENDORS {
            let ran = kept(vendor, Way::Opened, "beyond", options, &[]);
            let told = "answers out of memory: of the limit of 128.00 MiB the cache holds 16.00 MiB, and calls past the \
                        cache 96.00 MiB";
            assert_eq!(ran.stderr.matches(told).count(), 1, "{ran:?}");
            assert!(ran.stderr.contains("out of memory 4, outside 112.00 MiB\n"), "{ran:?}");
        }
    }
}

/// The program expects to get its memory, and stops with the first refusal.
#[test]
fn a_host_that_needs_its_memory_is_named_and_no_limit() {
    for vendor in VENDORS {
        for options in
            [&["--config", "host_reserve:1000TiB"][..], &["--config", "host_reserve:1000TiB", "--limit", "1G"]]
        {
            let mut command = bed::cachette_run(vendor, options);
            command.arg("--").arg(bed::program(vendor, Way::Opened)).arg("references");
            let ran = Ran::of(&command.env("CACHETTE_EMULATED_INTEGRATED", "1").output().expect("the program starts"));
            assert_ne!(ran.code, Some(0), "{ran:?}");
            assert!(ran.stderr.contains("which needs the rest; end other programs, or lower host_reserve"), "{ran:?}");
            assert!(!ran.stderr.contains("of the limit of"), "{ran:?}");
        }
    }
}

#[test]
fn a_program_that_grows_as_xla_does_keeps_the_limit() {
    for options in [&LIMITED[..], &["--limit", "128M", "--config", "expandable_segments:True"]] {
        for vendor in VENDORS {
            for way in WAYS {
                kept(vendor, way, "grows", options, &[]);
            }
        }
    }
}

#[test]
fn a_device_that_is_short_gets_the_idle_memory_of_the_cache_first() {
    for options in [&[][..], &["--config", "expandable_segments:True"], &["--config", "caching:False"]] {
        for vendor in VENDORS {
            kept(vendor, Way::Opened, "short", options, &[]);
        }
    }
}

#[test]
fn rows_that_the_driver_makes_longer_than_foreseen_count_whole() {
    kept(Vendor::Cuda, Way::Opened, "pitches", &LIMITED, &[("CACHETTE_EMULATED_PITCH", "4096")]);
}

#[test]
fn managed_memory_is_limited_where_the_driver_cannot_page_it() {
    kept(Vendor::Cuda, Way::Opened, "managed", &LIMITED, &[("CACHETTE_EMULATED_PAGES", "0")]);
}

#[test]
fn wrong_calls_change_no_figure() {
    everywhere("wrong-outside", |_, ran| assert!(ran.stderr.contains(", outside 2.00 MiB\n"), "{ran:?}"));
}

#[test]
fn what_the_driver_refuses_to_unmap_still_counts() {
    let variables = [("CACHETTE_EMULATED_REFUSED_ENDS", "2"), ("CACHETTE_EMULATED_HIP", "7.14")];
    kept(Vendor::Hip, Way::Opened, "refused-unmaps", &LIMITED, &variables);
}

#[test]
fn attempts_of_the_front_leave_the_last_error() {
    for version in bed::HIP_VERSIONS {
        kept(Vendor::Hip, Way::Opened, "outside-errors", &[], &[("CACHETTE_EMULATED_HIP", version)]);
    }
}

#[test]
fn a_reset_gives_back_what_has_an_address() {
    for way in WAYS {
        let ran = kept(Vendor::Cuda, way, "outside-resets", &LIMITED, &[]);
        assert!(ran.stderr.contains(", outside 30.00 MiB\n"), "{ran:?}");
    }
}

#[test]
fn threads_together_keep_the_limit() {
    for options in [&LIMITED[..], &["--limit", "128M", "--config", "expandable_segments:True"]] {
        for vendor in VENDORS {
            kept(vendor, Way::Opened, "outside-threads", options, &[]);
        }
    }
}

#[test]
fn a_driver_that_is_lost_at_any_call_leaves_a_report() {
    for (vendor, calls) in VENDORS.into_iter().flat_map(|vendor| (20..90).step_by(7).map(move |calls| (vendor, calls)))
    {
        let mut command = bed::cachette_run(vendor, &LIMITED);
        command.env("CACHETTE_EMULATED_LOST_AFTER", calls.to_string());
        let ran = Ran::of(&command.arg("--").arg(bed::program(vendor, Way::Opened)).arg("beyond").output().unwrap());
        assert!(ran.code.is_some(), "{vendor:?} {calls}: it ended by a signal: {ran:?}");
    }
}

#[test]
fn snapshots_metrics_and_the_last_line_have_what_is_held() {
    let held = OutsideMemory { device: 0, bytes: 14 * MIB, managed: 6 * MIB, host: 3 * MIB };
    for (vendor, name) in [(Vendor::Cuda, "outside.json"), (Vendor::Hip, "outside.pickle")] {
        let (file, metrics) = (bed::folder().join(name), bed::folder().join(format!("{name}.prom")));
        let _ = fs::remove_file(&file);
        let options = ["--snapshot", file.to_str().unwrap(), "--metrics", metrics.to_str().unwrap()];
        let ran = kept(vendor, Way::Opened, "holds", &options, &[]);
        let line = ", outside 14.00 MiB, outside managed 6.00 MiB, outside pinned 3.00 MiB, not freed outside: 14.00 MiB, \
                    not freed outside managed: 6.00 MiB, not freed outside pinned: 3.00 MiB\n";
        assert!(ran.stderr.contains(line), "{ran:?}");
        assert_eq!(Snapshot::read(&file).unwrap().outside, [held], "{name}");
        let page = fs::read_to_string(metrics).unwrap();
        for (kind, bytes) in [("device", held.bytes), ("managed", held.managed), ("host", held.host)] {
            for figure in ["outside_bytes", "outside_bytes_peak"] {
                let line = page.lines().find(|line| {
                    line.starts_with(&format!("cachette_{figure}{{")) && line.contains(&format!("kind=\"{kind}\""))
                });
                assert_eq!(line.and_then(|line| line.split(' ').nth(1)), Some(&*bytes.to_string()), "{page}");
            }
        }
        let info = Command::new(env!("CARGO_BIN_EXE_cachette")).args(["snapshot", "info"]).arg(&file).output().unwrap();
        let info = String::from_utf8(info.stdout).unwrap();
        assert!(info.contains("  outside           14.00 MiB  of the device, by calls of the program"), "{info}");
    }
}

#[test]
fn top_shows_what_a_running_program_holds() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = bed::cachette_run(Vendor::Cuda, &LIMITED);
    command.env("CACHETTE_EMULATED_SHARED", folder.path().join("devices")).env("CACHETTE_RECLAIM_DIR", folder.path());
    command.arg("--").arg(bed::program(Vendor::Cuda, Way::Opened)).args(["holds", "waits"]);
    let mut program = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(program.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "ready");
    let mut top = Command::new(env!("CARGO_BIN_EXE_cachette"));
    let shown = top.args(["top", "--json"]).env("CACHETTE_RECLAIM_DIR", folder.path()).output();
    program.kill().unwrap();
    program.wait().unwrap();
    let sample: Value = serde_json::from_slice(&shown.unwrap().stdout).unwrap();
    let devices = sample["devices"].as_array().unwrap().iter();
    let mut processes = devices.flat_map(|device| device["processes"].as_array().unwrap());
    let shown = processes.find(|process| process["pid"] == program.id()).expect("it answers");
    let held = &shown["cachette"];
    let figures = ["outside", "outside_managed", "outside_host"].map(|figure| held[figure].as_u64());
    assert_eq!(figures, [Some(14 * MIB), Some(6 * MIB), Some(3 * MIB)], "{shown}");
    assert_eq!(shown["outside"], 14 * MIB, "no vendor knows the device");
}
