//! One promise of the contract, as a case.

use cachette_hal::{Device, Feature};

use crate::failure::Verdict;
use crate::rig::Subject;

/// One promise of the contract.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// The group, and a sentence about it: `events::poll_before_record_is_done`.
    pub name: &'static str,
    /// The promise.
    pub about: &'static str,
    /// Groups of calls that it needs.
    pub needs: &'static [Feature],
    /// How many devices it takes.
    pub devices: u32,
    /// Whether it starts a second process.
    pub child: bool,
    /// Runs the case.
    pub run: fn(&Subject) -> Verdict,
}

impl Case {
    /// The group's name.
    #[must_use]
    pub fn group(&self) -> &'static str {
        self.name.split("::").next().unwrap_or(self.name)
    }

    /// The sentence without its group.
    #[must_use]
    pub fn sentence(&self) -> &'static str {
        self.name.rsplit("::").next().unwrap_or(self.name)
    }

    /// Why the case cannot run on `device`, one of `count`; `None` if it can.
    #[must_use]
    pub fn obstacle(&self, device: &dyn Device, count: u32) -> Option<String> {
        let missing = self.needs.iter().find_map(|need| device.missing(*need));
        if let Some(missing) = missing {
            return Some(missing.to_string());
        }
        (count < self.devices).then(|| format!("needs {} devices, found {count}", self.devices))
    }

    /// The same case on several devices.
    pub(crate) const fn on_devices(mut self, devices: u32) -> Self {
        self.devices = devices;
        self
    }

    /// The same case with a second process.
    pub(crate) const fn with_child(mut self) -> Self {
        self.child = true;
        self
    }
}

/// Declares a [`Case`] from the function of the same name.
macro_rules! case {
    ($group:ident :: $sentence:ident, [$($need:ident),*], $about:literal) => {
        $crate::case::Case {
            name: concat!(stringify!($group), "::", stringify!($sentence)),
            about: $about,
            needs: &[$(cachette_hal::Feature::$need),*],
            devices: 1,
            child: false,
            run: $sentence,
        }
    };
}

pub(crate) use case;
