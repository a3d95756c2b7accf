//! Programs that check their bytes, on the emulated libraries of both vendors, also while the kernel refuses.

use std::env;
use std::path::Path;
use std::process::Command;

use cachette_emulated_hip::{Personality, install};

/// What AMD's kernel refuses: nothing, every 25th right, every 25th map, every 25th unmap or release of addresses.
const REFUSALS: [&[(&str, &str)]; 4] = [
    &[],
    &[("CACHETTE_EMULATED_REFUSED_RIGHTS", "25")],
    &[("CACHETTE_EMULATED_REFUSED_MAPS", "25")],
    &[("CACHETTE_EMULATED_REFUSED_ENDS", "25")],
];

/// Blocks up to 12 MiB on three streams, growable memory, and pools that are evicted, sleep, or are registered. Every
/// byte is checked.
fn exchange(backend: &str, (variable, library): (&str, &Path), more: &[(&str, &str)], moving: bool) {
    let mut program = Command::new(env!("CARGO_BIN_EXE_exchange"));
    program.args(["--backend", backend, "--whole", "--threads", "2", "--streams", "3", "--slots", "16"]);
    program.args(["--steps", "100", "--largest", "23.6", "--config", "expandable_segments:True"]);
    program.args(moving.then_some("--moving"));
    program.env("CACHETTE_EMULATED_CAPACITY", (1_u64 << 30).to_string());
    program.env(variable, library).envs(more.iter().copied());
    let output = program.output().expect("the program starts");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}, {more:?}: {} {text}", library.display(), output.status);
}

#[test]
fn no_byte_is_wrong_on_any_version_of_amds_library_and_no_request_fails() {
    for version in Personality::ALL {
        let library = install(version).expect("the library was built");
        for refused in REFUSALS {
            // Before 7.14 a sleep releases addresses. If the driver refuses that, it no longer knows them, and no wake
            // can.
            let may_lose = matches!(version, Personality::V6_4 | Personality::V7_2) && refused == REFUSALS[3];
            exchange("hip", ("CACHETTE_HIP_LIBRARY", &library), refused, !may_lose);
        }
    }
}

#[test]
fn no_byte_is_wrong_on_nvidias_library_and_no_request_fails() {
    let program = env::current_exe().expect("it has a path");
    let mut places = program.ancestors().skip(1).take(2).map(|folder| folder.join("libcachette_emulated_cuda.so"));
    let library = places.find(|file| file.exists()).expect("the library was built");
    for more in [("CACHETTE_EMULATED_ALIASES", "1"), ("CACHETTE_EMULATED_ALIASES", "0")] {
        exchange("cuda", ("CACHETTE_CUDA_LIBRARY", &library), &[more], true);
    }
}
