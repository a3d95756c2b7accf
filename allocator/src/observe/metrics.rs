//! The figures of an allocator in the text form that Prometheus reads.

#![forbid(unsafe_code)]

use std::fmt::{self, Write};

use cachette_hal::{Device, Ordinal};

use crate::allocator::Allocator;
use crate::stats::{StatArray, Stats};

/// The figures of an allocator at one moment, for monitoring.
///
/// ```
/// # use cachette::{Allocator, Backends};
/// # let allocator = Allocator::new(Backends::open("host")?);
/// let mut page = String::new();
/// allocator.metrics().write_prometheus(&mut page, &[("job", "training")])?;
/// assert!(page.contains("cachette_limit_bytes{device=\"0\",job=\"training\"} +Inf"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metrics {
    /// The device.
    pub device: Ordinal,
    /// The statistics.
    pub stats: Stats,
    /// The bound on what the allocator may hold, if there is one.
    pub limit: Option<u64>,
    /// The device's memory and what of it is free; `None` where the driver would not say.
    pub device_memory: Option<(u64, u64)>,
}

impl<D: Device> Allocator<D> {
    /// The figures of this moment, for monitoring; it asks the driver how much memory is free.
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        let memory = self.device().memory_info().ok();
        Metrics {
            device: self.device_info().ordinal,
            stats: self.stats(),
            limit: self.memory_limit(),
            device_memory: memory.map(|memory| (memory.total, memory.free)),
        }
    }
}

impl Metrics {
    /// Writes everything in the text exposition format, with `labels` on every figure beside the device.
    ///
    /// Names of labels are letters, digits and underscores; what their values hold is escaped.
    pub fn write_prometheus(&self, out: &mut impl Write, labels: &[(&str, &str)]) -> fmt::Result {
        let device = self.device.0.to_string();
        let mut common = vec![("device", device.as_str())];
        common.extend_from_slice(labels);
        let mut page = MetricsText { out, labels: &common };
        for (name, help, array) in self.gauges() {
            page.array(name, help, array, |stat| stat.current)?;
            let peak = format!("{name}_peak");
            page.array(&peak, &format!("Highest so far. {help}"), array, |stat| stat.peak)?;
        }
        for (name, help, count) in self.counters() {
            page.head(name, help, "counter")?;
            page.sample(name, &[], count)?;
        }
        let bound = "Bytes that this allocator may hold.";
        page.head("limit_bytes", bound, "gauge")?;
        match self.limit {
            Some(limit) => page.sample("limit_bytes", &[], limit)?,
            None => page.sample("limit_bytes", &[], "+Inf")?,
        }
        if let Some((total, free)) = self.device_memory {
            page.head("device_memory_bytes", "Memory of the device.", "gauge")?;
            page.sample("device_memory_bytes", &[], total)?;
            let name = "device_free_bytes";
            page.head(name, "Memory of the device that is free.", "gauge")?;
            page.sample(name, &[], free)?;
        }
        Ok(())
    }

    fn gauges(&self) -> [(&'static str, &'static str, &StatArray); 9] {
        let stats = &self.stats;
        [
            ("allocations", "Blocks held by callers.", &stats.allocation),
            ("allocated_bytes", "Bytes of blocks held by callers.", &stats.allocated_bytes),
            ("requested_bytes", "Bytes that callers asked for.", &stats.requested_bytes),
            ("active_blocks", "Blocks held by callers or used by other streams.", &stats.active),
            ("active_bytes", "Bytes of blocks held by callers or used by other streams.", &stats.active_bytes),
            ("segments", "Segments held from the device.", &stats.segment),
            ("reserved_bytes", "Bytes held from the device.", &stats.reserved_bytes),
            ("inactive_split_blocks", "Free blocks that are a part of their segment.", &stats.inactive_split),
            (
                "inactive_split_bytes",
                "Bytes of free blocks that are a part of their segment.",
                &stats.inactive_split_bytes,
            ),
        ]
    }

    fn counters(&self) -> [(&'static str, &'static str, u64); 9] {
        let stats = &self.stats;
        [
            ("allocated_total", "Blocks ever handed out.", stats.allocation.all.allocated),
            ("allocated_bytes_total", "Bytes of blocks ever handed out.", stats.allocated_bytes.all.allocated),
            ("freed_total", "Blocks ever given back.", stats.allocation.all.freed),
            ("device_allocations_total", "Segments and chunks obtained from the device.", stats.num_device_alloc),
            ("device_frees_total", "Segments and chunks given back to the device.", stats.num_device_free),
            (
                "retries_total",
                "Requests to the device that were repeated after memory went back to it.",
                stats.num_alloc_retries,
            ),
            ("waits_total", "Waits for other streams.", stats.num_sync_all_streams),
            ("out_of_memory_total", "Requests that failed for want of memory.", stats.num_ooms),
            ("rejections_total", "Requests refused because of the limit alone.", stats.num_oom_rejections),
        ]
    }
}

impl fmt::Display for Metrics {
    /// The text exposition format, with no labels but the device.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_prometheus(f, &[])
    }
}

/// A page that is being written.
struct MetricsText<'a, W> {
    out: &'a mut W,
    labels: &'a [(&'a str, &'a str)],
}

impl<W: Write> MetricsText<'_, W> {
    /// Writes what a figure is.
    fn head(&mut self, name: &str, help: &str, kind: &str) -> fmt::Result {
        writeln!(self.out, "# HELP cachette_{name} {help}")?;
        writeln!(self.out, "# TYPE cachette_{name} {kind}")
    }

    /// Writes a gauge for each kind of segment.
    fn array(
        &mut self,
        name: &str,
        help: &str,
        array: &StatArray,
        of: impl Fn(&crate::stats::Stat) -> u64,
    ) -> fmt::Result {
        self.head(name, help, "gauge")?;
        self.sample(name, &[("kind", "all")], of(&array.all))?;
        self.sample(name, &[("kind", "small")], of(&array.small_pool))?;
        self.sample(name, &[("kind", "large")], of(&array.large_pool))
    }

    /// Writes one figure.
    fn sample(&mut self, name: &str, more: &[(&str, &str)], value: impl fmt::Display) -> fmt::Result {
        write!(self.out, "cachette_{name}")?;
        let mut before = '{';
        for (label, text) in self.labels.iter().chain(more) {
            write!(self.out, "{before}{label}=\"")?;
            for letter in text.chars() {
                match letter {
                    '\\' => self.out.write_str("\\\\")?,
                    '"' => self.out.write_str("\\\"")?,
                    '\n' => self.out.write_str("\\n")?,
                    other => self.out.write_char(other)?,
                }
            }
            self.out.write_char('"')?;
            before = ',';
        }
        writeln!(self.out, "}} {value}")
    }
}
