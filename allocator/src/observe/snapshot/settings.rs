//! A configuration as the settings of a snapshot.

use cachette_snapshot::Setting;

use crate::config::Config;

/// Returns the settings: first the keys of other snapshot readers, then those of this allocator only.
pub(super) fn settings(config: &Config) -> Vec<(String, Setting)> {
    let switch = Setting::Switch;
    let settings = [
        ("PYTORCH_CUDA_ALLOC_CONF", Setting::Text(config.to_string())),
        ("max_split_size", bytes_or(config.max_split_bytes(), Setting::Integer(-1))),
        ("garbage_collection_threshold", Setting::Number(config.gc_threshold().unwrap_or(0.0))),
        ("expandable_segments", switch(config.expandable_segments())),
        ("pinned_num_register_threads", Setting::Integer(config.pinned_register_threads().into())),
        ("release_lock_on_cudamalloc", switch(config.release_lock_on_malloc())),
        ("pinned_use_cuda_host_register", switch(config.pinned_use_host_register())),
        ("graph_capture_record_stream_reuse", switch(config.graph_capture_record_stream_reuse())),
        ("roundup_power2_divisions", divisions(config)),
        // The keys of this allocator only.
        ("large_segment_size", bytes_or(Some(config.large_segment_bytes()), Setting::None)),
        ("memory_limit", bytes_or(config.memory_limit(), Setting::None)),
        ("per_process_memory_fraction", config.memory_fraction().map_or(Setting::None, Setting::Number)),
        ("elastic_setting", Setting::Text(config.elastic_setting().to_string())),
        ("gpu_direct_rdma", switch(config.gpu_direct_rdma())),
        ("never_block", switch(config.never_block())),
        ("caching", switch(config.caching())),
    ];
    settings.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

fn bytes_or(bytes: Option<u64>, none: Setting) -> Setting {
    bytes.map_or(none, |bytes| Setting::Integer(i64::try_from(bytes).unwrap_or(i64::MAX)))
}

/// The divisions of every interval, by its start in MiB.
fn divisions(config: &Config) -> Setting {
    let intervals = (0_u32..).zip(config.roundup_divisions());
    let entry = |(nth, count): (u32, &u32)| ((1_u64 << nth).to_string(), Setting::Integer((*count).into()));
    Setting::Table(intervals.map(entry).collect())
}
