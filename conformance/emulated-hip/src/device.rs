//! The library itself, its devices, and facts about them.

use std::env;
use std::ffi::{c_char, c_int, c_uint};

use cachette_emulated::relaxed;
use cachette_hal::{AnyDevice, Device};

use crate::personality::Personality;
use crate::prelude::*;

/// Versions below this answer "invalid device" where there is none.
const FIRST_WITH_NO_DEVICE: c_int = 60_000_000;
/// `hipDeviceAttributeCanMapHostMemory`.
const CAN_MAP_HOST_MEMORY: c_int = 3;
/// `hipDeviceAttributeHostRegisterSupported`.
const HOST_REGISTER_SUPPORTED: c_int = 90;
/// The attributes that AMD's headers name.
const FIRST_ATTRIBUTE: c_int = 0;
const LAST_ATTRIBUTE: c_int = 91;
const FIRST_OF_AMD: c_int = 10_000;
const LAST_OF_AMD: c_int = 10_020;
const ARCHITECTURE: &str = "gfx942:sramecc+:xnack-";

/// Says that this library imitates AMD's.
#[unsafe(no_mangle)]
extern "C" fn cachette_emulated_library() {}

fn version() -> c_int {
    let asked = env::var("CACHETTE_EMULATED_VERSION").ok().and_then(|text| text.parse().ok());
    asked.unwrap_or_else(|| Personality::chosen().number())
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn hipRuntimeGetVersion(version_out: *mut c_int) -> Status {
    // SAFETY: the caller's pointer is null or valid.
    match unsafe { Out::new(version_out) } {
        Ok(out) => out.write(version()),
        Err(status) => return status,
    }
    SUCCESS
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn hipInit(flags: c_uint) -> Status {
    if machine().err() == Some(NO_DEVICE) && version() < FIRST_WITH_NO_DEVICE {
        return INVALID_DEVICE;
    }
    enter(|_| if flags == 0 { Ok(()) } else { Err(INVALID_VALUE) })
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn hipGetLastError() -> Status {
    machine().err().unwrap_or_else(|| LAST.replace(SUCCESS))
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn hipPeekAtLastError() -> Status {
    machine().err().unwrap_or_else(|| {
        // It is the status of this call too.
        LAST_CALL.set(LAST.get());
        LAST.get()
    })
}

#[unsafe(no_mangle)]
extern "C" fn hipExtGetLastError() -> Status {
    machine().err().unwrap_or_else(|| LAST_CALL.replace(SUCCESS))
}

/// Writes a text into an array of characters, cut to fit with its zero byte.
fn set_text(to: &mut [c_char], text: &str) {
    let room = to.len() - 1;
    for (to, from) in to[..room].iter_mut().zip(text.bytes()) {
        *to = c_char::from_ne_bytes([from]);
    }
}

/// Waits for everything that the device is doing, whatever is being captured.
pub(crate) fn wait_for_all(device: &AnyDevice) -> Answer {
    relaxed(device, Device::synchronize_device).map_err(status_of)
}

abi! {
    fn hipGetDeviceCount(machine; count: *mut c_int) => count {
        Ok(number(machine.devices.len()))
    }

    fn hipGetDevice(_; device: *mut c_int) => device {
        Ok(number(CURRENT.get()))
    }

    fn hipSetDevice(machine; device: c_int) {
        CURRENT.set(position(machine, device)?);
        Ok(())
    }

    fn hipGetDevicePropertiesR0600(machine; properties: *mut DeviceProp, device: c_int) => properties {
        let info = machine.devices[position(machine, device)?].info();
        let mut found = DeviceProp::zeroed();
        set_text(&mut found.name, &format!("Emulated AMD over {}", info.name));
        let architecture = env::var("CACHETTE_EMULATED_ARCHITECTURE").unwrap_or_else(|_| ARCHITECTURE.to_owned());
        set_text(&mut found.gcn_arch_name, &architecture);
        found.uuid = info.uuid;
        found.total_global_mem = info.total_memory;
        found.warp_size = 64;
        found.multi_processor_count = 304;
        found.integrated = c_int::from(info.integrated);
        found.can_map_host_memory = 1;
        found.pci_bus_id = device + 1;
        found.is_large_bar = 1;
        Ok(found)
    }

    fn hipDeviceGetAttribute(machine; value: *mut c_int, attribute: c_int, device: c_int) => value {
        let device = &machine.devices[position(machine, device)?];
        Ok(c_int::from(match attribute {
            ATTRIBUTE_INTEGRATED => device.info().integrated,
            // The flag says nothing of health: it is up even where the pool does not work.
            ATTRIBUTE_MEMORY_POOLS | ATTRIBUTE_LARGE_BAR | ATTRIBUTE_FINE_GRAIN | ATTRIBUTE_UNIFIED_ADDRESSING | CAN_MAP_HOST_MEMORY | HOST_REGISTER_SUPPORTED => true,
            ATTRIBUTE_VIRTUAL_MEMORY => device.virtual_memory().is_ok(),
            // What these devices lack, as managed memory and images, or what no test of the library needs.
            FIRST_ATTRIBUTE..=LAST_ATTRIBUTE | FIRST_OF_AMD..=LAST_OF_AMD => false,
            _ => return Err(INVALID_VALUE),
        }))
    }

    fn hipMemGetInfo(machine; free: *mut Bytes, total: *mut Bytes) {
        // SAFETY: the caller's pointer is null or valid.
        let free = unsafe { Out::new(free) }?;
        // SAFETY: the caller's pointer is null or valid.
        let total = unsafe { Out::new(total) }?;
        let found = machine.current().1.memory_info().map_err(status_of)?;
        free.write(found.free);
        total.write(found.total);
        Ok(())
    }

    fn hipDeviceSynchronize(machine;) {
        machine.current().1.synchronize_device().map_err(status_of)
    }
}
