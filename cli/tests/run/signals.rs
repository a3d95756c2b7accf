//! Programs behind `cachette run` that a signal ends or asks.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use cachette_snapshot::Snapshot;

use crate::bed::{self, VENDORS, Vendor, Way};

const SIGINT: i32 = 2;
const SIGKILL: i32 = 9;
const SIGTERM: i32 = 15;

/// A program that waits for a signal; it is killed on drop.
struct Serving {
    child: Child,
    stdout: BufReader<ChildStdout>,
}

impl Serving {
    /// Starts the program, and waits until it has memory.
    fn start(vendor: Vendor, options: &[&str], how: &str) -> Self {
        let mut command = bed::cachette_run(vendor, options);
        command.arg("--").arg(bed::program(vendor, Way::Opened)).args(["serve", how]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts");
        let stdout = BufReader::new(child.stdout.take().expect("it is a pipe"));
        let mut serving = Self { child, stdout };
        assert_eq!(serving.line(), "ready\n");
        serving
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).expect("the output is text");
        line
    }

    fn signal(&self, name: &str) {
        // The program has the number of `cachette run`, which it replaced.
        let sent = Command::new("kill").args(["-s", name, &self.child.id().to_string()]).status();
        assert!(sent.is_ok_and(|status| status.success()));
    }

    /// Waits for the end of the program: its status, and what it wrote to stderr.
    fn end(mut self) -> (ExitStatus, String) {
        let status = self.child.wait().expect("the program ends");
        let mut text = String::new();
        let mut stderr = self.child.stderr.take().expect("it is a pipe");
        stderr.read_to_string(&mut text).expect("the output is text");
        (status, text)
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A file that does not exist yet.
fn fresh(name: &str) -> PathBuf {
    let path = bed::folder().join(name);
    let _ = fs::remove_file(&path);
    path
}

/// Waits until a file exists.
#[track_caller]
fn wait_for(path: &Path) {
    let began = Instant::now();
    while !path.exists() {
        assert!(began.elapsed() < Duration::from_secs(60), "{} is missing", path.display());
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_signal_ends_the_program_after_the_report() {
    for (vendor, name, number) in [(Vendor::Cuda, "TERM", SIGTERM), (Vendor::Hip, "INT", SIGINT)] {
        let path = fresh(&format!("ended-by-{name}.json"));
        for how in ["", "returns"] {
            let _ = fs::remove_file(&path);
            let serving = Serving::start(vendor, &["--snapshot", path.to_str().unwrap()], how);
            serving.signal(name);
            let (status, stderr) = serving.end();
            assert_eq!(status.signal(), Some(number), "{stderr}");
            assert_eq!(stderr.matches(", device 0: peak 4.00 KiB").count(), 1, "{stderr}");
            assert_eq!(Snapshot::read(&path).unwrap().segments.len(), 1, "{stderr}");
        }
    }
}

#[test]
fn a_program_keeps_the_handlers_that_it_sets_before_or_later() {
    let path = fresh("handled.json");
    for how in ["handles-before", "handles-later"] {
        let mut serving = Serving::start(Vendor::Cuda, &["--snapshot", path.to_str().unwrap()], how);
        serving.signal("USR1");
        assert_eq!(serving.line(), "own\n");
        serving.signal("TERM");
        let (status, stderr) = serving.end();
        assert_eq!(status.code(), Some(3), "{stderr}");
        assert!(!path.exists(), "{how}");
    }
}

#[test]
fn a_signal_asks_for_a_snapshot_while_the_program_runs() {
    for vendor in VENDORS {
        let path = fresh(&format!("asked-{vendor:?}.pickle"));
        let serving = Serving::start(vendor, &["--snapshot", path.to_str().unwrap()], "");
        for _ in 0..2 {
            serving.signal("USR1");
            wait_for(&path);
            assert_eq!(Snapshot::read(&path).unwrap().segments.len(), 1);
            fs::remove_file(&path).unwrap();
        }
        serving.signal("KILL");
        assert_eq!(serving.end().0.signal(), Some(SIGKILL));
    }
}

#[test]
fn without_a_snapshot_the_signal_keeps_its_default() {
    let serving = Serving::start(Vendor::Cuda, &[], "");
    serving.signal("USR1");
    assert_eq!(serving.end().0.signal(), Some(10));
}

#[test]
fn a_forked_child_has_the_default_actions() {
    let ran = bed::run(Vendor::Cuda, &[], &bed::program(Vendor::Cuda, Way::Opened), &["serve", "forks"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "kept\n"), "{ran:?}");
    assert_eq!(ran.stderr.matches(", device 0: peak").count(), 1, "{ran:?}");
}

#[test]
fn a_program_that_is_blocked_in_a_call_ends_too() {
    let serving = Serving::start(Vendor::Cuda, &[], "blocks");
    // It is inside the call soon after the line.
    thread::sleep(Duration::from_millis(200));
    let began = Instant::now();
    serving.signal("TERM");
    let (status, stderr) = serving.end();
    assert_eq!(status.signal(), Some(SIGTERM), "{stderr}");
    assert!(began.elapsed() < Duration::from_secs(30), "{stderr}");
    let lines = [", device 0: peak", "the report did not end in ten seconds"].map(|text| stderr.matches(text).count());
    assert_eq!(lines[0] + lines[1], 1, "{stderr}");
}

#[test]
fn metrics_are_written_while_the_program_runs() {
    let path = fresh("metrics.prom");
    let serving = Serving::start(Vendor::Cuda, &["--metrics", path.to_str().unwrap()], "");
    let wanted = "cachette_allocated_bytes{device=\"0\",backend=\"cuda\",kind=\"all\"} 4096\n";
    // The first page may be older than the memory, and the next ones are not.
    for is_first in [true, false] {
        wait_for(&path);
        let page = fs::read_to_string(&path).unwrap();
        assert!(is_first || page.contains(wanted), "{page}");
        fs::remove_file(&path).unwrap();
    }
    serving.signal("TERM");
    serving.end();
    assert!(fs::read_to_string(&path).unwrap().contains(wanted), "the report writes them too");
}

#[test]
fn metrics_that_cannot_be_written_are_refused_at_once() {
    let ran = bed::run(Vendor::Cuda, &["--metrics", "/none/metrics.prom"], Path::new("true"), &[]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.stderr.contains("cannot write to '/none/metrics.prom'"), "{ran:?}");
}

#[test]
fn a_quiet_run_says_nothing_about_the_program() {
    for part in ["pairs", "code"] {
        let ran = bed::run(Vendor::Cuda, &["--quiet"], &bed::program(Vendor::Cuda, Way::Opened), &[part]);
        assert_eq!(ran.stderr, "", "{ran:?}");
    }
}
