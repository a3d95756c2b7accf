//! The settings that the emulated driver reads from the environment.

use std::env;
use std::ffi::{OsString, c_int};
use std::str::FromStr;

#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a variable of its own")]
pub(crate) struct Settings {
    pub(crate) devices: u32,
    pub(crate) capacity: u64,
    pub(crate) version: c_int,
    /// Calls until every device vanishes.
    pub(crate) lost_after: Option<u64>,
    /// Whether network cards reach memory made for them; then no other can be made.
    pub(crate) rdma: bool,
    /// Whether copies from and to host memory have ended when they return, as those of pageable memory do.
    pub(crate) copies_wait: bool,
    /// Whether a backing that is mapped is not mapped a second time.
    pub(crate) refuses_aliases: bool,
    /// Whether the devices share their memory with the host.
    pub(crate) integrated: bool,
    pub(crate) fabric: Fabric,
    /// Of what the distance between rows of memory is a multiple.
    pub(crate) pitch: usize,
    /// 1 if the devices say that they page managed memory.
    pub(crate) pages: c_int,
    /// The file by which processes share the devices.
    pub(crate) shared: Option<OsString>,
    /// Numbers of the devices that are shown, in order.
    pub(crate) visible: Vec<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fabric {
    /// The devices have one, and the process a channel to it.
    Open,
    /// The devices have one, and the process no channel: making memory for it is not permitted.
    Closed,
    /// The devices say that they have none.
    Absent,
}

impl Fabric {
    fn read(text: Option<&str>) -> Self {
        match text {
            Some("0") => Self::Absent,
            Some("closed") => Self::Closed,
            _ => Self::Open,
        }
    }
}

impl Settings {
    /// Reads the environment; what is not set or makes no sense is as usual.
    pub(crate) fn read() -> Self {
        let devices = number("CACHETTE_EMULATED_DEVICES").unwrap_or(2);
        let visible = env::var("CUDA_VISIBLE_DEVICES").ok();
        Self {
            devices,
            capacity: number("CACHETTE_EMULATED_CAPACITY").unwrap_or(256 << 20),
            version: number("CACHETTE_EMULATED_VERSION").unwrap_or(12_080),
            lost_after: number("CACHETTE_EMULATED_LOST_AFTER"),
            rdma: number("CACHETTE_EMULATED_RDMA") == Some(1),
            copies_wait: number("CACHETTE_EMULATED_COPIES_WAIT") == Some(1),
            refuses_aliases: number("CACHETTE_EMULATED_ALIASES") == Some(0),
            integrated: number("CACHETTE_EMULATED_INTEGRATED") == Some(1),
            fabric: Fabric::read(env::var("CACHETTE_EMULATED_FABRIC").ok().as_deref()),
            pitch: number("CACHETTE_EMULATED_PITCH").unwrap_or(512),
            pages: number("CACHETTE_EMULATED_PAGES").unwrap_or(1),
            shared: env::var_os("CACHETTE_EMULATED_SHARED"),
            visible: visible_devices(visible.as_deref(), devices),
        }
    }
}

fn number<T: FromStr>(variable: &str) -> Option<T> {
    env::var(variable).ok()?.parse().ok()
}

/// The devices that a list shows: those before the first entry that names none.
fn visible_devices(list: Option<&str>, devices: u32) -> Vec<u32> {
    let Some(list) = list else { return (0..devices).collect() };
    list.split(',')
        .map(|entry| entry.trim().parse().ok())
        .map_while(|entry: Option<u32>| entry.filter(|device| *device < devices))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_shown_up_to_the_first_wrong_entry() {
        assert_eq!(visible_devices(None, 2), [0, 1]);
        assert_eq!(visible_devices(Some("1"), 2), [1]);
        assert_eq!(visible_devices(Some("1, 0"), 2), [1, 0]);
        assert_eq!(visible_devices(Some("0,7,1"), 2), [0]);
        assert_eq!(visible_devices(Some(""), 2), []);
        assert_eq!(visible_devices(Some("-1"), 2), []);
        assert_eq!(visible_devices(Some("none"), 2), []);
    }
}
