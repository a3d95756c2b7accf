//! Backends, devices and features as plain values.

use std::sync::Arc;

use cachette::backends::Found;
use cachette::config::{ConfigBackend, ConfigError};
use cachette::{Backends, Config};
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
    /// Whether an allocator with the configuration of the environment has elastic segments.
    pub(in crate::commands) elastic_segments: Presence<()>,
    pub(in crate::commands) features: Vec<FeatureEntry>,
    /// How memory can be exported, and what elastic segments can rely on; empty without virtual memory.
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
        let config = Config::from_env_known().map(|(config, _)| config);
        let backends = Backends::available().into_iter().map(|found| backend_entry(found, &config));
        Self { backends: backends.collect() }
    }
}

fn backend_entry(found: Found, config: &Result<Config, ConfigError>) -> BackendEntry {
    let facts = found
        .backend
        .map_err(|why| why.to_string())
        .and_then(|backend| backend_facts(&backend, config).map_err(|why| why.to_string()));
    BackendEntry { name: found.name, presence: Presence::of(facts) }
}

fn backend_facts(
    backend: &Arc<dyn Backend>,
    config: &Result<Config, ConfigError>,
) -> cachette_hal::Result<BackendFacts> {
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
                presence: Presence::of(backend.open(Ordinal(ordinal)).map(|it| device_facts(&it, config))),
            })
            .collect(),
    })
}

fn device_facts(device: &dyn Device, config: &Result<Config, ConfigError>) -> DeviceFacts {
    let info = device.info();
    DeviceFacts {
        name: info.name.clone(),
        vendor: info.vendor.to_string(),
        uuid: (info.uuid != [0; 16]).then(|| format!("{:032x}", u128::from_be_bytes(info.uuid))),
        architecture: info.architecture.clone(),
        integrated: info.integrated,
        total_memory: info.total_memory,
        free_memory: device.memory_info().ok().map(|memory| memory.free),
        base_alignment: info.base_alignment,
        granularity: granularity(device),
        elastic_segments: Presence::of(elastic_segments(device, config)),
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

/// Returns whether segments are elastic on a device with a configuration, or the reason why not.
fn elastic_segments(device: &dyn Device, config: &Result<Config, ConfigError>) -> Result<(), String> {
    if let Some(missing) = device.missing(Feature::VirtualMemory) {
        return Err(format!("virtual memory is missing: {}", missing.reason));
    }
    match config {
        Err(error) => Err(format!("the configuration is wrong: {}", error.message())),
        Ok(config) if !config.expandable_segments() => Err("the configuration says expandable_segments:False".into()),
        Ok(config) if config.backend() != ConfigBackend::Native => {
            Err("the configuration says backend:cudaMallocAsync".into())
        }
        Ok(_) => Ok(()),
    }
}

/// Returns the ways of export, and what elastic segments can rely on, each with the reason why not.
fn sharing(device: &dyn Device) -> Vec<FeatureEntry> {
    let Ok(memory) = device.virtual_memory() else { return Vec::new() };
    let ways = Sharing::ALL.into_iter().filter(|way| *way != Sharing::Private);
    let entry = |way: Sharing| FeatureEntry { name: way.name(), presence: Presence::of(memory.shares(way)) };
    let facts = [
        ("elastic recycling", memory.aliases()),
        ("mixed chunk sizes", memory.mixes_sizes()),
        ("mapping without a wait", memory.maps_without_wait()),
    ];
    let facts = facts.map(|(name, fact)| FeatureEntry { name, presence: Presence::of(fact) });
    ways.map(entry).chain(facts).collect()
}

fn granularity(device: &dyn Device) -> Option<GranularityFacts> {
    let granularity = device.virtual_memory().ok()?.granularity();
    Some(GranularityFacts { minimum: granularity.minimum, recommended: granularity.recommended })
}

#[cfg(test)]
mod tests {
    use cachette_hal_host::{HostBackend, HostConfig};

    use super::*;

    #[test]
    fn segments_are_elastic_unless_the_device_or_the_configuration_forbids_it() {
        let device = |host| HostBackend::new(host).unwrap().device(Ordinal(0)).unwrap();
        let reason = |host, text: &str| elastic_segments(&device(host), &text.parse());
        let no = |why: &str| Err(why.to_owned());
        assert_eq!(reason(HostConfig::default(), ""), Ok(()));
        let lacking = HostConfig::default().without(Feature::VirtualMemory);
        assert_eq!(
            reason(lacking, ""),
            no("virtual memory is missing: switched off by the host device's configuration")
        );
        let set = |text| reason(HostConfig::default(), text);
        assert_eq!(set("expandable_segments:False"), no("the configuration says expandable_segments:False"));
        assert_eq!(set("backend:cudaMallocAsync"), no("the configuration says backend:cudaMallocAsync"));
        assert_eq!(
            set("caching:no"),
            no("the configuration is wrong: caching: 'no' is not allowed; use True or False")
        );
    }
}
