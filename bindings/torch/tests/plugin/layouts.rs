//! The class and the library agree on every structure and every name.

use std::fmt::Write;
use std::mem::{offset_of, size_of};

use cachette_torch::MempoolId;
use cachette_torch::adapter::{
    ADAPTER_VERSION, BlockEntry, EventEntry, Figures, PinnedFigures, PoolSource, SegmentEntry, Text, Visitor,
};

use super::Case;
use super::cpp::Folder;

pub(crate) const CASES: &[Case] =
    &[("layouts_are_the_same_on_both_sides", same), ("every_function_that_the_class_asks_is_there", there)];

const HEADER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../python/python/cachette_gpu/torch/adapter/interface.hpp");
const INTERFACE: &str = include_str!("../../../python/python/cachette_gpu/torch/adapter/interface.hpp");
const SOURCES: [&str; 14] = [
    include_str!("../../src/entry.rs"),
    include_str!("../../src/hooks.rs"),
    include_str!("../../src/adapter.rs"),
    include_str!("../../src/adapter/memory.rs"),
    include_str!("../../src/adapter/figures.rs"),
    include_str!("../../src/adapter/pools.rs"),
    include_str!("../../src/adapter/checkpoints.rs"),
    include_str!("../../src/ipc.rs"),
    include_str!("../../src/adapter/watching.rs"),
    include_str!("../../src/adapter/contents.rs"),
    include_str!("../../src/adapter/annotations.rs"),
    include_str!("../../src/adapter/contexts.rs"),
    include_str!("../../src/adapter/pinned.rs"),
    include_str!("../../src/adapter/settings.rs"),
];

/// What the header must say of a structure: its size, and where its fields lie.
macro_rules! layout {
    ($text:ident, $ours:ty, $theirs:literal, $($field:ident),*) => {
        writeln!($text, "static_assert(sizeof({}) == {});", $theirs, size_of::<$ours>()).unwrap();
        $(
            let (name, at) = (stringify!($field), offset_of!($ours, $field));
            writeln!($text, "static_assert(offsetof({}, {name}) == {at});", $theirs).unwrap();
        )*
    };
}

fn same() {
    let Some(folder) = Folder::new() else { return };
    let mut text = format!("#include \"{HEADER}\"\nusing namespace cachette;\n");
    writeln!(text, "static_assert(interface_version == {ADAPTER_VERSION});").unwrap();
    layout!(text, MempoolId, "PoolId", first, second);
    layout!(text, Figures, "Figures", arrays, oversize, counts);
    layout!(text, PinnedFigures, "PinnedFigures", stats, times, counts);
    layout!(text, Text, "Text", start, bytes);
    layout!(
        text,
        SegmentEntry,
        "Segment",
        address,
        bytes,
        requested,
        allocated,
        active,
        stream,
        order,
        pool,
        device,
        stack,
        large,
        elastic
    );
    layout!(text, BlockEntry, "Block", address, bytes, requested, stack, allocated, active);
    layout!(text, EventEntry, "Event", action, device, address, bytes, stream, pool, time_us, context, metadata, stack);
    layout!(text, Visitor, "Visitor", segment, block, event, user);
    layout!(text, PoolSource, "PoolSource", allocate, free, close, user);
    folder.build("liblayouts.so", &text, &[]);
}

fn there() {
    let asked = INTERFACE.lines().filter_map(|line| {
        let (_, rest) = line.trim().strip_prefix("F(")?.split_once(", ")?;
        Some(rest.split([',', ' ']).next().unwrap_or(rest))
    });
    let names: Vec<&str> = asked.collect();
    assert_eq!(names.len(), 54);
    let all = SOURCES.concat();
    for name in names {
        assert!(all.contains(&format!("fn {name}(")), "there is no {name}");
    }
}
