//! NVIDIA's devices, through NVML.

use std::ffi::OsStr;

use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};

use super::card::Card;

/// The library that the driver installs. The name without a version exists only beside its headers.
const LIBRARY: &str = "libnvidia-ml.so.1";

/// Loads NVML; `None` on machines without NVIDIA's driver.
pub(super) fn load() -> Option<Nvml> {
    Nvml::builder().lib_path(OsStr::new(LIBRARY)).init().ok()
}

/// Every device that can be read.
pub(super) fn cards(nvml: &Nvml) -> Vec<Card> {
    let count = nvml.device_count().unwrap_or(0);
    (0..count).filter_map(|index| card(&nvml.device_by_index(index).ok()?).ok()).collect()
}

fn card(device: &Device<'_>) -> Result<Card, NvmlError> {
    let memory = device.memory_info()?;
    // Some containers may not list processes.
    let [compute, graphics] = [device.running_compute_processes(), device.running_graphics_processes()];
    let processes = compute.unwrap_or_default().into_iter().chain(graphics.unwrap_or_default());
    let processes = processes.map(|process| match process.used_gpu_memory {
        UsedGpuMemory::Used(bytes) => (process.pid, Some(bytes)),
        UsedGpuMemory::Unavailable => (process.pid, None),
    });
    Ok(Card {
        id: identity(&device.uuid()?).unwrap_or_default(),
        name: device.name()?,
        total: memory.total,
        used: memory.used,
        processes: processes.collect(),
    })
}

/// The bytes of a text such as `GPU-5c8f7a21-…`, which `cuDeviceGetUuid` returns.
fn identity(text: &str) -> Option<[u8; 16]> {
    let (_, digits) = text.split_once('-')?;
    let digits = digits.replace('-', "");
    let number = u128::from_str_radix(&digits, 16).ok().filter(|_| digits.len() == 32);
    number.map(u128::to_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_is_its_bytes() {
        let bytes = identity("GPU-00010203-0405-0607-0809-0a0b0c0d0e0f");
        assert_eq!(bytes, Some([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]));
        for wrong in ["", "GPU", "GPU-12", "GPU-00010203-0405-0607-0809-0a0b0c0d0e0g"] {
            assert_eq!(identity(wrong), None, "{wrong}");
        }
    }
}
