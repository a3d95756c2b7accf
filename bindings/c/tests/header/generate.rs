//! Writes the header, section by section: one for every file of the library that has something for C.

use std::path::Path;

use cbindgen::{Builder, Config, DocumentationStyle, Language, RenameRule, Style};

/// The text before the first section.
const PREAMBLE: &str = include_str!("preamble.h");

/// The text after the last one.
const END: &str = "\n#ifdef __cplusplus\n} /* extern \"C\" */\n#endif\n\n#endif /* CACHETTE_H */\n";

/// The sections in the order of the header: a file of the library, and what the section is called.
const SECTIONS: [(&str, &str); 27] = [
    ("version", "Versions"),
    ("status", "Status codes"),
    ("last", "The last error"),
    ("allocator", "Allocators"),
    ("shared", "Allocators that the process shares"),
    ("device", "Devices"),
    ("stream", "Streams"),
    ("memory", "Memory"),
    ("transfer", "Fills and copies, in stream order"),
    ("dlpack", "Tensors of DLPack"),
    ("pool_id", "Pool identifiers"),
    ("pool_options", "Pool options"),
    ("pool", "Pools"),
    ("routing", "Routing of requests to pools"),
    ("checkpoint", "Checkpoints of pools"),
    ("capture", "Captures and graphs"),
    ("addresses", "Addresses in files"),
    ("sleep", "Sleep mode"),
    ("evict", "Eviction"),
    ("growable", "Growable allocations"),
    ("statistics", "Statistics"),
    ("pinned", "Pinned host memory"),
    ("limits", "Limits"),
    ("config", "Configuration"),
    ("observers", "Callbacks"),
    ("history", "History"),
    ("snapshot", "Snapshots"),
];

/// What Rust calls a type, and what C does.
const TYPES: [(&str, &str); 34] = [
    ("Action", "cachette_action_t"),
    ("AllocatorHandle", "cachette_allocator_t"),
    ("CaptureHandle", "cachette_capture_t"),
    ("CheckpointHandle", "cachette_checkpoint_t"),
    ("DeviceFacts", "cachette_device_info_t"),
    ("Event", "cachette_event_t"),
    ("Figure", "cachette_stat_t"),
    ("Figures", "cachette_stat_array_t"),
    ("GivenHistory", "cachette_history_options_t"),
    ("GivenOptions", "cachette_pool_options_t"),
    ("GraphHandle", "cachette_graph_t"),
    ("GrowableFigures", "cachette_growable_info_t"),
    ("GrowableHandle", "cachette_growable_t"),
    ("InsideHandle", "cachette_inside_t"),
    ("OutOfMemoryCallback", "cachette_out_of_memory_fn"),
    ("OutOfMemoryFigures", "cachette_out_of_memory_t"),
    ("PinnedFigures", "cachette_pinned_stats_t"),
    ("PoolCallback", "cachette_pool_fn"),
    ("PoolFigures", "cachette_pool_stats_t"),
    ("PoolHandle", "cachette_pool_t"),
    ("PoolName", "cachette_pool_id_t"),
    ("PressureCallback", "cachette_pressure_fn"),
    ("ProgressCallback", "cachette_progress_fn"),
    ("RangeCallback", "cachette_range_fn"),
    ("ResidentHandle", "cachette_resident_t"),
    ("SleptFigures", "cachette_slept_t"),
    ("SourceAllocate", "cachette_source_allocate_fn"),
    ("SourceClose", "cachette_source_close_fn"),
    ("SourceFree", "cachette_source_free_fn"),
    ("Statistics", "cachette_stats_t"),
    ("Status", "cachette_status_t"),
    ("TimeFigure", "cachette_time_stat_t"),
    ("TrackCallback", "cachette_track_fn"),
    ("Vendor", "cachette_vendor_t"),
];

/// Prefixes of enumerators as they are made of the types' names, and as C has them.
const ENUMERATORS: [(&str, &str); 4] = [
    ("CACHETTE_STATUS_T_OK", "CACHETTE_OK"),
    ("CACHETTE_STATUS_T_", "CACHETTE_ERROR_"),
    ("CACHETTE_VENDOR_T_", "CACHETTE_VENDOR_"),
    ("CACHETTE_ACTION_T_", "CACHETTE_ACTION_"),
];

/// The whole header.
pub(crate) fn header() -> String {
    let sections = SECTIONS.iter().map(|(file, title)| format!("\n/* ---- {title} ---- */\n\n{}", section(file)));
    let sections: Vec<String> = sections.collect();
    format!("{PREAMBLE}{}{END}", sections.concat())
}

/// What a file of the library has for C.
fn section(file: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("src/{file}.rs"));
    let bindings = Builder::new()
        .with_config(config())
        .with_src(path)
        .generate()
        .unwrap_or_else(|error| panic!("{file}: {error}"));
    let mut text = Vec::new();
    bindings.write(&mut text);
    let mut text = String::from_utf8(text).expect("the sources are UTF-8");
    for (made, wanted) in ENUMERATORS {
        text = text.replace(made, wanted);
    }
    text.trim_matches('\n').to_owned() + "\n"
}

fn config() -> Config {
    let mut config = Config {
        language: Language::C,
        style: Style::Both,
        documentation_style: DocumentationStyle::Cxx,
        line_length: 100,
        no_includes: true,
        usize_is_size_t: true,
        ..Config::default()
    };
    config.enumeration.rename_variants = RenameRule::QualifiedScreamingSnakeCase;
    // No function in their sections refers to them.
    config.export.include = ["Status", "GivenOptions"].map(str::to_owned).to_vec();
    config.export.rename = TYPES.iter().map(|(rust, c)| ((*rust).to_owned(), (*c).to_owned())).collect();
    config
}
