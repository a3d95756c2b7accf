//! Drivers, devices and their conformance.

use std::env;
use std::sync::Arc;
use std::thread;

use cachette::human::Bytes;
use cachette_conformance::{Options, child};
use cachette_hal::Ordinal;
use cachette_replay::target::HOST;

use super::finding::Finding;
use super::system;
use crate::commands::conformance::target;
use crate::commands::devices::listing::{BackendEntry, DeviceFacts, Listing, Presence};
use crate::error::CliError;

/// A backend, and what a user can do where it is absent.
struct Known {
    name: &'static str,
    topic: &'static str,
    remedy: &'static str,
    /// What a user may have set for it.
    variable: &'static str,
}

const KNOWN: [Known; 3] = [
    Known {
        name: "cuda",
        topic: "NVIDIA driver",
        remedy: "install NVIDIA's driver, or name libcuda.so.1 by CACHETTE_CUDA_LIBRARY",
        variable: "CACHETTE_CUDA_LIBRARY",
    },
    Known {
        name: "hip",
        topic: "AMD driver",
        remedy: "install ROCm, or name libamdhip64.so by CACHETTE_HIP_LIBRARY",
        variable: "CACHETTE_HIP_LIBRARY",
    },
    Known { name: HOST, topic: "host memory", remedy: "no action needed", variable: "CACHETTE_HOST_CAPACITY" },
];

/// The drivers and devices; of the host only a mistake.
pub(super) fn findings(listing: &Listing) -> Vec<Finding> {
    let entry = |known: &Known| listing.backends.iter().find(|backend| backend.name == known.name);
    KNOWN.iter().filter_map(|known| Some(backend_findings(entry(known)?, known))).flatten().collect()
}

/// The devices that can be opened, without the host's.
pub(super) fn usable(listing: &Listing) -> Vec<String> {
    let backends = listing.backends.iter().filter(|backend| backend.name != HOST);
    backends
        .flat_map(|backend| open_devices(backend).map(|(ordinal, _)| format!("{}:{ordinal}", backend.name)))
        .collect()
}

fn open_devices(backend: &BackendEntry) -> impl Iterator<Item = (u32, &DeviceFacts)> {
    let devices = match &backend.presence {
        Presence::Present(facts) => facts.devices.as_slice(),
        Presence::Absent { .. } => &[],
    };
    devices.iter().filter_map(|device| match &device.presence {
        Presence::Present(facts) => Some((device.ordinal, facts)),
        Presence::Absent { .. } => None,
    })
}

fn backend_findings(backend: &BackendEntry, known: &Known) -> Vec<Finding> {
    let topic = known.topic;
    let facts = match &backend.presence {
        Presence::Present(_) if known.name == HOST => return Vec::new(),
        Presence::Present(facts) => facts,
        Presence::Absent { reason } => return vec![absent(reason, known)],
    };
    let emulated = if facts.emulated { ", emulated" } else { "" };
    let mut findings = vec![Finding::ok(topic, format!("version {} from {}{emulated}", facts.version, facts.library))];
    if facts.devices.is_empty() {
        findings.push(Finding::note(
            format!("{} devices", backend.name),
            "the driver has none",
            "see that the card is visible: CUDA_VISIBLE_DEVICES, HIP_VISIBLE_DEVICES, the options of a container",
        ));
    }
    for device in &facts.devices {
        let name = format!("{}:{}", backend.name, device.ordinal);
        match &device.presence {
            Presence::Absent { reason } => findings.push(Finding::broken(
                name,
                reason,
                "see that this user may open the device, and that other programs leave it",
            )),
            Presence::Present(facts) => {
                findings.extend(device_findings(&name, facts));
                // Only AMD's driver keeps a descriptor open for every chunk.
                let chunk = facts.granularity.as_ref().filter(|_| backend.name == "hip").map(|found| found.recommended);
                let sizes = chunk.map(|chunk| (chunk, facts.total_memory)).zip(system::open_files_limit());
                findings.extend(sizes.and_then(|(sizes, limit)| descriptors(&name, sizes, limit)));
            }
        }
    }
    findings
}

fn absent(reason: &str, known: &Known) -> Finding {
    let set = env::var_os(known.variable).filter(|value| !value.is_empty());
    if set.is_some() {
        let remedy = format!("correct {}, or unset it", known.variable);
        // A user may switch a vendor off in this way, but not the host.
        let finding = if known.name == HOST { Finding::broken } else { Finding::note };
        return finding(known.topic.to_owned(), reason.to_owned(), remedy);
    }
    // `cachette devices` lists every library that was tried.
    let reason = reason.split("; tried ").next().unwrap_or(reason);
    let reason = reason.split_once(": ").map_or(reason, |(_, why)| why);
    Finding::note(known.topic, reason, known.remedy)
}

fn device_findings(name: &str, facts: &DeviceFacts) -> Vec<Finding> {
    let free = facts.free_memory.map_or_else(String::new, |free| format!(", {} free", Bytes(free)));
    let mut findings = vec![Finding::ok(name, format!("{}, {}{free}", facts.name, Bytes(facts.total_memory)))];
    let entries = || facts.features.iter().chain(&facts.sharing);
    let present = entries().filter(|entry| matches!(entry.presence, Presence::Present(()))).count();
    let total = entries().count();
    findings
        .push(Finding::ok(format!("{name} features"), format!("{present} of {total}; `cachette devices` lists them")));
    for entry in entries() {
        if let Presence::Absent { reason } = &entry.presence {
            let topic = format!("{name} {}", entry.name);
            findings.push(Finding::note(topic, reason, "no action needed"));
        }
    }
    findings
}

/// Notes a limit on descriptors that elastic segments reach before the memory of the device.
fn descriptors(name: &str, (chunk, total): (u64, u64), limit: u64) -> Option<Finding> {
    let needed = total / chunk;
    let (most, total) = (Bytes(limit.saturating_mul(chunk)), Bytes(total));
    let limited = || {
        Finding::note(
            format!("{name} descriptors"),
            format!("at most {limit}, one for each chunk; elastic segments end at {most} of {total}"),
            format!("`ulimit -Hn {}`, nofile in limits.conf, or --ulimit nofile for a container", 2 * needed),
        )
    };
    (limit < needed).then(limited)
}

/// Runs the conformance suite on the first device of a vendor, or on the host device.
pub(super) fn conformance(listing: &Listing) -> Result<Finding, CliError> {
    let mut vendors = listing.backends.iter().filter(|backend| backend.name != HOST);
    let device = vendors.find_map(|backend| Some((backend.name, open_devices(backend).next()?.0)));
    let (name, ordinal) = device.unwrap_or((HOST, 0));
    let fixture = Arc::new(target::find(Some(name), Ordinal(ordinal))?);
    child::play_if_child(&fixture);
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let report = cachette_conformance::run(&fixture, &Options { threads, ..Options::default() })?;
    let totals = report.totals;
    let text = format!(
        "{name}:{ordinal}: {} cases passed, {} skipped, {} known deviations, {} failed",
        totals.passed,
        totals.skipped,
        totals.deviates,
        totals.failed + totals.deviation_gone
    );
    Ok(if report.is_success() {
        Finding::ok("conformance", text)
    } else {
        let remedy = format!("`cachette conformance --backend {name} --device {ordinal}` shows each; please report it");
        Finding::broken("conformance", text, remedy)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_below_the_chunks_of_a_device_is_noted() {
        let card = (2 << 20, 192 << 30);
        let found = descriptors("hip:0", card, 4096).expect("4096 chunks are 8 GiB");
        assert_eq!(found.text, "at most 4096, one for each chunk; elastic segments end at 8.00 GiB of 192.00 GiB");
        assert!(found.remedy.is_some_and(|remedy| remedy.contains("ulimit -Hn 196608")));
        assert!(descriptors("hip:0", card, 1 << 20).is_none());
    }
}
