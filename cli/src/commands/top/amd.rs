//! AMD's devices, from the files of the kernel's driver.
//!
//! | file | holds |
//! |---|---|
//! | `class/kfd/kfd/topology/nodes/N/gpu_id`, `properties` | the driver's number of a device; its identity and its place on the bus |
//! | `bus/pci/devices/…/mem_info_vram_total`, `_used`, `product_name` | its memory |
//! | `class/kfd/kfd/proc/PID/vram_GPU` | the bytes of a process on the device of that number |

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::card::Card;

/// Every device that the kernel's driver lists.
pub(super) fn cards() -> Vec<Card> {
    cards_in(Path::new("/sys"))
}

fn cards_in(root: &Path) -> Vec<Card> {
    let kfd = root.join("class/kfd/kfd");
    let nodes = fs::read_dir(kfd.join("topology/nodes")).into_iter().flatten().flatten();
    let mut cards: Vec<_> = nodes.filter_map(|node| card(root, &kfd, &node.path())).collect();
    cards.sort_by_key(|(bus, _)| *bus);
    cards.into_iter().map(|(_, card)| card).collect()
}

/// A device, and its place on the bus; `None` for processors and for files that lack a figure.
fn card(root: &Path, kfd: &Path, node: &Path) -> Option<(u64, Card)> {
    let number = read(&node.join("gpu_id"))?.parse::<u64>().ok().filter(|number| *number != 0)?;
    let properties = read(&node.join("properties"))?;
    let property = |name: &str| {
        let lines = properties.lines().filter_map(|line| line.split_once(' '));
        lines.filter(|(key, _)| *key == name).find_map(|(_, value)| value.trim().parse::<u64>().ok())
    };
    let (domain, location) = (property("domain").unwrap_or(0), property("location_id")?);
    let (bus, device, function) = (location >> 8 & 0xff, location >> 3 & 0x1f, location & 7);
    let folder = root.join(format!("bus/pci/devices/{domain:04x}:{bus:02x}:{device:02x}.{function}"));
    let figure = |name: &str| read(&folder.join(name))?.parse().ok();
    let name = read(&folder.join("product_name")).filter(|name| !name.is_empty());
    let card = Card {
        // `hipDeviceGetUuid` returns these digits as text.
        id: format!("{:016x}", property("unique_id").unwrap_or(0)).into_bytes().try_into().ok()?,
        name: name.unwrap_or_else(|| "AMD GPU".to_owned()),
        total: figure("mem_info_vram_total")?,
        used: figure("mem_info_vram_used")?,
        processes: processes(kfd, number),
    };
    Some((domain << 16 | location, card))
}

fn processes(kfd: &Path, number: u64) -> BTreeMap<u32, Option<u64>> {
    let folders = fs::read_dir(kfd.join("proc")).into_iter().flatten().flatten();
    let found = folders.filter_map(|folder| {
        let pid = folder.file_name().to_str()?.parse().ok()?;
        let bytes = read(&folder.path().join(format!("vram_{number}")))?.parse::<u64>().ok()?;
        (bytes > 0).then_some((pid, Some(bytes)))
    });
    found.collect()
}

fn read(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn a_card_has_its_identity_its_memory_and_its_processes() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        let node = "class/kfd/kfd/topology/nodes";
        write(root, &format!("{node}/0/gpu_id"), "0\n");
        write(root, &format!("{node}/1/gpu_id"), "4711\n");
        write(root, &format!("{node}/1/properties"), "cpu_cores_count 0\nlocation_id 50688\ndomain 0\nunique_id 11\n");
        write(root, &format!("{node}/2/gpu_id"), "12\n");
        let bus = "bus/pci/devices/0000:c6:00.0";
        write(root, &format!("{bus}/mem_info_vram_total"), "206141652992\n");
        write(root, &format!("{bus}/mem_info_vram_used"), "1024\n");
        write(root, "class/kfd/kfd/proc/42/vram_4711", "512\n");
        write(root, "class/kfd/kfd/proc/43/vram_4711", "0\n");
        write(root, "class/kfd/kfd/proc/44/vram_12", "7\n");
        let cards = cards_in(root);
        assert_eq!(cards.len(), 1, "{cards:?}");
        assert_eq!(&cards[0].id, b"000000000000000b");
        assert_eq!((cards[0].total, cards[0].used, &*cards[0].name), (206_141_652_992, 1024, "AMD GPU"));
        assert_eq!(cards[0].processes, BTreeMap::from([(42, Some(512))]));
    }

    #[test]
    fn a_machine_without_the_driver_has_no_card() {
        assert!(cards_in(Path::new("/nonexistent")).is_empty());
    }
}
