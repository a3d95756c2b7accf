//! The list of devices as text for people.

use std::fmt;

use cachette::human::Bytes;

use super::listing::{BackendEntry, DeviceEntry, DeviceFacts, Listing, Presence};

impl fmt::Display for Listing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.backends.iter().try_for_each(|backend| write_backend(f, backend))
    }
}

fn write_backend(f: &mut fmt::Formatter<'_>, backend: &BackendEntry) -> fmt::Result {
    let name = backend.name;
    match &backend.presence {
        Presence::Absent { reason } => writeln!(f, "{name}: absent; {reason}"),
        Presence::Present(facts) => {
            let emulated = if facts.emulated { ", emulated" } else { "" };
            writeln!(f, "{name}: {} version {} from {}{emulated}", facts.vendor, facts.version, facts.library)?;
            facts.devices.iter().try_for_each(|device| write_device(f, name, device))
        }
    }
}

fn write_device(f: &mut fmt::Formatter<'_>, backend: &str, device: &DeviceEntry) -> fmt::Result {
    let ordinal = device.ordinal;
    match &device.presence {
        Presence::Absent { reason } => writeln!(f, "  {backend}:{ordinal}  absent; {reason}"),
        Presence::Present(facts) => {
            writeln!(f, "  {backend}:{ordinal}  {}", facts.name)?;
            write_facts(f, facts)?;
            write_presence(f, "elastic segments", &facts.elastic_segments)?;
            let mut entries = facts.features.iter().chain(&facts.sharing);
            entries.try_for_each(|entry| write_presence(f, entry.name, &entry.presence))
        }
    }
}

fn write_facts(f: &mut fmt::Formatter<'_>, facts: &DeviceFacts) -> fmt::Result {
    let total = Bytes(facts.total_memory);
    match facts.free_memory {
        Some(free) => write_line(f, "memory", format_args!("{total}, {} free", Bytes(free)))?,
        None => write_line(f, "memory", format_args!("{total}"))?,
    }
    if facts.integrated {
        write_line(f, "integrated", format_args!("shares its memory with the host"))?;
    }
    if let Some(architecture) = &facts.architecture {
        write_line(f, "architecture", format_args!("{architecture}"))?;
    }
    if let Some(uuid) = &facts.uuid {
        write_line(f, "uuid", format_args!("{uuid}"))?;
    }
    let alignment = Bytes(facts.base_alignment);
    write_line(f, "base alignment", format_args!("{alignment}"))?;
    if let Some(granularity) = &facts.granularity {
        let (minimum, best) = (Bytes(granularity.minimum), Bytes(granularity.recommended));
        write_line(f, "granularity", format_args!("{minimum}, best {best}"))?;
    }
    Ok(())
}

fn write_presence(f: &mut fmt::Formatter<'_>, name: &str, presence: &Presence<()>) -> fmt::Result {
    match presence {
        Presence::Present(()) => write_line(f, name, format_args!("yes")),
        Presence::Absent { reason } => write_line(f, name, format_args!("no: {reason}")),
    }
}

fn write_line(f: &mut fmt::Formatter<'_>, name: &str, value: fmt::Arguments<'_>) -> fmt::Result {
    writeln!(f, "    {name:<22} {value}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::devices::listing::BackendFacts;

    #[test]
    fn a_device_that_does_not_open_says_why() {
        let listing = Listing {
            backends: vec![BackendEntry {
                name: "cuda",
                presence: Presence::Present(BackendFacts {
                    vendor: "NVIDIA".into(),
                    version: "12.4".into(),
                    library: "libcuda.so.1".into(),
                    emulated: true,
                    devices: vec![DeviceEntry {
                        ordinal: 3,
                        presence: Presence::Absent { reason: "it fell off the bus".into() },
                    }],
                }),
            }],
        };
        assert_eq!(
            listing.to_string(),
            "cuda: NVIDIA version 12.4 from libcuda.so.1, emulated\n  \
             cuda:3  absent; it fell off the bus\n"
        );
    }
}
