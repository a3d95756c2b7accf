//! Pairs on several threads at once.

use std::error::Error;

use cachette::Allocator;
use cachette_benches::subject::Owned;
use cachette_benches::workload::threads_time;
use criterion::{BenchmarkId, Throughput};

mod setup;

const BYTES: u64 = 1 << 10;
/// Pairs a thread for each iteration, so that starting the threads does not matter.
const PAIRS: usize = 10_000;

fn main() -> Result<(), Box<dyn Error>> {
    let target = setup::target()?;
    let mut criterion = setup::criterion();
    for (name, own_stream) in [("own stream", true), ("one stream", false)] {
        let mut group = criterion.benchmark_group(format!("{}/threads, {name}", target.backend));
        for threads in [1, 2, 4] {
            let subject = Owned::new(Allocator::new(target.device.clone()), threads)?;
            group.throughput(Throughput::Elements((PAIRS * threads) as u64));
            group.bench_function(BenchmarkId::from_parameter(threads), |bencher| {
                bencher.iter_custom(|iterations| {
                    let run = |_| {
                        threads_time(&subject, BYTES, threads, own_stream, PAIRS)
                            .expect("the device has memory for one pair a thread")
                    };
                    (0..iterations).map(run).sum()
                });
            });
        }
        group.finish();
    }
    criterion.final_summary();
    Ok(())
}
