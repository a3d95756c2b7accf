//! The log of `CACHETTE_LOG`.

use std::env;
use std::process::Command;

use cachette::{Allocator, Config};
use cachette_hal_host::{HostBackend, HostConfig};

const MIB: u64 = 1 << 20;

/// Allocates, frees and runs out of memory; its process has the variable.
#[test]
#[ignore = "a process of the other tests"]
fn program() {
    let host = HostConfig::default().capacity(64 * MIB);
    let host = match env::var_os("TEST_SHARED") {
        Some(file) => host.shared(file),
        None => host,
    };
    let host = HostBackend::new(host).unwrap();
    let config: Config = env::var("TEST_CONFIG").unwrap().parse().unwrap();
    cachette_process::start_on(std::sync::Arc::new(host), &config).unwrap();
    let allocator: &Allocator = cachette_process::allocator(0).unwrap();
    let stream = allocator.create_stream().unwrap();
    let memory = allocator.allocate(30 * MIB, &stream).unwrap();
    drop(memory);
    allocator.empty_cache().unwrap();
    assert!(allocator.allocate(100 * MIB, &stream).is_err());
}

fn lines(level: Option<&str>, config: &str) -> Vec<String> {
    let mut command = Command::new(env::current_exe().expect("a program knows where it is"));
    command.args(["--exact", "program", "--ignored", "--nocapture"]).env("TEST_CONFIG", config);
    command.env_remove("CACHETTE_LOG").envs(level.map(|level| ("CACHETTE_LOG", level)));
    let output = command.output().expect("the program starts");
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stderr).expect("the output is text");
    text.lines().filter(|line| line.starts_with("cachette: ")).map(str::to_owned).collect()
}

#[track_caller]
fn count(lines: &[String], start: &str) -> usize {
    lines.iter().filter(|line| line.starts_with(&format!("cachette: {start}"))).count()
}

#[test]
fn without_the_variable_there_is_no_log() {
    assert_eq!(lines(None, ""), [""; 0]);
    assert_eq!(lines(Some(""), ""), [""; 0]);
}

#[test]
fn warnings_are_about_requests_that_fail() {
    let lines = lines(Some("warn"), "");
    assert_eq!(count(&lines, "warn: host:0: out of memory"), 1, "{lines:?}");
    assert_eq!(count(&lines, "info: "), 0, "{lines:?}");
}

#[test]
fn information_is_about_memory_of_the_device() {
    let direct = lines(Some("info"), "expandable_segments:False");
    assert_eq!(count(&direct, "info: host:0: segment allocated: 30.00 MiB at 0x"), 1, "{direct:?}");
    assert_eq!(count(&direct, "info: host:0: segment freed: 30.00 MiB at 0x"), 1, "{direct:?}");
    let elastic = lines(Some("info"), "expandable_segments:True");
    assert!(count(&elastic, "info: host:0: chunk mapped: ") > 0, "{elastic:?}");
    assert!(count(&elastic, "info: host:0: chunk unmapped: ") > 0, "{elastic:?}");
}

#[test]
fn a_wrong_level_is_named() {
    assert_eq!(lines(Some("debug"), ""), ["cachette: CACHETTE_LOG is 'debug', so there is no log; use warn or info"]);
}

#[test]
fn a_place_where_processes_cannot_meet_is_said_once() {
    let file = env::temp_dir().join(format!("cachette-log-{}", std::process::id()));
    let mut command = Command::new(env::current_exe().expect("a program knows where it is"));
    command.args(["--exact", "program", "--ignored", "--nocapture"]).env("TEST_CONFIG", "").env("TEST_SHARED", &file);
    command.env("CACHETTE_LOG", "warn").env("CACHETTE_RECLAIM_DIR", "/nowhere/at/all");
    let output = command.output().expect("the program starts");
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stderr).expect("the output is text");
    assert_eq!(text.matches("warn: host:0: other processes are not asked for memory").count(), 1, "{text}");
    std::fs::remove_file(file).unwrap();
}
