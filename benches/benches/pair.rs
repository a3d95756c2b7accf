//! Pairs of one size on one stream.

use std::error::Error;
use std::hint::black_box;

use cachette::Allocator;
use cachette_benches::Subject;
use cachette_benches::subject::{Owned, Pinned, Raw};
use criterion::Criterion;

mod setup;

fn main() -> Result<(), Box<dyn Error>> {
    let target = setup::target()?;
    let mut criterion = setup::criterion();
    for bytes in [1 << 10, 1 << 20, 16 << 20] {
        let owned = Owned::new(Allocator::new(target.device.clone()), 1)?;
        bench(&mut criterion, &format!("{}/pair", target.backend), bytes, &owned);
        let raw = Raw::new(Allocator::new(target.device.clone()), 1)?;
        bench(&mut criterion, &format!("{}/pair by address", target.backend), bytes, &raw);
    }
    let pinned = Pinned::new(Allocator::new(target.device.clone()));
    let name = format!("{}/pinned pair", target.backend);
    bench(&mut criterion, &name, 64 << 10, &pinned);
    criterion.final_summary();
    Ok(())
}

fn bench(criterion: &mut Criterion, name: &str, bytes: u64, subject: &impl Subject) {
    criterion.bench_function(&format!("{name}/{bytes}"), |bencher| {
        bencher.iter(|| {
            let paired = subject.pair(black_box(bytes), 0);
            paired.expect("the device has memory for one pair");
        });
    });
}
