//! The compiler, network cards and limits of this machine.

use std::env;
use std::fs;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::Path;
use std::process;

use cachette::human::Bytes;

use super::finding::Finding;

/// The compilers that the Python package tries, unless `CXX` names one.
const COMPILERS: [&str; 3] = ["c++", "g++", "clang++"];
/// Fewer locked bytes are too few for buffers of a network card.
const LOCKED: u64 = 64 << 20;
/// Sharing sends a descriptor for each chunk.
const OPEN_FILES: u64 = 1024;

pub(super) fn findings() -> Vec<Finding> {
    let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    vec![compiler(), rdma(), memory_locks(&limits), open_files(&limits), sockets()]
}

fn compiler() -> Finding {
    let chosen = env::var("CXX").ok().filter(|name| !name.trim().is_empty());
    let names: Vec<&str> = match &chosen {
        Some(chosen) => chosen.split_whitespace().take(1).collect(),
        None => COMPILERS.to_vec(),
    };
    match names.iter().find_map(|name| in_path(name)) {
        Some(path) => Finding::ok("C++ compiler", path),
        None => Finding::note(
            "C++ compiler",
            format!("{} not found; PyTorch gets the plug-in instead of the class", names.join(", ")),
            "install g++ 11 or later, or name a compiler by CXX",
        ),
    }
}

fn in_path(name: &str) -> Option<String> {
    let folders = env::var_os("PATH")?;
    let found = env::split_paths(&folders).map(|folder| folder.join(name)).find(|path| path.is_file());
    found.map(|path| path.display().to_string())
}

fn rdma() -> Finding {
    let cards: Vec<String> = fs::read_dir("/sys/class/infiniband")
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .collect();
    if cards.is_empty() {
        return Finding::note("RDMA", "no network card for it", "none, unless memory is sent between machines");
    }
    let found = cards.join(", ");
    if ["nvidia_peermem", "amdgpu"].iter().any(|module| Path::new("/sys/module").join(module).exists()) {
        return Finding::ok("RDMA", found);
    }
    let text = format!("{found}, without a module for device memory");
    Finding::note("RDMA", text, "modprobe nvidia_peermem; newer drivers do without it by dma-buf")
}

fn memory_locks(limits: &str) -> Finding {
    match soft_limit(limits, "Max locked memory") {
        Some(bytes) if bytes < LOCKED => Finding::note(
            "memory locks",
            format!("at most {}; a network card may refuse larger buffers", Bytes(bytes)),
            "`ulimit -l unlimited`, memlock in limits.conf, or --ulimit memlock=-1 for a container",
        ),
        Some(bytes) => Finding::ok("memory locks", format!("up to {}", Bytes(bytes))),
        None => Finding::ok("memory locks", "unlimited"),
    }
}

fn open_files(limits: &str) -> Finding {
    match soft_limit(limits, "Max open files") {
        Some(files) if files < OPEN_FILES => Finding::note(
            "open files",
            format!("at most {files}; shared elastic memory needs one for each chunk"),
            format!("`ulimit -n {OPEN_FILES}` or more"),
        ),
        Some(files) => Finding::ok("open files", format!("up to {files}")),
        None => Finding::ok("open files", "unlimited"),
    }
}

/// The limit on open files, which opening a device of AMD has raised to the hard one; `None` if there is none.
pub(super) fn open_files_limit() -> Option<u64> {
    soft_limit(&fs::read_to_string("/proc/self/limits").unwrap_or_default(), "Max open files")
}

/// A soft limit of this process; `None` if it is unlimited or unknown.
fn soft_limit(limits: &str, name: &str) -> Option<u64> {
    let line = limits.lines().find(|line| line.starts_with(name))?;
    line[name.len()..].split_whitespace().next()?.parse().ok()
}

/// Processes that share memory meet at a socket with an abstract name.
fn sockets() -> Finding {
    let name = format!("cachette-doctor-{}", process::id());
    match SocketAddr::from_abstract_name(name).and_then(|address| UnixListener::bind_addr(&address)) {
        Ok(_) => Finding::ok("sockets", "processes can share memory"),
        Err(error) => Finding::broken(
            "sockets",
            format!("no Unix socket can be bound: {error}"),
            "allow Unix sockets in the sandbox; only shared memory needs them",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Status;
    use super::*;

    const LIMITS: &str = "\
Limit                     Soft Limit           Hard Limit           Units
Max open files            256                  1048576              files
Max locked memory         8388608              8388608              bytes
Max address space         unlimited            unlimited            bytes
";

    #[test]
    fn limits_are_those_of_the_process() {
        assert_eq!(soft_limit(LIMITS, "Max open files"), Some(256));
        assert_eq!(soft_limit(LIMITS, "Max address space"), None);
        assert_eq!(soft_limit("", "Max open files"), None);
    }

    #[test]
    fn a_low_limit_has_its_remedy() {
        for finding in [open_files(LIMITS), memory_locks(LIMITS)] {
            assert_eq!(finding.status, Status::Note);
            assert!(finding.remedy.is_some_and(|remedy| remedy.contains("ulimit")));
        }
        assert_eq!(memory_locks("").status, Status::Ok);
    }
}
