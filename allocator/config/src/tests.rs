//! Tests of the configuration.

mod env;
mod formats;
mod properties;
mod roundup;
mod text;
mod values;

use super::{Config, ConfigError};

const MIB: u64 = 1 << 20;

/// A text that uses every key and every form of value.
const FULL: &str = "backend:cudaMallocAsync,large_segment_size_mb:25,max_split_size_mb:40,\
    max_non_split_rounding_mb:30,garbage_collection_threshold:0.5,\
    roundup_power2_divisions:[64:8,128:2,256:4,512:2,1024:4,>:1],expandable_segments:False,\
    expandable_segments_reserve:0.9,\
    release_lock_on_hipmalloc:True,per_process_memory_fraction:0.75,throw_on_hipmalloc_oom:True,\
    graph_capture_record_stream_reuse:True,pinned_use_hip_host_register:True,\
    pinned_num_register_threads:8,pinned_reserve_segment_size_mb:64,\
    pinned_max_cached_size_mb:128,pinned_max_round_threshold_mb:1,\
    pinned_use_background_threads:True,pinned_free_catch_all:True,memory_limit:40G,pinned:native,\
    elastic_setting:compact,\
    gpu_direct_rdma:True,never_block:True,caching:False,\
    reclaim:True,reclaim_share:20G,reclaim_wait:2.5,idle_release:30,host_reserve:4G";

fn config(text: &str) -> Config {
    text.parse().unwrap()
}

fn error(text: &str) -> ConfigError {
    text.parse::<Config>().unwrap_err()
}

/// The rule for a whole number of MiB.
fn mebibytes(least: u64) -> String {
    format!("a whole number of MiB from {least} to 17592186044415")
}
