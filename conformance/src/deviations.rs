//! Promises that a vendor is known to break.

use cachette_hal::{BackendInfo, Vendor, Version};

use crate::report::Outcome;

/// A promise that some versions of a vendor's driver are known to break.
#[derive(Clone, Copy, Debug)]
pub struct Deviation {
    /// The vendor of the driver.
    pub vendor: Vendor,
    /// The first version that breaks it, and the first that no longer does; `None` is no limit.
    pub versions: (Option<Version>, Option<Version>),
    /// The case's full name.
    pub case: &'static str,
    /// What the driver does instead, and where that is documented.
    pub reason: &'static str,
    /// Whether an emulated library keeps the promise: a crash would end every program that tests it.
    pub emulated_keeps_it: bool,
}

/// Every deviation known today.
pub const DEVIATIONS: &[Deviation] = &[
    unmap_waits("virtual_memory::unmapping_does_not_wait_for_a_held_stream"),
    unmap_waits("virtual_memory::unmapping_an_alias_leaves_held_work_through_the_other"),
    crashes("destroyed_streams::take_no_events"),
    crashes("destroyed_streams::are_not_waited_for_or_destroyed_again"),
    crashes("destroyed_streams::run_no_transfers"),
    crashes("destroyed_streams::run_no_host_functions"),
    crashes("destroyed_streams::order_no_memory"),
    crashes("destroyed_streams::are_not_captured"),
];

/// The deviation of NVIDIA's driver for a case that names a destroyed stream.
const fn crashes(case: &'static str) -> Deviation {
    Deviation {
        vendor: Vendor::Nvidia,
        versions: (None, None),
        case,
        reason: "every call with a destroyed stream crashes the process (H200, driver 580), and none can be asked first",
        emulated_keeps_it: true,
    }
}

/// The deviation of AMD's driver for a case that unmaps while a stream is held.
const fn unmap_waits(case: &'static str) -> Deviation {
    Deviation {
        vendor: Vendor::Amd,
        versions: (Some(Version::new(7, 14)), None),
        case,
        reason: "hipMemUnmap waits for every stream of the owner and of the devices that have access",
        emulated_keeps_it: false,
    }
}

impl Deviation {
    /// Returns whether it applies to this driver.
    #[must_use]
    pub fn concerns(&self, backend: &BackendInfo) -> bool {
        let (from, until) = self.versions;
        self.vendor == backend.vendor
            && !(backend.emulated && self.emulated_keeps_it)
            && from.is_none_or(|from| from <= backend.version)
            && until.is_none_or(|until| backend.version < until)
    }
}

/// Returns the outcome of a case, given the deviations listed for `backend`.
///
/// A listed case that fails is not a failure. One that passes is, so that the list stays correct.
pub(crate) fn judge(listed: &[Deviation], backend: &BackendInfo, case: &str, outcome: Outcome) -> Outcome {
    let known = listed.iter().find(|deviation| deviation.case == case && deviation.concerns(backend));
    let Some(known) = known else { return outcome };
    let reason = known.reason.to_owned();
    match outcome {
        Outcome::Failed { text } => Outcome::Deviates { reason, text },
        Outcome::Passed => Outcome::DeviationGone { reason },
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases;

    const OLD: Deviation = Deviation {
        vendor: Vendor::Amd,
        versions: (Some(Version::new(6, 0)), Some(Version::new(6, 3))),
        case: "events::poll_before_record_is_done",
        reason: "an event that was never recorded is an error",
        emulated_keeps_it: false,
    };

    fn driver(vendor: Vendor, version: Version) -> BackendInfo {
        BackendInfo::new("any", vendor, version, String::new(), false)
    }

    fn failed() -> Outcome {
        Outcome::Failed { text: "poll failed".into() }
    }

    #[test]
    fn a_listed_case_that_fails_deviates() {
        let backend = driver(Vendor::Amd, Version::new(6, 2));
        let outcome = judge(&[OLD], &backend, OLD.case, failed());
        assert!(matches!(outcome, Outcome::Deviates { .. }), "{outcome:?}");
        assert!(!outcome.is_failure());
    }

    #[test]
    fn a_listed_case_that_passes_fails_the_run() {
        let backend = driver(Vendor::Amd, Version::new(6, 0));
        let outcome = judge(&[OLD], &backend, OLD.case, Outcome::Passed);
        assert!(outcome.is_failure());
        assert!(outcome.to_string().contains("no longer deviates: remove it"));
    }

    #[test]
    fn other_vendors_versions_and_cases_are_judged_as_ever() {
        for backend in [
            driver(Vendor::Nvidia, Version::new(6, 2)),
            driver(Vendor::Amd, Version::new(6, 3)),
            driver(Vendor::Amd, Version::new(5, 7)),
        ] {
            assert_eq!(judge(&[OLD], &backend, OLD.case, failed()), failed());
        }
        let backend = driver(Vendor::Amd, Version::new(6, 2));
        assert_eq!(judge(&[OLD], &backend, "events::other", failed()), failed());
    }

    #[test]
    fn a_crash_of_a_driver_is_not_imitated() {
        let deviation = Deviation { emulated_keeps_it: true, ..OLD };
        let real = driver(Vendor::Amd, Version::new(6, 2));
        assert!(deviation.concerns(&real));
        let emulated = BackendInfo::new("any", Vendor::Amd, Version::new(6, 2), String::new(), true);
        assert!(!deviation.concerns(&emulated));
    }

    #[test]
    fn every_deviation_names_a_case() {
        for deviation in DEVIATIONS {
            assert!(cases().iter().any(|case| case.name == deviation.case), "{} is no case", deviation.case);
        }
    }
}
