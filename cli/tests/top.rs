//! `cachette top` shows what processes say of themselves.

mod program;

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Weak};

use cachette_ipc::reclaim::{Figures, Give, Holder, Neighbour, Place, register};
use program::{Ran, cachette, run};
use serde_json::Value;

const MIB: u64 = 1 << 20;
const DEVICE: [u8; 16] = [7; 16];
/// In the environment of a child: its reserved mebibytes.
const RESERVED: &str = "TEST_RESERVED";

/// An allocator that says what it is told to say.
struct Fixed(u64);

impl Neighbour for Fixed {
    fn figures(&self) -> Figures {
        let mut figures = Figures::default();
        (figures.pid, figures.program) = (std::process::id(), "train.py".to_owned());
        (figures.reserved, figures.allocated, figures.idle) = (self.0, self.0 / 2, self.0 / 2);
        (figures.limit, figures.requests, figures.ooms) = (Some(2 * self.0), 1000, 3);
        figures
    }

    fn give(&self, _: Give) -> u64 {
        0
    }

    fn holders(&self) -> Vec<Holder> {
        let holder = |name: &str, is_pool| Holder { name: name.to_owned(), is_pool, bytes: 5 << 20 };
        vec![holder("kv_cache", false), holder("default", true)]
    }

    fn write_snapshot(&self) -> String {
        "/tmp/memory.json".to_owned()
    }

    fn tick(&self) {}
}

/// The part of a child; in a plain run there is nothing to do.
#[test]
fn child() {
    let Ok(reserved) = std::env::var(RESERVED) else { return };
    let allocator: Arc<dyn Neighbour> = Arc::new(Fixed(reserved.parse::<u64>().unwrap() * MIB));
    let neighbour: Weak<dyn Neighbour> = Arc::downgrade(&allocator);
    let answers = register(Some((&Place::of_environment(), &DEVICE)), None, neighbour);
    let _answers = answers.expect("the folder is there");
    println!("ready");
    std::io::stdout().flush().unwrap();
    // Until the parent ends it, or is gone.
    let _ = std::io::stdin().lines().next();
}

/// A process with so many mebibytes, which ends with the value.
struct Process(Child);

impl Process {
    fn start(folder: &Path, reserved: u64) -> Self {
        let mut command = Command::new(std::env::current_exe().expect("it runs"));
        command.args(["child", "--exact", "--nocapture"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        command.env(RESERVED, reserved.to_string()).env("CACHETTE_RECLAIM_DIR", folder);
        let mut child = command.spawn().expect("the test can start itself");
        let lines = BufReader::new(child.stdout.take().expect("it is a pipe")).lines();
        assert!(lines.map_while(Result::ok).any(|line| line.ends_with("ready")));
        Self(child)
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn top(folder: &Path, option: &str) -> Ran {
    let output = cachette(&["top", option]).env("CACHETTE_RECLAIM_DIR", folder).output();
    Ran::of(&output.expect("it starts"))
}

/// The processes of the test's device.
fn processes(folder: &Path) -> Vec<Value> {
    let ran = top(folder, "--json");
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let sample: Value = serde_json::from_str(&ran.stdout).expect("it is JSON");
    let devices = sample["devices"].as_array().expect("a list");
    let device = devices.iter().find(|device| device["uuid"] == "07".repeat(16));
    device.map_or_else(Vec::new, |device| device["processes"].as_array().expect("a list").clone())
}

#[test]
fn every_process_says_what_it_holds() {
    let folder = tempfile::tempdir().unwrap();
    let running = [Process::start(folder.path(), 64), Process::start(folder.path(), 128)];
    let found = processes(folder.path());
    assert_eq!(found.len(), 2, "{found:?}");
    for (process, reserved) in running.iter().zip([64 * MIB, 128 * MIB]) {
        let row = found.iter().find(|row| row["pid"] == process.pid()).expect("it answers");
        let held = &row["cachette"];
        assert_eq!((&row["program"], &row["silent"]), (&"train.py".into(), &false.into()));
        assert_eq!((&held["reserved"], &held["idle"]), (&reserved.into(), &(reserved / 2).into()));
        assert_eq!((&held["limit"], &held["failures"]), (&(2 * reserved).into(), &3.into()));
        assert_eq!(held["requests_per_second"], 0.0, "none between two looks");
        assert_eq!(row["holders"][0]["name"], "kv_cache");
        assert_eq!((&row["holders"][1]["is_pool"], &row["holders"][1]["bytes"]), (&true.into(), &(5 * MIB).into()));
    }
    let text = top(folder.path(), "--once").stdout;
    for word in ["device 0707", "pid", "train.py", "64.00 MiB", "128.00 MiB", "256.00 MiB"] {
        assert!(text.contains(word), "{word} in {text}");
    }
}

#[test]
fn a_process_that_is_stopped_is_shown_and_one_that_was_killed_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let stopped = Process::start(folder.path(), 64);
    let killed = Process::start(folder.path(), 64);
    assert!(Command::new("kill").args(["-STOP", &stopped.pid().to_string()]).status().unwrap().success());
    drop(killed);
    let found = processes(folder.path());
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!((&found[0]["pid"], &found[0]["silent"]), (&stopped.pid().into(), &true.into()));
    assert!(found[0]["cachette"].is_null());
    assert!(top(folder.path(), "--once").stdout.contains("(no answer)"));
}

#[test]
fn a_folder_that_is_not_there_is_an_error() {
    let ran = top(Path::new("/no/such/folder"), "--once");
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.stderr.contains("CACHETTE_RECLAIM_DIR"), "{ran:?}");
}

#[test]
fn without_a_terminal_one_table_is_printed() {
    let folder = tempfile::tempdir().unwrap();
    let _process = Process::start(folder.path(), 64);
    let output = cachette(&["top"]).env("CACHETTE_RECLAIM_DIR", folder.path()).stdin(Stdio::null()).output();
    let ran = Ran::of(&output.unwrap());
    assert_eq!((ran.code, ran.stdout.contains("train.py")), (Some(0), true), "{ran:?}");
    let ran = run(&["top", "--interval", "0"]);
    assert_eq!((ran.code, ran.stderr.contains("from 0.1 to 3600")), (Some(2), true), "{ran:?}");
}
