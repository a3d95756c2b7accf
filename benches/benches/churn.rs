//! Random slots freed and filled again.

use std::error::Error;

use cachette::Allocator;
use cachette_benches::Subject;
use cachette_benches::random::LogUniform;
use cachette_benches::subject::{Owned, Raw};
use cachette_benches::workload::Churn;
use criterion::Criterion;

mod setup;

/// Steps before those that are measured.
const WARM_UP: usize = 50_000;

fn main() -> Result<(), Box<dyn Error>> {
    let target = setup::target()?;
    let mut criterion = setup::criterion();
    for (name, sizes, slots) in [
        ("churn to 64MiB", LogUniform::TO_64_MIB, 1000),
        ("churn to 1MiB", LogUniform::TO_1_MIB, 1000),
        ("churn to 1MiB", LogUniform::TO_1_MIB, 10_000),
    ] {
        let churn = Churn { slots, sizes };
        let owned = Owned::new(Allocator::new(target.device.clone()), 1)?;
        bench(&mut criterion, &format!("{}/{name}/{slots}", target.backend), churn, &owned)?;
        let raw = Raw::new(Allocator::new(target.device.clone()), 1)?;
        bench(&mut criterion, &format!("{}/{name} by address/{slots}", target.backend), churn, &raw)?;
    }
    criterion.final_summary();
    Ok(())
}

fn bench(criterion: &mut Criterion, name: &str, churn: Churn, subject: &impl Subject) -> Result<(), Box<dyn Error>> {
    let mut churning = churn.begin(subject)?;
    churning.run(WARM_UP)?;
    criterion.bench_function(name, |bencher| {
        bencher.iter(|| {
            churning.run(1).expect("the device has memory for one more step");
        });
    });
    churning.end()?;
    Ok(())
}
