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
    /// The number of devices it needs.
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

    pub(crate) const fn on_devices(mut self, devices: u32) -> Self {
        self.devices = devices;
        self
    }

    pub(crate) const fn with_child(mut self) -> Self {
        self.child = true;
        self
    }
}

/// Declares the table `CASES` of one group. Each case runs the function of its name, or the one after `=`.
///
/// A case is its promise as a doc comment, its name, and the groups of calls it needs:
///
/// ```text
/// cases! { events:
///     /// An event is pending while work before its record has not finished.
///     poll_is_pending_while_work_is_held(HostCalls);
///     /// ...
///     another_process_sees_it(Ipc).with_child();
/// }
/// ```
macro_rules! cases {
    ($group:ident: $(
        $(#[doc = $about:literal])+
        $sentence:ident($($need:ident),*) $(.$with:ident($($value:literal)?))? $(= $run:expr)?;
    )+) => {
        pub(super) const CASES: &[$crate::case::Case] = &[$(
            $crate::case::Case {
                name: concat!(stringify!($group), "::", stringify!($sentence)),
                about: concat!($($about),+).trim_ascii(),
                needs: &[$(cachette_hal::Feature::$need),*],
                devices: 1,
                child: false,
                run: $crate::case::run!($sentence $($run)?),
            }
            $(.$with($($value)?))?
        ),+];
    };
}

pub(crate) use cases;

/// The function of a case in [`cases`]: the one of its name, unless the table has another.
macro_rules! run {
    ($sentence:ident) => {
        $sentence
    };
    ($sentence:ident $run:expr) => {
        $run
    };
}
pub(crate) use run;

/// A role of a child process that a case starts.
#[derive(Debug)]
pub(crate) struct Role {
    pub(crate) name: &'static str,
    /// Runs it with these arguments, and returns the answer.
    pub(crate) play: fn(&Subject, &str) -> Verdict<String>,
}
