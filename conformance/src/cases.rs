//! Every case, one file for each group.

mod capture;
mod capture_graph;
mod capture_modes;
mod capture_states;
mod descriptors;
mod destroyed_streams;
mod device;
mod errors;
mod events;
mod fabric;
mod faults;
mod host_calls;
mod host_memory;
mod ipc;
mod memory;
mod ordering;
mod peer_access;
mod sharing;
mod stream_ordered;
mod streams;
mod threads;
mod transfer;
mod virtual_access;
mod virtual_elastic;
mod virtual_memory;

use std::sync::OnceLock;

use crate::case::{Case, Role};

const GROUPS: &[&[Case]] = &[
    device::CASES,
    memory::CASES,
    streams::CASES,
    destroyed_streams::CASES,
    events::CASES,
    ordering::CASES,
    transfer::CASES,
    host_calls::CASES,
    virtual_memory::CASES,
    virtual_access::CASES,
    virtual_elastic::CASES,
    descriptors::CASES,
    fabric::CASES,
    faults::CASES,
    stream_ordered::CASES,
    host_memory::CASES,
    ipc::CASES,
    capture::CASES,
    capture_states::CASES,
    capture_modes::CASES,
    capture_graph::CASES,
    peer_access::CASES,
    errors::CASES,
    threads::CASES,
];

pub(crate) const ROLES: &[&[Role]] = &[destroyed_streams::ROLES, faults::ROLES, ipc::ROLES, sharing::ROLES];

/// Every case of the suite, group by group.
#[must_use]
pub fn cases() -> &'static [Case] {
    static ALL: OnceLock<Vec<Case>> = OnceLock::new();
    ALL.get_or_init(|| GROUPS.concat())
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn names_are_unique_sentences_and_promises_are_sentences_too() {
        let mut seen = HashSet::new();
        for case in cases() {
            assert!(seen.insert(case.name), "{} is there twice", case.name);
            assert!(case.about.ends_with('.'), "{}: {}", case.name, case.about);
            assert_eq!(format!("{}::{}", case.group(), case.sentence()), case.name);
        }
    }

    #[test]
    fn the_suite_is_as_wide_as_the_contract() {
        assert!(cases().len() >= 130, "{} cases", cases().len());
        for feature in cachette_hal::Feature::ALL {
            let needing = cases().iter().filter(|case| case.needs.contains(&feature));
            assert!(needing.count() >= 3, "{feature} is hardly tested");
        }
    }
}
