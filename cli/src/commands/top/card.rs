//! What a vendor's management library or kernel driver tells of a device, without opening it.

use std::collections::BTreeMap;
use std::fs;

/// A device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Card {
    /// The identity by which Cachette's processes name it.
    pub(super) id: [u8; 16],
    pub(super) name: String,
    /// Bytes of its memory.
    pub(super) total: u64,
    /// Bytes in use by anyone.
    pub(super) used: u64,
    /// Bytes of each process; `None` if the vendor does not tell.
    pub(super) processes: BTreeMap<u32, Option<u64>>,
}

/// The program of a process and its first argument, without folders; empty if the process has ended.
pub(super) fn program_of(pid: u32) -> String {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words = line.split(|byte| *byte == 0).filter(|word| !word.is_empty()).take(2);
    let words = words.map(|word| {
        let text = String::from_utf8_lossy(word);
        let name = text.rsplit('/').next().unwrap_or_default();
        name.chars().map(|c| if c.is_control() { '?' } else { c }).collect::<String>()
    });
    words.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_named_without_its_folder() {
        let name = program_of(std::process::id());
        assert!(name.starts_with("cachette"), "{name}");
        assert!(!name.contains('/'));
        assert_eq!(program_of(u32::MAX), "");
    }
}
