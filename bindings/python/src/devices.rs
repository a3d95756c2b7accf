//! The devices, and why others cannot be used.

use std::sync::Arc;

use cachette::backends::Found;
use cachette::hal::{Backend, Device, Feature, Ordinal};
use cachette::{Backends, hal};
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// One backend; `reason` is why it cannot be used, or `None`.
#[derive(Default, IntoPyObject)]
pub(crate) struct BackendEntry {
    backend: &'static str,
    reason: Option<String>,
    vendor: Option<String>,
    version: Option<String>,
    library: Option<String>,
    emulated: bool,
    devices: Vec<DeviceEntry>,
}

/// One device; `reason` is why it could not be opened.
#[derive(Default, IntoPyObject)]
pub(crate) struct DeviceEntry {
    device: String,
    reason: Option<String>,
    name: Option<String>,
    architecture: Option<String>,
    total_memory: Option<u64>,
    free_memory: Option<u64>,
    missing: Vec<MissingEntry>,
}

/// A feature that a device lacks.
#[derive(IntoPyObject)]
struct MissingEntry {
    feature: &'static str,
    reason: String,
}

/// Every backend, in order of preference, with its devices or the reason why it has none.
#[pyfunction]
pub(crate) fn devices(py: Python<'_>) -> PyResult<Vec<Bound<'_, PyDict>>> {
    let found = py.detach(|| {
        let found = Backends::available().into_iter();
        found.map(of_backend).collect::<Vec<_>>()
    });
    found.into_iter().map(|entry| entry.into_pyobject(py)).collect()
}

/// Why no device of a backend can be used; `None` if one can.
#[pyfunction]
pub(crate) fn why_unusable(py: Python<'_>, backend: &str) -> Option<String> {
    let opened = py.detach(|| Backends::open(backend));
    opened.err().map(|why| why.to_string())
}

fn of_backend(found: Found) -> BackendEntry {
    let entry = BackendEntry { backend: found.name, ..BackendEntry::default() };
    let backend = match found.backend {
        Ok(backend) => backend,
        Err(why) => return BackendEntry { reason: Some(why.to_string()), ..entry },
    };
    let info = backend.info();
    let devices = of_devices(found.name, &backend);
    BackendEntry {
        reason: devices.as_ref().err().map(ToString::to_string),
        vendor: Some(info.vendor.to_string()),
        version: Some(info.version.to_string()),
        library: Some(info.library.clone()),
        emulated: info.emulated,
        devices: devices.unwrap_or_default(),
        ..entry
    }
}

fn of_devices(name: &str, backend: &Arc<dyn Backend>) -> hal::Result<Vec<DeviceEntry>> {
    let count = backend.device_count()?;
    let entry = |ordinal| {
        let device = format!("{name}:{ordinal}");
        match backend.open(Ordinal(ordinal)) {
            Ok(opened) => of_device(device, &*opened),
            Err(why) => DeviceEntry { device, reason: Some(why.to_string()), ..DeviceEntry::default() },
        }
    };
    Ok((0..count).map(entry).collect())
}

fn of_device(name: String, device: &dyn Device) -> DeviceEntry {
    let info = device.info();
    let missing = Feature::ALL.into_iter().filter_map(|feature| {
        device
            .missing(feature)
            .map(|missing| MissingEntry { feature: feature.name(), reason: missing.reason.to_string() })
    });
    DeviceEntry {
        device: name,
        reason: None,
        name: Some(info.name.clone()),
        architecture: info.architecture.clone(),
        total_memory: Some(info.total_memory),
        free_memory: device.memory_info().ok().map(|memory| memory.free),
        missing: missing.collect(),
    }
}
