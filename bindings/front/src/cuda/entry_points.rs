//! Functions of libcuda by name, as the CUDA runtime asks for them.
//!
//! A caller names a function without its version, and says for which CUDA it was built and what null means as a stream.

use std::ffi::{c_int, c_ulonglong};

use super::own;

/// Null is the default stream of the calling thread.
const PER_THREAD: c_ulonglong = 2;
/// The first version whose sizes have 64 bits.
const WIDE: c_int = 3020;
/// The first version whose captures have a mode. The driver answers a call without one.
const WITH_MODE: c_int = 10_010;
/// The first version whose `cuGetProcAddress` tells why.
const WITH_REASON: c_int = 12_000;

/// The front's function for a name, a version and flags.
pub(super) fn find(symbol: &str, version: c_int, flags: c_ulonglong) -> Option<*const ()> {
    if symbol == "cuStreamBeginCapture" && version < WITH_MODE {
        return None;
    }
    if version < WIDE || (symbol == "cuGetProcAddress" && version < WITH_REASON) {
        return own(symbol).filter(|_| version >= WIDE);
    }
    let suffixes: &[&str] = if flags & PER_THREAD == 0 { &["_v2", ""] } else { &["_v2_ptsz", "_ptsz", "_v2", ""] };
    suffixes.iter().find_map(|suffix| own(&format!("{symbol}{suffix}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_leads_to_the_function_of_its_version_and_stream() {
        let is = |symbol, version, flags, name| {
            assert_eq!(find(symbol, version, flags), own(name), "{symbol} {version} {flags}");
            assert!(own(name).is_some(), "{name}");
        };
        is("cuMemAlloc", 12_000, 0, "cuMemAlloc_v2");
        is("cuMemAlloc", 13_000, PER_THREAD, "cuMemAlloc_v2");
        is("cuMemAllocAsync", 11_020, 0, "cuMemAllocAsync");
        is("cuMemAllocAsync", 11_020, 1, "cuMemAllocAsync");
        is("cuMemAllocAsync", 11_020, PER_THREAD, "cuMemAllocAsync_ptsz");
        is("cuStreamBeginCapture", 12_000, PER_THREAD, "cuStreamBeginCapture_v2_ptsz");
        is("cuGetProcAddress", 11_030, 0, "cuGetProcAddress");
        is("cuGetProcAddress", 12_000, 0, "cuGetProcAddress_v2");
        is("cuStreamBeginCapture", 10_010, 0, "cuStreamBeginCapture_v2");
        assert_eq!(find("cuStreamBeginCapture", 10_000, 0), None, "it has one argument");
        assert_eq!(find("cuMemAlloc", 3000, 0), None);
        assert_eq!(find("cuInit", 12_000, 0), None);
    }
}
