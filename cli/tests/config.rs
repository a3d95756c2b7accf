//! `cachette config` and `docs/config.md` describe every key.

mod program;

use std::path::Path;
use std::{env, fs};

use cachette::config::ConfigKey;
use program::run;

/// The text of `docs/config.md` above its table.
const HEAD: &str = "\
# The configuration

The configuration is the text `key:value,key:value`. White space is ignored.

| where | its configuration |
|---|---|
| PyTorch, CuPy and other libraries in Python; `cachette run`; C | an argument if there is one, or `CACHETTE_ALLOC_CONF` |
| Rust | `Allocator::with_config(device, &config)`; the environment only by `Config::from_env()` |
| `cachette replay` | `--config` alone |

If `CACHETTE_ALLOC_CONF` is unset or empty, PyTorch's variables are read: `PYTORCH_CUDA_ALLOC_CONF`,
`PYTORCH_HIP_ALLOC_CONF` and `PYTORCH_ALLOC_CONF`.

```sh
CACHETTE_ALLOC_CONF=memory_limit:40G,expandable_segments:False python3 train.py
```

```rust
let config = \"memory_limit:40G\".parse()?; // or Config::from_env()?, or Config::builder()
let allocator = Allocator::with_config(Backends::open(\"cuda:0\")?, &config)?;
```

`cachette config` prints this table in a terminal, and `cachette config KEY` one key. A switch is exactly `True` or
`False`. Two spellings in one row are the same key. A wrong key or value is an error that shows its position and the
allowed values. The keys from `memory_limit` on exist only in Cachette; the others are PyTorch's.

| key | value | default | what it does |
|---|---|---|---|
";

fn page() -> String {
    let row = |key: &ConfigKey| {
        let names: Vec<_> = key.spellings().iter().map(|name| format!("`{name}`")).collect();
        let cells = [&names.join(", "), key.values(), key.default_value(), &key.description()];
        format!("| {} |\n", cells.join(" | "))
    };
    let rows: String = ConfigKey::all().iter().map(row).collect();
    HEAD.to_owned() + &rows
}

#[test]
fn the_page_has_every_key() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/config.md");
    if env::var_os("UPDATE_CONFIG").is_some() {
        fs::write(&path, page()).unwrap();
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    assert!(found == page(), "docs/config.md lacks a change of a key; run this test with UPDATE_CONFIG=1");
}

#[test]
fn every_key_is_described_in_eighty_columns() {
    let ran = run(&["config"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stdout.lines().all(|line| line.chars().count() <= 80), "{ran:?}");
    for key in ConfigKey::all() {
        assert!(ran.stdout.contains(key.name()), "{} in {ran:?}", key.name());
        assert!(!key.description().is_empty(), "{}", key.name());
        assert!(!key.description().contains("[`"), "the page cannot follow a link of rustdoc: {}", key.name());
    }
}

#[test]
fn one_key_is_described_by_any_spelling() {
    let ran = run(&["config", "throw_on_hipmalloc_oom"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(
        ran.stdout,
        "throw_on_cudamalloc_oom, throw_on_hipmalloc_oom\n    \
         Whether a request beyond the limit fails at once, without any attempt to\n    \
         free memory.\n    \
         value: switch; default: False\n"
    );
}

#[test]
fn an_unknown_key_gets_a_suggestion() {
    let ran = run(&["config", "memory_limt"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{ran:?}");
    assert!(ran.stderr.contains("there is no key 'memory_limt' (did you mean 'memory_limit'?)"), "{ran:?}");
}
