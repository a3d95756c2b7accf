//! What the emulated driver is told by the environment.

use std::env;
use std::ffi::c_int;
use std::str::FromStr;

/// What the emulated driver is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) devices: u32,
    pub(crate) capacity: u64,
    pub(crate) version: c_int,
    /// Calls until every device vanishes.
    pub(crate) lost_after: Option<u64>,
    /// Numbers of the devices that are shown, in order.
    pub(crate) visible: Vec<u32>,
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
            visible: visible_devices(visible.as_deref(), devices),
        }
    }
}

fn number<T: FromStr>(variable: &str) -> Option<T> {
    env::var(variable).ok()?.parse().ok()
}

/// The devices that a list shows: those before the first entry that names none.
fn visible_devices(list: Option<&str>, devices: u32) -> Vec<u32> {
    let Some(list) = list else {
        return (0..devices).collect();
    };
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
