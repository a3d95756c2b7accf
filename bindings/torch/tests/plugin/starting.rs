//! How the plug-in starts, and what it is then.

use std::thread;

use cachette::Config;
use cachette_process::{Error, StartError};

use super::Case;
use super::bed::{self, DEFAULT, MIB, allocate};
use super::cpp;

pub(crate) const CASES: &[Case] = &[
    ("it_starts_once_and_says_so_the_second_time", once),
    ("an_unknown_backend_is_answered_with_those_there_are", unknown_backend),
    ("devices_are_opened_at_first_use", first_use),
    ("a_device_that_is_not_there_is_told_with_their_number", no_such_device),
    ("without_a_driver_it_does_not_start_by_itself", nothing_loaded),
    ("it_starts_by_itself_with_the_driver_that_is_loaded", by_itself),
];

fn once() {
    assert!(!cachette_process::is_started());
    assert_eq!(cachette_process::config(), None);
    let config: Config = "max_split_size_mb:64".parse().unwrap();
    cachette_process::start("host", &config).unwrap();
    assert!(cachette_process::is_started());
    assert_eq!(cachette_process::backend(), Some("host"));
    assert_eq!(cachette_process::config(), Some(config.clone()));

    let again = cachette_process::start("cuda", &Config::default()).unwrap_err();
    assert_eq!(again, StartError::Started { backend: "host".into() });
    let text = again.to_string();
    assert!(text.contains("started before in this process, with the backend 'host'"), "{text}");
    assert!(text.contains("update_config"), "it says what to do: {text}");
    assert_eq!(cachette_process::config(), Some(config.clone()), "the first stays");
}

fn unknown_backend() {
    let error = cachette_process::start("metal", &Config::default()).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("'metal'; choose one of cuda, hip, host"), "{text}");
    assert!(!cachette_process::is_started(), "another name may follow");
}

fn first_use() {
    bed::start("");
    assert_eq!(cachette_process::opened().count(), 0);
    let memory = allocate(MIB, 1, DEFAULT);
    assert!(!memory.is_null());
    let opened: Vec<u32> = cachette_process::opened().map(|(device, _)| device).collect();
    assert_eq!(opened, [1]);
    bed::allocator(0);
    assert_eq!(cachette_process::opened().count(), 2);
    // Every thread finds the same one.
    let found = thread::spawn(|| std::ptr::from_ref(bed::allocator(1)).addr());
    let here = std::ptr::from_ref(bed::allocator(1)).addr();
    assert_eq!(found.join().unwrap(), here);
}

fn no_such_device() {
    bed::start("");
    let text = |device| cachette_process::allocator(device).unwrap_err().to_string();
    assert_eq!(text(2), "there is no device host:2; it has 2 devices, numbers 0 to 1");
    assert_eq!(text(1000), "there is no device 1000; the numbers are 0 to 63");
    assert!(allocate(MIB, -1, DEFAULT).is_null());
}

fn nothing_loaded() {
    let error = cachette_process::allocator(0).unwrap_err();
    assert_eq!(error, Error::Start(StartError::NothingLoaded));
    assert!(error.to_string().contains("use a device with the program's own library first"), "it says what to do");
    assert!(allocate(MIB, 0, DEFAULT).is_null(), "there is no PyTorch to tell");
    assert!(!cachette_process::is_started());
}

/// A library of the driver's name that is none: it shows which backend is chosen, and why it cannot be had.
fn by_itself() {
    let Some(folder) = cpp::Folder::new() else { return };
    let driver = folder.build("libcuda.so.1", "int nothing;", &[]);
    cpp::load(&driver);
    let error = cachette_process::allocator(0).unwrap_err().to_string();
    assert_eq!(cachette_process::backend(), Some("cuda"));
    assert!(error.contains("'cuda' cannot be used here"), "{error}");
    assert!(error.contains("cuInit"), "it is the loaded copy: {error}");
}
