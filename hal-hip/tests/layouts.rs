//! Sizes, offsets and constants agree with what a C program printed for every version's real headers.

use std::collections::HashMap;
use std::mem::{align_of, offset_of, size_of};

use cachette_hal_hip::status::STATUSES;
use cachette_hal_hip::types::{
    Address, BackingHandle, CONSTANTS, DeviceProp, IpcMemHandle, MemAccessDesc, MemAllocationProp, MemLocation,
    PointerAttribute,
};

/// What was printed, by version.
const PRINTED: [(&str, &str); 4] = [
    ("6.0", include_str!("data/layout-6.0.txt")),
    ("6.4.3", include_str!("data/layout-6.4.3.txt")),
    ("7.1", include_str!("data/layout-7.1.txt")),
    ("7.2.4", include_str!("data/layout-7.2.4.txt")),
];

/// The lines that the C program would print for the types of this crate.
fn own_layouts() -> HashMap<String, String> {
    let mut lines = HashMap::new();
    macro_rules! layout {
        ($type:ty, $name:literal) => {
            let (size, align) = (size_of::<$type>(), align_of::<$type>());
            lines.insert(format!("sizeof({})", $name), format!("{size} align={align}"));
        };
        ($type:ty, $name:literal, $($field:ident = $c_field:literal),*) => {
            layout!($type, $name);
            $(
                let (offset, size) = (offset_of!($type, $field), field_size(|it: &$type| &it.$field));
                lines.insert(format!("{}.{}", $name, $c_field), format!("@{offset} sz{size}"));
            )*
        };
    }
    layout!(MemLocation, "hipMemLocation", kind = "type", id = "id");
    layout!(
        MemAllocationProp,
        "hipMemAllocationProp",
        kind = "type",
        requested_handle_type = "requestedHandleType",
        location = "location",
        win32_handle_meta_data = "win32HandleMetaData",
        flags = "allocFlags"
    );
    layout!(MemAccessDesc, "hipMemAccessDesc", location = "location", flags = "flags");
    layout!(
        PointerAttribute,
        "hipPointerAttribute_t",
        device = "device",
        device_pointer = "devicePointer",
        host_pointer = "hostPointer",
        is_managed = "isManaged",
        allocation_flags = "allocationFlags"
    );
    layout!(
        DeviceProp,
        "hipDeviceProp_t",
        name = "name",
        total_global_mem = "totalGlobalMem",
        warp_size = "warpSize",
        multi_processor_count = "multiProcessorCount",
        gcn_arch_name = "gcnArchName",
        integrated = "integrated",
        can_map_host_memory = "canMapHostMemory",
        is_large_bar = "isLargeBar",
        managed_memory = "managedMemory",
        concurrent_managed_access = "concurrentManagedAccess",
        pageable_memory_access = "pageableMemoryAccess",
        pci_bus_id = "pciBusID",
        asic_revision = "asicRevision"
    );
    layout!(IpcMemHandle, "hipIpcMemHandle_t");
    layout!(BackingHandle, "hipMemGenericAllocationHandle_t");
    layout!(Address, "hipDeviceptr_t");
    lines
}

fn field_size<T, F>(_: fn(&T) -> &F) -> usize {
    size_of::<F>()
}

/// Splits a line into what it is about and what it says of it.
fn fact(line: &str) -> Option<(&str, &str)> {
    let line = line.trim();
    match line.strip_prefix("sizeof(") {
        Some(rest) => {
            let end = rest.find(")=")?;
            Some((&line[..="sizeof(".len() + end], &rest[end + 2..]))
        }
        None => line.split_once('=').or_else(|| line.split_once(' ')),
    }
}

#[test]
fn every_layout_is_the_one_that_was_printed() {
    let own = own_layouts();
    for (version, printed) in PRINTED {
        let facts: HashMap<_, _> = printed.lines().filter_map(fact).collect();
        for (subject, says) in &own {
            assert_eq!(facts.get(subject.as_str()), Some(&says.as_str()), "{subject} of {version}");
        }
    }
}

#[test]
fn every_constant_is_the_one_that_was_printed() {
    let own: HashMap<_, _> = CONSTANTS.iter().chain(STATUSES).copied().collect();
    for (version, printed) in PRINTED {
        let mut compared = 0;
        for (subject, says) in printed.lines().filter_map(fact) {
            if let Some(value) = own.get(subject) {
                assert_eq!(says.parse(), Ok(*value), "{subject} of {version}");
                compared += 1;
            }
        }
        assert!(compared >= 55, "only {compared} constants are known of {version}");
    }
}
