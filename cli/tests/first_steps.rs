//! What a new user meets first.

mod program;

use program::{Ran, cachette, run};
use serde_json::Value;

/// Every command that has a page.
const COMMANDS: [&str; 9] =
    ["bench", "completions", "conformance", "devices", "doctor", "man", "replay", "run", "snapshot"];

#[test]
fn without_a_command_it_says_what_to_do_next() {
    let ran = run(&[]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    for next in ["cachette doctor", "cachette replay", "--device-size 80GB", "cachette --help"] {
        assert!(ran.stdout.contains(next), "{}", ran.stdout);
    }
}

#[test]
fn the_version_names_the_commit_and_the_backends() {
    let ran = run(&["--version"]);
    assert!(ran.stdout.starts_with(concat!("cachette ", env!("CARGO_PKG_VERSION"), " (")), "{ran:?}");
    assert!(ran.stdout.ends_with("; backends cuda, hip, host)\n"), "{ran:?}");
}

#[test]
fn every_page_of_help_fits_eighty_columns() {
    let pages = COMMANDS.iter().map(|command| vec![*command, "--help"]);
    for page in pages.chain([vec!["--help"], vec!["snapshot", "view", "--help"], vec![]]) {
        let ran = run(&page);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let wide: Vec<_> = ran.stdout.lines().filter(|line| line.chars().count() > 80).collect();
        assert!(wide.is_empty(), "{page:?}: {wide:?}");
    }
}

#[test]
fn every_command_is_completed_and_has_a_manual_page() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let ran = run(&["completions", shell]);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        for command in COMMANDS {
            assert!(ran.stdout.contains(command), "{shell} does not know {command}");
        }
    }
    assert!(run(&["man"]).stdout.contains(".TH cachette 1"));
    for command in COMMANDS {
        let ran = run(&["man", command]);
        assert!(ran.stdout.contains(".SH SYNOPSIS"), "{ran:?}");
    }
    let ran = run(&["man", "nonsense"]);
    assert_eq!(ran.code, Some(2));
    assert_eq!(ran.stderr, "error: there is no command 'nonsense'; `cachette --help` lists them\n");
    assert_eq!(run(&["completions", "cmd"]).code, Some(2));
}

fn doctor(more: &[&str]) -> Value {
    let ran = run(&[&["doctor", "--json"], more].concat());
    assert_eq!(ran.code, Some(0), "{ran:?}");
    serde_json::from_str(&ran.stdout).expect("the findings are JSON")
}

#[test]
fn the_doctor_looks_at_every_topic_with_a_remedy() {
    let found = doctor(&[]);
    assert_eq!(found["ready"], true);
    let findings = found["findings"].as_array().unwrap();
    for topic in [
        "NVIDIA driver",
        "AMD driver",
        "conformance",
        "C++ compiler",
        "RDMA",
        "memory locks",
        "sockets",
        "configuration",
    ] {
        let finding = findings.iter().find(|finding| finding["topic"] == topic);
        let finding = finding.unwrap_or_else(|| panic!("no finding about {topic}"));
        assert_eq!(finding["status"] != "ok", finding["remedy"].is_string(), "{finding}");
    }
    assert_eq!(findings[0]["status"], "note", "there is no driver in this test");
    let conformance = findings.iter().find(|finding| finding["topic"] == "conformance").unwrap();
    assert!(conformance["text"].as_str().unwrap().starts_with("host:0: "), "{conformance}");
}

#[test]
fn the_doctor_says_which_variable_is_wrong() {
    for (variable, value, topic, status) in [
        ("CACHETTE_ALLOC_CONF", "no_such_key:1", "configuration", "broken"),
        ("PYTORCH_ALLOC_CONF", "no_such_key:1", "configuration", "note"),
        ("CACHETTE_HOST_CAPACITY", "0", "host memory", "broken"),
        ("CACHETTE_CUDA_LIBRARY", "/none/libcuda.so", "NVIDIA driver", "note"),
        ("CACHETTE_LOG", "debug", "log", "note"),
    ] {
        let output = cachette(&["doctor", "--json"]).env(variable, value).output().expect("it starts");
        assert_eq!(output.status.code(), Some(i32::from(status == "broken")), "{variable}");
        let found: Value = serde_json::from_slice(&output.stdout).expect("the findings are JSON");
        let findings = found["findings"].as_array().expect("a list");
        let finding = findings.iter().find(|finding| finding["topic"] == topic).expect("the topic is there");
        assert_eq!((&finding["status"], found["ready"] == false), (&status.into(), status == "broken"), "{finding}");
        assert!(finding["text"].as_str().is_some_and(|text| text.contains(value)), "{finding}");
        assert!(finding["remedy"].is_string(), "{finding}");
    }
}

#[test]
fn the_doctor_fits_eighty_columns_without_colours_in_a_pipe() {
    let ran = run(&["doctor"]);
    assert!(ran.stdout.ends_with("\nready with host memory; there is no GPU that Cachette can use\n"), "{ran:?}");
    assert!(ran.stdout.lines().all(|line| line.chars().count() <= 80), "{}", ran.stdout);
    assert!(!ran.stdout.contains('\x1b'), "{}", ran.stdout);
}

#[test]
fn colours_are_a_choice() {
    let plain = run(&["doctor"]).stdout;
    let coloured = run(&["doctor", "--color", "always"]).stdout;
    assert!(coloured.contains("\x1b["), "{coloured}");
    assert_eq!(run(&["--color", "never", "doctor"]).stdout, plain);
    assert_eq!(run(&["--color", "perhaps", "doctor"]).code, Some(2));
}

#[test]
fn quiet_work_has_the_same_results() {
    let trace = concat!(env!("CARGO_MANIFEST_DIR"), "/../benches/traces/gpt2_varlen.trace.gz");
    let ran = run(&["replay", trace, "--fit", "--quiet"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
    assert_eq!(ran.stdout, run(&["replay", trace, "--fit"]).stdout);
}

#[test]
fn results_for_programs_have_the_standard_output_to_themselves() {
    let trace = concat!(env!("CARGO_MANIFEST_DIR"), "/../benches/traces/gpt2_varlen.trace.gz");
    for arguments in [
        &["replay", trace, "--json", "-"][..],
        &["replay", trace, "--fit", "--device-size", "80GB", "--json", "-"],
        &["bench", "--quick", "--threads", "1", "--json", "-"],
    ] {
        let ran = run(arguments);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        assert!(serde_json::from_str::<Value>(&ran.stdout).is_ok(), "{arguments:?}: {}", ran.stdout);
    }
}

#[test]
fn the_doctor_says_which_python_is_not_there() {
    for arguments in [&["--python", "/nonexistent/python"][..], &[]] {
        let mut command = cachette(&[&["doctor", "--json"], arguments].concat());
        command.env("CACHETTE_PYTHON", if arguments.is_empty() { "/nonexistent/python" } else { "python3" });
        let ran = Ran::of(&command.output().expect("the program starts"));
        let found: Value = serde_json::from_str(&ran.stdout).expect("the findings are JSON");
        let python = found["findings"].as_array().unwrap().iter().find(|finding| finding["topic"] == "Python").unwrap();
        assert!(python["text"].as_str().unwrap().starts_with("/nonexistent/python cannot be started: "), "{python}");
    }
}

#[test]
fn the_doctor_finds_an_emulated_driver_and_its_devices() {
    let library = std::path::Path::new(env!("CARGO_BIN_EXE_cachette")).with_file_name("libcachette_emulated_cuda.so");
    let library =
        if library.exists() { library } else { library.with_file_name("deps").join(library.file_name().unwrap()) };
    let output = cachette(&["doctor", "--json"]).env("CACHETTE_CUDA_LIBRARY", &library).output().unwrap();
    let found: Value = serde_json::from_slice(&output.stdout).expect("the findings are JSON");
    let findings = found["findings"].as_array().unwrap();
    assert_eq!(findings[0]["status"], "ok", "{found:#}");
    assert!(findings[0]["text"].as_str().unwrap().ends_with(", emulated"), "{found:#}");
    assert!(found["summary"].as_str().unwrap().contains("cuda:0"), "{found:#}");
}
