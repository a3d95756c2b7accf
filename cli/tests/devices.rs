//! `cachette devices` lists what there is, and says why not the rest.

mod program;

use std::fs::File;
use std::process::Stdio;

use program::{Ran, cachette, run};
use serde_json::{Value, json};

fn listing() -> Value {
    let ran = run(&["devices", "--format", "json"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    serde_json::from_str(&ran.stdout).expect("the list is JSON")
}

#[test]
fn every_backend_is_listed_and_an_absent_one_says_why() {
    let listing = listing();
    let backends = listing["backends"].as_array().unwrap();
    let names: Vec<_> = backends.iter().map(|it| it["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["cuda", "hip", "host"]);
    for backend in backends {
        match backend["status"].as_str().unwrap() {
            "present" => assert!(backend["devices"].is_array(), "{backend}"),
            "absent" => assert!(!backend["reason"].as_str().unwrap().is_empty(), "{backend}"),
            other => panic!("unknown status {other}"),
        }
    }
}

#[test]
fn the_host_device_is_present_with_its_facts() {
    let listing = listing();
    let host = &listing["backends"][2];
    assert_eq!(host["status"], "present");
    assert!(host["version"].is_string());
    assert!(host["library"].is_string());
    assert!(host["emulated"].is_boolean());
    let device = &host["devices"][0];
    assert_eq!(device["ordinal"], 0);
    assert_eq!(device["status"], "present");
    assert_eq!(device["total_memory"], 1_u64 << 30);
    assert_eq!(device["free_memory"], 1_u64 << 30);
    assert_eq!(device["base_alignment"], 512);
    assert_eq!(device["granularity"]["minimum"], 2 << 20);
}

#[test]
fn every_feature_is_present_or_absent_with_a_reason() {
    let listing = listing();
    let features = listing["backends"][2]["devices"][0]["features"].clone();
    let features = features.as_array().unwrap();
    assert_eq!(features.len(), 8);
    assert_eq!(features[0]["name"], "virtual memory");
    for feature in features {
        assert!(feature["name"].is_string(), "{feature}");
        assert_eq!(feature["status"] == "absent", feature["reason"].is_string(), "{feature}");
    }
}

#[test]
fn the_text_has_the_same_facts() {
    let ran = run(&["devices"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stdout.contains("\nhost: host version "), "{}", ran.stdout);
    assert!(ran.stdout.contains("\n  host:0  "), "{}", ran.stdout);
    assert!(ran.stdout.contains("    memory                 1.00 GiB, 1.00 GiB free\n"), "{}", ran.stdout);
    assert!(ran.stdout.contains("    virtual memory         yes\n"), "{}", ran.stdout);
    assert!(ran.stdout.contains("    elastic segments       yes\n"), "{}", ran.stdout);
}

#[test]
fn the_configuration_says_whether_segments_are_elastic() {
    let entry = |text: &str| {
        let output = cachette(&["devices", "--format", "json"]).env("CACHETTE_ALLOC_CONF", text).output().unwrap();
        let listing: Value = serde_json::from_slice(&output.stdout).expect("the list is JSON");
        listing["backends"][2]["devices"][0]["elastic_segments"].clone()
    };
    assert_eq!(entry(""), json!({ "status": "present" }));
    let reason = "the configuration says expandable_segments:False";
    assert_eq!(entry("expandable_segments:False"), json!({ "status": "absent", "reason": reason }));
}

#[test]
fn a_reader_that_leaves_early_is_no_error() {
    let mut child = cachette(&["devices"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let ran = Ran::of(&child.wait_with_output().unwrap());
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
}

#[test]
fn output_that_cannot_be_written_is_a_failure() {
    let full = File::options().write(true).open("/dev/full").unwrap();
    let output = cachette(&["devices"]).stdout(full).output().unwrap();
    let ran = Ran::of(&output);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.stderr.starts_with("error: could not write the output: "), "{ran:?}");
}
