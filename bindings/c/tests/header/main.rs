//! The header: that it says what the library has, and that every function of it is tried from C.

mod generate;

use std::path::{Path, PathBuf};
use std::{env, fs};

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The names of the functions that the header declares.
fn functions(header: &str) -> Vec<&str> {
    let declared = header.lines().filter(|line| !line.starts_with([' ', '#']));
    let names = declared.filter_map(|line| {
        let (before, _) = line.split_once('(')?;
        let start = before.rfind("cachette_")?;
        Some(&before[start..]).filter(|name| !name.ends_with("_t"))
    });
    names.collect()
}

#[test]
fn the_header_is_what_the_sources_say() {
    let file = folder("include/cachette.h");
    let generated = generate::header();
    if env::var_os("UPDATE_HEADER").is_some() {
        fs::write(&file, &generated).expect("the header can be written");
    }
    assert!(
        read(&file) == generated,
        "cachette.h does not fit the sources; run the tests of cachette-c with UPDATE_HEADER=1"
    );
}

#[test]
fn the_header_is_plain_text_of_short_lines() {
    let header = generate::header();
    assert!(header.is_ascii());
    let long: Vec<_> = header.lines().filter(|line| line.len() > 120).collect();
    assert!(long.is_empty(), "{long:#?}");
}

#[test]
fn every_function_of_the_header_is_called_by_a_program_in_c() {
    let header = generate::header();
    let functions = functions(&header);
    assert!(functions.len() > 50, "the header is read: {functions:?}");
    let programs = fs::read_dir(folder("tests/c")).expect("the folder is there");
    let programs: Vec<String> = programs.map(|entry| read(&entry.expect("it can be read").path())).collect();
    let is_called = |name: &&&str| {
        let call = format!("{name}(");
        programs.iter().any(|program| program.contains(&call))
    };
    let forgotten: Vec<_> = functions.iter().filter(|name| !is_called(name)).collect();
    assert!(forgotten.is_empty(), "never called: {forgotten:?}");
}

#[test]
fn every_function_of_the_sources_is_in_the_header() {
    let header = generate::header();
    let declared = functions(&header);
    for file in fs::read_dir(folder("src")).expect("the folder is there") {
        let source = read(&file.expect("it can be read").path());
        for (_, after) in source.match_indices("extern \"C\" fn cachette_").map(|(at, _)| source.split_at(at)) {
            let name = after.trim_start_matches("extern \"C\" fn ");
            let name = name.split('(').next().expect("there is a first part");
            assert!(declared.contains(&name), "{name} is not in the header");
        }
    }
}
