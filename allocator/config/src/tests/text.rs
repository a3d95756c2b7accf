//! The grammar of the text form, and how mistakes are reported.

use super::{FULL, config, error};
use crate::parse::lex;
use crate::{Config, ConfigKey, KEYS};

#[test]
fn words_and_symbols_have_positions() {
    let tokens = lex(" a b:[é>,");
    let seen: Vec<_> = tokens.iter().map(|t| (t.text.as_str(), t.span.clone(), t.is_word())).collect();
    assert_eq!(
        seen,
        [("ab", 1..4, true), (":", 4..5, false), ("[", 5..6, false), ("é>", 6..9, true), (",", 9..10, false)]
    );
    assert!(tokens[1].is(':') && !tokens[1].is(','));
    assert!(lex(" \t\n").is_empty());
}

#[test]
fn white_space_and_a_last_comma_are_ignored() {
    let spaced = " caching : False ,\n\troundup_power2_divisions : [ 64 : 8 , > : 2 , ] , ";
    assert_eq!(config(spaced), config("caching:False,roundup_power2_divisions:[64:8,>:2]"));
    assert_eq!(config(""), Config::default());
    assert_eq!(config(" \n"), Config::default());
}

#[test]
fn the_text_is_written_with_the_first_spellings() {
    let expected = FULL.replace("_on_hipmalloc", "_on_cudamalloc").replace("use_hip_host", "use_cuda_host");
    assert_eq!(config(FULL).to_string(), expected);
    assert_eq!(Config::default().to_string(), "");
}

#[test]
fn each_spelling_belongs_to_one_key_which_every_full_text_has() {
    let mut seen = Vec::new();
    for key in KEYS {
        for full in [FULL, include_str!("../../../corpus/config/every-key.txt")] {
            let has_it = |name: &&str| full.split(',').any(|part| part.starts_with(&format!("{name}:")));
            assert!(key.spellings.iter().any(has_it), "add {} to {full}", key.name());
        }
        for name in key.spellings {
            assert_eq!(ConfigKey::find(name).unwrap().name(), key.name());
            assert!(!seen.contains(name), "{name} twice");
            seen.push(name);
            if key.spellings.len() > 1 {
                assert_eq!(config(&format!("{name}:True")).to_string(), format!("{}:True", key.name()));
            }
        }
    }
}

/// PyTorch accepts all of these in silence.
#[test]
fn mistakes_of_grammar_are_reported_at_their_position() {
    for (text, at, expected, found) in [
        ("caching", 0, "':' and a value after the key", "the end"),
        ("caching,True", 7, "':' and a value after the key", "','"),
        ("caching:True:False", 12, "',' or the end", "':'"),
        ("caching:True]", 12, "',' or the end", "']'"),
        ("caching:]", 8, "',' or the end", "']'"),
        ("caching::True", 8, "a value", "':'"),
        (",caching:True", 0, "a key", "','"),
        ("caching:True,,", 13, "a key", "','"),
        ("[caching:True]", 0, "a key", "'['"),
        (":", 0, "a key", "':'"),
        ("roundup_power2_divisions:[64:8>:2]", 31, "',' or ']'", "':'"),
        ("roundup_power2_divisions:[64]", 28, "':' and a value after the name of the entry", "']'"),
        ("roundup_power2_divisions:[,64:8]", 26, "an entry of the list or ']'", "','"),
        ("roundup_power2_divisions:[64:[8]]", 29, "a value", "'['"),
        ("roundup_power2_divisions:[64:8]]", 31, "',' or the end", "']'"),
    ] {
        let error = error(text);
        assert_eq!(error.message(), format!("expected {expected}, found {found}"), "{text}");
        assert_eq!(error.span().unwrap().start, at, "{text}");
    }
}

#[test]
fn lists_without_end_and_repetitions_are_refused() {
    let unclosed = "this '[' is never closed; add ']' after the last entry";
    let repeated = "release_lock_on_cudamalloc is given twice, first at byte 0; keep one of them";
    let entry = |entry: &str| {
        format!("roundup_power2_divisions: the list already has an entry for '{entry}'; keep one of them")
    };
    for (text, span, message) in [
        ("roundup_power2_divisions:[", 25..26, unclosed.to_owned()),
        ("roundup_power2_divisions:[64:8,", 25..26, unclosed.to_owned()),
        ("release_lock_on_cudamalloc:True, release_lock_on_hipmalloc:True", 33..58, repeated.to_owned()),
        ("roundup_power2_divisions:[64:8,64:4]", 31..33, entry("64")),
        ("roundup_power2_divisions:[32768:8,65536:4]", 34..39, entry("65536")),
        ("roundup_power2_divisions:[>:8,>:4]", 30..31, entry(">")),
    ] {
        let error = error(text);
        assert_eq!((error.message(), error.span()), (message.as_str(), Some(span)), "{text}");
    }
}

#[test]
fn the_mistake_is_underlined() {
    for shown in [
        "at byte 33: expandable_segments: 'true' is not allowed; use True or False
  caching:True,expandable_segments:true
                                   ^^^^",
        // A missing value is marked at its colon.
        "at byte 11: never_block: the value is missing; use True or False
  never_block:
             ^",
        "at byte 8: backend: 'hipMallocAsync' is not allowed; \
         use native, or cudaMallocAsync for the driver's own pool, on AMD's devices too
  backend:hipMallocAsync
          ^^^^^^^^^^^^^^",
        "at byte 45: expandable_segments_reserve_by_class: '2' is not allowed; use a fraction of the device's memory \
         above 0 and up to 1.125, such as 0.5, or a size with a unit, such as 40G or 80GiB
  expandable_segments_reserve_by_class:[a:1G,b:2]
                                               ^",
        "at byte 37: expandable_segments_reserve_by_class: '40G' is not allowed; \
         use a list such as [prefill:0.5,decode:40G]
  expandable_segments_reserve_by_class:40G
                                       ^^^",
    ] {
        let text = shown.lines().nth(1).unwrap().trim();
        assert_eq!(error(text).to_string(), shown);
    }
    // Columns count characters, and a line break does not displace the mark.
    assert_eq!(
        error("caching:True,\n never_block:é,backend:ë").to_string(),
        "at byte 27: never_block: 'é' is not allowed; use True or False
  caching:True,  never_block:é,backend:ë
                             ^"
    );
}

#[test]
fn an_unknown_key_names_the_closest_and_all() {
    let text = error("max_split_size:40").to_string();
    assert!(text.starts_with(
        "at byte 0: there is no key 'max_split_size' (did you mean 'max_split_size_mb'?); \
         the keys are backend, large_segment_size_mb, "
    ));
    let last = KEYS.last().unwrap().name();
    assert!(text.ends_with(&format!(", {last}\n  max_split_size:40\n  ^^^^^^^^^^^^^^")), "{text}");
    assert!(error("foo:1").message().starts_with("there is no key 'foo'; the keys are"));
    assert_eq!(ConfigKey::closest("Expandable_Segment"), Some("expandable_segments"));
    assert_eq!(ConfigKey::closest("release_lock_on_hipmaloc"), Some("release_lock_on_hipmalloc"));
    assert_eq!(ConfigKey::closest("limit"), Some("memory_limit"));
    assert_eq!(ConfigKey::closest("MEMORY_LIMIT"), Some("memory_limit"));
    assert_eq!(ConfigKey::closest("segment"), None, "several keys contain it");
    assert_eq!(ConfigKey::closest(""), None);
    assert_eq!(ConfigKey::closest(&"x".repeat(1 << 20)), None);
}

#[test]
fn a_long_text_is_shown_around_the_mistake() {
    let long = "é".repeat(1 << 20);
    for text in
        [long.clone(), format!("{long}:1"), format!("caching:{long}"), format!("roundup_power2_divisions:[{long}")]
    {
        assert!(error(&text).to_string().len() < 4000, "{}", error(&text).to_string().len());
        assert!(error(&text).message().len() < 2000);
    }
    let spaces = " ".repeat(1000);
    let shown = error(&format!("caching:True,{spaces}never_block:no,{spaces}")).to_string();
    let (context, [marked, after]) = (" ".repeat(200 - "never_block:".len()), ["never_block:no,", "^^"]);
    let lines: Vec<&str> = shown.lines().skip(1).collect();
    assert_eq!(lines[0].trim_end_matches(['…', ' ']), format!("  …{context}{marked}"));
    assert_eq!(lines[1], format!("  {}{after}", " ".repeat(201)));
}
