//! Backends, devices and features as plain values.

use std::fmt::Write;
use std::sync::Arc;

use cachette::Backends;
use cachette::backends::Found;
use cachette_hal::{Backend, Device, Feature, Ordinal, Sharing};
use serde::Serialize;

/// A value, or the reason why it is missing.
#[derive(Debug, Serialize)]
#[serde(tag = "status", rename_all = "snake_case")]
pub(super) enum Presence<T> {
    /// It is present.
    Present(T),
    /// It is missing.
    Absent { reason: String },
}

impl<T> Presence<T> {
    fn of(found: Result<T, impl ToString>) -> Self {
        match found {
            Ok(it) => Self::Present(it),
            Err(why) => Self::Absent { reason: why.to_string() },
        }
    }
}

/// Every backend, in order of preference.
#[derive(Debug, Serialize)]
pub(super) struct Listing {
    pub(super) backends: Vec<BackendEntry>,
}

#[derive(Debug, Serialize)]
pub(super) struct BackendEntry {
    pub(super) name: &'static str,
    #[serde(flatten)]
    pub(super) presence: Presence<BackendFacts>,
}

#[derive(Debug, Serialize)]
pub(super) struct BackendFacts {
    pub(super) vendor: String,
    pub(super) version: String,
    pub(super) library: String,
    pub(super) emulated: bool,
    pub(super) devices: Vec<DeviceEntry>,
}

#[derive(Debug, Serialize)]
pub(super) struct DeviceEntry {
    pub(super) ordinal: u32,
    #[serde(flatten)]
    pub(super) presence: Presence<DeviceFacts>,
}

#[derive(Debug, Serialize)]
pub(super) struct DeviceFacts {
    pub(super) name: String,
    pub(super) vendor: String,
    /// `None` if the driver reports no identity.
    pub(super) uuid: Option<String>,
    pub(super) architecture: Option<String>,
    pub(super) integrated: bool,
    pub(super) total_memory: u64,
    /// `None` if the driver failed.
    pub(super) free_memory: Option<u64>,
    pub(super) base_alignment: u64,
    /// `None` without virtual memory.
    pub(super) granularity: Option<GranularityFacts>,
    pub(super) features: Vec<FeatureEntry>,
    /// How memory can be exported; empty without virtual memory.
    pub(super) sharing: Vec<FeatureEntry>,
}

#[derive(Debug, Serialize)]
pub(super) struct FeatureEntry {
    pub(super) name: &'static str,
    #[serde(flatten)]
    pub(super) presence: Presence<()>,
}

/// The granularities of virtual memory, in bytes.
#[derive(Debug, Serialize)]
pub(super) struct GranularityFacts {
    pub(super) minimum: u64,
    pub(super) recommended: u64,
}

impl Listing {
    /// Queries every backend and every device.
    pub(super) fn gather() -> Self {
        let backends = Backends::available().into_iter().map(backend_entry);
        Self { backends: backends.collect() }
    }
}

fn backend_entry(found: Found) -> BackendEntry {
    let facts = found
        .backend
        .map_err(|why| why.to_string())
        .and_then(|backend| backend_facts(&backend).map_err(|why| why.to_string()));
    BackendEntry { name: found.name, presence: Presence::of(facts) }
}

fn backend_facts(backend: &Arc<dyn Backend>) -> cachette_hal::Result<BackendFacts> {
    let info = backend.info();
    let devices = 0..backend.device_count()?;
    Ok(BackendFacts {
        vendor: info.vendor.to_string(),
        version: info.version.to_string(),
        library: info.library.clone(),
        emulated: info.emulated,
        devices: devices
            .map(|ordinal| DeviceEntry {
                ordinal,
                presence: Presence::of(backend.open(Ordinal(ordinal)).map(|it| device_facts(&it))),
            })
            .collect(),
    })
}

fn device_facts(device: &dyn Device) -> DeviceFacts {
    let info = device.info();
    DeviceFacts {
        name: info.name.clone(),
        vendor: info.vendor.to_string(),
        uuid: (info.uuid != [0; 16]).then(|| hexadecimal(&info.uuid)),
        architecture: info.architecture.clone(),
        integrated: info.integrated,
        total_memory: info.total_memory,
        free_memory: device.memory_info().ok().map(|memory| memory.free),
        base_alignment: info.base_alignment,
        granularity: granularity(device),
        features: Feature::ALL.into_iter().map(|feature| feature_entry(device, feature)).collect(),
        sharing: sharing(device),
    }
}

fn feature_entry(device: &dyn Device, feature: Feature) -> FeatureEntry {
    let found = match device.missing(feature) {
        Some(missing) => Err(missing.reason),
        None => Ok(()),
    };
    FeatureEntry { name: feature.name(), presence: Presence::of(found) }
}

/// Returns the ways of export, and whether memory can be remapped while work uses it; or the reason why not.
fn sharing(device: &dyn Device) -> Vec<FeatureEntry> {
    let Ok(memory) = device.virtual_memory() else { return Vec::new() };
    let ways = Sharing::ALL.into_iter().filter(|way| *way != Sharing::Private);
    let entry = |way: Sharing| FeatureEntry { name: way.name(), presence: Presence::of(memory.shares(way)) };
    let aliases = FeatureEntry { name: "elastic recycling", presence: Presence::of(memory.aliases()) };
    ways.map(entry).chain([aliases]).collect()
}

fn granularity(device: &dyn Device) -> Option<GranularityFacts> {
    let granularity = device.virtual_memory().ok()?.granularity();
    Some(GranularityFacts { minimum: granularity.minimum, recommended: granularity.recommended })
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
