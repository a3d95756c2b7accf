//! Programs that check their bytes, on every emulated version of AMD's library, also while the kernel refuses.

use std::process::Command;

use cachette_emulated_hip::{Personality, install};

/// What the kernel refuses: nothing, every 25th right, every 25th map, every 25th unmap or release of addresses.
const REFUSALS: [&[(&str, &str)]; 4] = [
    &[],
    &[("CACHETTE_EMULATED_REFUSED_RIGHTS", "25")],
    &[("CACHETTE_EMULATED_REFUSED_MAPS", "25")],
    &[("CACHETTE_EMULATED_REFUSED_ENDS", "25")],
];

/// Runs `exchange` with blocks up to 12 MiB on three streams, growable memory and evictable pools. Every byte is checked.
fn exchange(version: Personality, refused: &[(&str, &str)]) {
    let mut program = Command::new(env!("CARGO_BIN_EXE_exchange"));
    program.args(["--backend", "hip", "--whole", "--threads", "2", "--streams", "3", "--slots", "16"]);
    program.args(["--steps", "100", "--largest", "23.6", "--config", "expandable_segments:True"]);
    // Before 7.14 a sleep releases addresses. If the driver refuses that, it no longer knows them, and no wake can.
    let may_lose = matches!(version, Personality::V6_4 | Personality::V7_2) && refused == REFUSALS[3];
    if !may_lose {
        program.arg("--moving");
    }
    program.env("CACHETTE_HIP_LIBRARY", install(version).expect("the library was built"));
    program.env("CACHETTE_EMULATED_CAPACITY", (1_u64 << 30).to_string());
    program.envs(refused.iter().copied());
    let output = program.output().expect("the program starts");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{version}, {refused:?}: {} {text}", output.status);
}

#[test]
fn no_byte_is_wrong_on_any_version_and_no_request_fails() {
    for version in Personality::ALL {
        for refused in REFUSALS {
            exchange(version, refused);
        }
    }
}
