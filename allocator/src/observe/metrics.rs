//! The figures of an allocator in the text format of Prometheus.

#![forbid(unsafe_code)]

use std::fmt::{self, Write};
use std::slice;

use cachette_hal::{Device, Ordinal, Vendor};

use crate::allocator::Allocator;
use crate::stats::{OutsideStats, Stat, StatArray, Stats};

/// The figures of an allocator at one moment, for monitoring.
///
/// ```
/// # use cachette::{Allocator, Backends};
/// # let allocator = Allocator::new(Backends::open("host")?);
/// let mut page = String::new();
/// allocator.metrics().write_prometheus(&mut page, &[("job", "training")])?;
/// assert!(page.contains("cachette_limit_bytes{device=\"0\",backend=\"host\",job=\"training\"} +Inf"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metrics {
    /// The device.
    pub device: Ordinal,
    /// The backend of the device: `cuda`, `hip` or `host`.
    pub backend: &'static str,
    /// The statistics.
    pub stats: Stats,
    /// The memory limit, if there is one.
    pub limit: Option<u64>,
    /// The device's total and free memory; `None` if the driver query failed.
    pub device_memory: Option<(u64, u64)>,
    /// The elastic segments; `stats` counts direct ones alone.
    pub elastic_segments: usize,
    /// The chunks of memory that fill elastic segments.
    pub chunks: usize,
    /// Bytes of blocks in use by the [label](crate::Label) of their library or component; memory without one has none.
    pub by_label: Vec<(&'static str, u64)>,
    /// Bytes that the program took past the allocator, if something counts them.
    pub outside: OutsideStats,
}

/// A figure of a page: its name, description and kind, and a line for each value.
struct PageFigure {
    name: String,
    help: String,
    kind: &'static str,
    lines: String,
}

impl<D: Device> Allocator<D> {
    /// Returns the current figures. Queries the free memory from the driver.
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        let memory = self.device().memory_info().ok();
        let backend = match self.device_info().vendor {
            Vendor::Nvidia => "cuda",
            Vendor::Amd => "hip",
            _ => "host",
        };
        let heaps = self.inner().heaps.all();
        Metrics {
            device: self.device_info().ordinal,
            backend,
            elastic_segments: heaps.iter().map(|heap| heap.address_ranges().len()).sum(),
            chunks: self.inner().shared.chunks.count(),
            by_label: self.memory_holders().by_label,
            outside: self.outside(),
            stats: self.stats(),
            limit: self.memory_limit(),
            device_memory: memory.map(|memory| (memory.total, memory.free)),
        }
    }
}

impl Metrics {
    /// Writes all figures in the text exposition format. Every figure has the device, the backend and `labels` as labels.
    ///
    /// Label names have letters, digits and underscores, and none is `device`, `backend`, `kind` or `version`. Values are
    /// escaped.
    pub fn write_prometheus(&self, out: &mut impl Write, labels: &[(&str, &str)]) -> fmt::Result {
        Self::write_all(slice::from_ref(self), out, labels)
    }

    /// Writes the figures of several allocators as one page, each figure once with all its values.
    pub fn write_all(all: &[Self], out: &mut impl Write, labels: &[(&str, &str)]) -> fmt::Result {
        let mut page: Vec<PageFigure> = Vec::new();
        for figure in all.iter().flat_map(|metrics| metrics.figures(labels)) {
            match page.iter_mut().find(|known| known.name == figure.name) {
                Some(known) => known.lines += &figure.lines,
                None => page.push(figure),
            }
        }
        for PageFigure { name, help, kind, lines } in page {
            write!(out, "# HELP cachette_{name} {help}\n# TYPE cachette_{name} {kind}\n{lines}")?;
        }
        Ok(())
    }

    fn figures(&self, labels: &[(&str, &str)]) -> Vec<PageFigure> {
        let mut common = format!("device=\"{}\",backend=\"{}\"", self.device.0, self.backend);
        common.extend(labels.iter().map(|(label, text)| format!(",{label}=\"{}\"", escaped(text))));
        let mut page = Vec::new();
        // Adds a figure: its description, and each value with its additional labels.
        let mut figure = |name: &str, help: &str, kind, values: &[(&str, String)]| {
            let lines = values.iter().map(|(own, value)| format!("cachette_{name}{{{common}{own}}} {value}\n"));
            page.push(PageFigure { name: name.to_owned(), help: help.to_owned(), kind, lines: lines.collect() });
        };
        let version = concat!(",version=\"", env!("CARGO_PKG_VERSION"), "\"");
        figure("build_info", "Always 1; the version is a label.", "gauge", &[(version, "1".to_owned())]);
        for (name, help, array) in self.gauges() {
            let rows = [("all", array.all), ("small", array.small_pool), ("large", array.large_pool)];
            let rows = rows.map(|(kind, stat)| (format!(",kind=\"{kind}\""), stat));
            let values = |of: fn(&Stat) -> u64| rows.each_ref().map(|(own, stat)| (own.as_str(), of(stat).to_string()));
            figure(name, help, "gauge", &values(|stat| stat.current));
            let (peak, help) = (format!("{name}_peak"), format!("Highest so far. {help}"));
            figure(&peak, &help, "gauge", &values(|stat| stat.peak));
        }
        for (name, help, count) in [
            ("elastic_segments", "Elastic segments: address ranges that chunks of memory fill.", self.elastic_segments),
            ("chunks", "Chunks of memory that fill elastic segments.", self.chunks),
        ] {
            figure(name, help, "gauge", &[("", count.to_string())]);
        }
        let by_label = self.by_label.iter().map(|(label, bytes)| (format!(",label=\"{}\"", escaped(label)), *bytes));
        let by_label: Vec<_> = by_label.collect();
        let by_label: Vec<_> = by_label.iter().map(|(own, bytes)| (own.as_str(), bytes.to_string())).collect();
        figure("labelled_bytes", "Bytes of blocks in use, by library or component.", "gauge", &by_label);
        let outside = self.outside.by_kind().map(|(kind, stat)| (format!(",kind=\"{kind}\""), stat));
        let values = |of: fn(&Stat) -> u64| outside.each_ref().map(|(own, stat)| (own.as_str(), of(stat).to_string()));
        let help = "Bytes taken past the allocator: of the device, managed, and page-locked on the host.";
        figure("outside_bytes", help, "gauge", &values(|stat| stat.current));
        figure("outside_bytes_peak", &format!("Highest so far. {help}"), "gauge", &values(|stat| stat.peak));
        for (name, help, count) in self.counters() {
            figure(name, help, "counter", &[("", count.to_string())]);
        }
        let limit = self.limit.map_or_else(|| "+Inf".to_owned(), |limit| limit.to_string());
        figure("limit_bytes", "Bytes that this allocator may hold.", "gauge", &[("", limit)]);
        if let Some((total, free)) = self.device_memory {
            figure("device_memory_bytes", "Memory of the device.", "gauge", &[("", total.to_string())]);
            figure("device_free_bytes", "Memory of the device that is free.", "gauge", &[("", free.to_string())]);
        }
        page
    }

    fn gauges(&self) -> [(&'static str, &'static str, &StatArray); 9] {
        let stats = &self.stats;
        [
            ("allocations", "Blocks allocated now.", &stats.allocation),
            ("allocated_bytes", "Bytes of blocks allocated now.", &stats.allocated_bytes),
            ("requested_bytes", "Bytes requested, before rounding.", &stats.requested_bytes),
            ("active_blocks", "Blocks allocated or still used by other streams.", &stats.active),
            ("active_bytes", "Bytes of blocks allocated or still used by other streams.", &stats.active_bytes),
            ("segments", "Direct segments reserved; see elastic_segments and chunks for the others.", &stats.segment),
            ("reserved_bytes", "Bytes reserved from the device.", &stats.reserved_bytes),
            ("inactive_split_blocks", "Free blocks that are a part of their segment.", &stats.inactive_split),
            (
                "inactive_split_bytes",
                "Bytes of free blocks that are a part of their segment.",
                &stats.inactive_split_bytes,
            ),
        ]
    }

    fn counters(&self) -> [(&'static str, &'static str, u64); 13] {
        let stats = &self.stats;
        [
            ("allocated_total", "Blocks allocated since start.", stats.allocation.all.allocated),
            ("allocated_bytes_total", "Bytes of blocks allocated since start.", stats.allocated_bytes.all.allocated),
            ("freed_total", "Blocks freed since start.", stats.allocation.all.freed),
            (
                "device_allocations_total",
                "Segments and chunks allocated from the device since start.",
                stats.num_device_alloc,
            ),
            ("device_frees_total", "Segments and chunks released to the device since start.", stats.num_device_free),
            ("retries_total", "Device allocations retried after memory was released.", stats.num_alloc_retries),
            ("waits_total", "Waits for other streams.", stats.num_sync_all_streams),
            ("evictions_total", "Pools evicted so that requests got their memory.", stats.num_evictions),
            ("reclaims_total", "Times that other processes were asked for memory.", stats.num_reclaims),
            ("reclaimed_bytes_total", "Bytes received from other processes.", stats.reclaimed_bytes),
            ("given_bytes_total", "Bytes released for other processes.", stats.given_bytes),
            ("out_of_memory_total", "Out-of-memory errors.", stats.num_ooms),
            ("rejections_total", "Requests rejected by the memory limit.", stats.num_oom_rejections),
        ]
    }
}

impl fmt::Display for Metrics {
    /// The text exposition format, without further labels.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_prometheus(f, &[])
    }
}

/// The value of a label.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
