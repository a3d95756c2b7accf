//! Every function that is looked for is exported by the real libraries.

use std::collections::HashSet;

const SOURCE: &str = include_str!("../src/symbols.rs");
const EXPORTED: [(&str, &str); 2] =
    [("6.4.3", include_str!("data/symbols-6.4.3.txt")), ("7.2.4", include_str!("data/symbols-7.2.4.txt"))];
const TOO_OLD: &str = include_str!("data/symbols-5.7.1.txt");

/// Names of the functions in the tables.
fn wanted() -> Vec<&'static str> {
    let names = SOURCE.lines().filter_map(|line| line.trim().split_once(": fn("));
    names.map(|(name, _)| name).filter(|name| name.starts_with("hip")).collect()
}

#[test]
fn real_libraries_export_every_function() {
    let wanted = wanted();
    assert!(wanted.len() > 60, "only {} were found in the source", wanted.len());
    for (version, exported) in EXPORTED {
        let exported: HashSet<_> = exported.split_whitespace().collect();
        let missing: Vec<_> = wanted.iter().filter(|name| !exported.contains(*name)).collect();
        assert!(missing.is_empty(), "{version} lacks {missing:?}");
    }
}

#[test]
fn no_function_is_looked_for_twice() {
    let (mut seen, wanted) = (HashSet::new(), wanted());
    let again: Vec<_> = wanted.iter().filter(|name| !seen.insert(**name)).collect();
    assert!(again.is_empty(), "{again:?}");
}

#[test]
fn a_library_that_is_too_old_would_lack_a_required_one() {
    let old: HashSet<_> = TOO_OLD.split_whitespace().collect();
    assert!(old.contains("hipRuntimeGetVersion"), "its version can be asked all the same");
    assert!(!old.contains("hipGetDevicePropertiesR0600"));
}
