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
pub(in crate::commands) enum Presence<T> {
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
pub(in crate::commands) struct Listing {
    pub(in crate::commands) backends: Vec<BackendEntry>,
}

#[derive(Debug, Serialize)]
pub(in crate::commands) struct BackendEntry {
    pub(in crate::commands) name: &'static str,
    #[serde(flatten)]
    pub(in crate::commands) presence: Presence<BackendFacts>,
}

#[derive(Debug, Serialize)]
pub(in crate::commands) struct BackendFacts {
    pub(in crate::commands) vendor: String,
    pub(in crate::commands) version: String,
    pub(in crate::commands) library: String,
    pub(in crate::commands) emulated: bool,
    pub(in crate::commands) devices: Vec<DeviceEntry>,
}

#[derive(Debug, Serialize)]
pub(in crate::commands) struct DeviceEntry {
    pub(in crate::commands) ordinal: u32,
    #[serde(flatten)]
    pub(in crate::commands) presence: Presence<DeviceFacts>,
}

#[derive(Debug, Serialize)]
pub(in crate::commands) struct DeviceFacts {
    pub(in crate::commands) name: String,
    pub(in crate::commands) vendor: String,
    /// `None` if the driver reports no identity.
    pub(in crate::commands) uuid: Option<String>,
    pub(in crate::commands) architecture: Option<String>,
    pub(in crate::commands) integrated: bool,
    pub(in crate::commands) total_memory: u64,
    /// `None` if the driver failed.
    pub(in crate::commands) free_memory: Option<u64>,
    pub(in crate::commands) base_alignment: u64,
    /// `None` without virtual memory.
    pub(in crate::commands) granularity: Option<GranularityFacts>,
    pub(in crate::commands) features: Vec<FeatureEntry>,
    /// How memory can be exported; empty without virtual memory.
    pub(in crate::commands) sharing: Vec<FeatureEntry>,
}

#[derive(Debug, Serialize)]
pub(in crate::commands) struct FeatureEntry {
    pub(in crate::commands) name: &'static str,
    #[serde(flatten)]
    pub(in crate::commands) presence: Presence<()>,
}

/// The granularities of virtual memory, in bytes.
#[derive(Debug, Serialize)]
pub(in crate::commands) struct GranularityFacts {
    pub(in crate::commands) minimum: u64,
    pub(in crate::commands) recommended: u64,
}

impl Listing {
    /// Queries every backend and every device.
    pub(in crate::commands) fn gather() -> Self {
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
