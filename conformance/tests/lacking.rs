//! The suite against host devices that lack something: cases are skipped with the reason, and none fails.

use std::process::ExitCode;
use std::sync::Arc;

use cachette_conformance::{Fixture, Options, Outcome, Report, cases, child, run};
use cachette_hal::{Feature, Sharing};
use cachette_hal_host::{HostBackend, HostConfig};
use libtest_mimic::{Arguments, Failed, Trial};

/// Makes a fixture called `name` of whatever `config` describes.
fn fixture(name: &str, config: HostConfig) -> Arc<Fixture> {
    let open = move || {
        let backend = HostBackend::new(config.clone()).map_err(|error| error.to_string())?;
        Ok(Arc::new(backend) as _)
    };
    Arc::new(Fixture::new(name, open).isolated().containing_faults())
}

fn without(feature: Feature) -> Arc<Fixture> {
    let config = HostConfig::default().devices(2).capacity(256 << 20);
    fixture(feature.name(), config.without(feature))
}

fn alone() -> Arc<Fixture> {
    fixture("alone", HostConfig::default().capacity(256 << 20))
}

fn apart() -> Arc<Fixture> {
    let config = HostConfig::default().devices(2).capacity(256 << 20);
    fixture("apart", config.peers(false))
}

fn without_sharing(sharing: Sharing) -> Arc<Fixture> {
    let config = HostConfig::default().devices(2).capacity(256 << 20);
    fixture(sharing.name(), config.without_sharing(sharing))
}

fn report(fixture: &Arc<Fixture>) -> Result<Report, Failed> {
    let options = Options { threads: 4, ..Options::default() };
    let report = run(fixture, &options).map_err(Failed::from)?;
    if report.is_success() { Ok(report) } else { Err(Failed::from(report)) }
}

/// The reason a case was skipped for.
fn reason<'r>(report: &'r Report, name: &str) -> Option<&'r str> {
    let case = report.cases.iter().find(|case| case.name == name)?;
    match &case.outcome {
        Outcome::Skipped { reason } => Some(reason),
        _ => None,
    }
}

fn ensure(holds: bool, text: impl FnOnce() -> String) -> Result<(), Failed> {
    if holds { Ok(()) } else { Err(text().into()) }
}

/// Exactly the cases that need the feature are skipped, and each says that it is missing.
fn skips_what_needs(feature: Feature) -> Result<(), Failed> {
    let report = report(&without(feature))?;
    for case in cases() {
        let found = reason(&report, case.name);
        if case.needs.contains(&feature) {
            let promised = format!("no {feature}: switched off by");
            let right = found.is_some_and(|found| found.starts_with(&promised));
            ensure(right, || format!("{} says {found:?}", case.name))?;
        } else {
            let missing = found.is_some_and(|found| found.starts_with("no "));
            ensure(!missing, || format!("{} was skipped", case.name))?;
        }
    }
    Ok(())
}

/// The cases of one group are skipped, and say that the kind of sharing is missing.
fn skips_what_is_shared_by(sharing: Sharing, group: &str) -> Result<(), Failed> {
    let report = report(&without_sharing(sharing))?;
    let promised = format!("no {sharing}: switched off by the host device's configuration");
    let skipped = |case: &&cachette_conformance::Case| {
        case.group() == group && reason(&report, case.name) == Some(promised.as_str())
    };
    let count = cases().iter().filter(skipped).count();
    ensure(count >= 5, || format!("{count} cases say \"{promised}\""))
}

fn one_device_skips_what_needs_two() -> Result<(), Failed> {
    let report = report(&alone())?;
    for case in cases().iter().filter(|case| case.devices > 1) {
        let found = reason(&report, case.name);
        let right = found == Some("needs 2 devices, found 1");
        ensure(right, || format!("{} says {found:?}", case.name))?;
    }
    Ok(())
}

fn devices_apart_are_asked_what_others_are_not() -> Result<(), Failed> {
    let report = report(&apart())?;
    let found = reason(&report, "peer_access::an_unreachable_device_is_refused");
    ensure(found.is_none(), || format!("it was skipped: {found:?}"))?;
    let found = reason(&report, "peer_access::it_can_be_enabled_again");
    ensure(found == Some("device 0 cannot reach device 1"), || format!("it says {found:?}"))
}

fn main() -> ExitCode {
    if let Some(name) = child::fixture_name() {
        let lacking = Feature::ALL.into_iter().find(|feature| feature.name() == name);
        let unshared = Sharing::ALL.into_iter().find(|sharing| sharing.name() == name);
        let fixture = match (lacking, unshared, name.as_str()) {
            (Some(feature), ..) => without(feature),
            (_, Some(sharing), _) => without_sharing(sharing),
            (.., "apart") => apart(),
            _ => alone(),
        };
        child::play_if_child(&fixture);
    }
    let mut trials = vec![
        Trial::test("one_device_skips_what_needs_two", one_device_skips_what_needs_two),
        Trial::test("devices_apart_are_asked_what_others_are_not", devices_apart_are_asked_what_others_are_not),
    ];
    for (sharing, group) in [(Sharing::FileDescriptor, "descriptors"), (Sharing::Fabric, "fabric")] {
        let name = format!("skips_what_is_shared_by::{group}");
        trials.push(Trial::test(name, move || skips_what_is_shared_by(sharing, group)));
    }
    for feature in Feature::ALL {
        let name = format!("skips_what_needs::{}", feature.name().replace([' ', '-'], "_"));
        trials.push(Trial::test(name, move || skips_what_needs(feature)));
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
