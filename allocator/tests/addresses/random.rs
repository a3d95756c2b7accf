//! Random pools: restored blocks have the saved addresses, and no later allocation overlaps them.

use std::collections::BTreeMap;

use cachette::addresses::Addresses;
use cachette::{Allocation, Pool, Stream};
use cachette_hal_host::HostConfig;
use proptest::prelude::*;

use crate::{Bed, MIB, PAGE, assert_places};

/// A request in one of the streams: its bytes, and which earlier block is freed first.
type Step = (u64, usize, Option<usize>);

fn steps(most: usize) -> impl Strategy<Value = Vec<Step>> {
    let bytes = prop_oneof![1..2048_u64, 1..MIB, MIB..12 * MIB, Just(PAGE), Just(MIB)];
    prop::collection::vec((bytes, 0..3_usize, prop::option::of(any::<usize>())), 0..most)
}

/// Allocates in a pool, or in the default one, and frees in between.
fn run(bed: &Bed, pool: Option<&Pool>, streams: &[Stream], steps: &[Step], live: &mut Vec<Allocation>) {
    for (bytes, stream, freed) in steps {
        if let Some(freed) = freed.filter(|_| !live.is_empty()) {
            live.swap_remove(freed % live.len());
        }
        let stream = &streams[*stream];
        let allocate = || match pool {
            Some(pool) => pool.allocate(*bytes, stream),
            None => bed.allocator.allocate(*bytes, stream),
        };
        live.push(allocate().unwrap());
    }
}

fn check_apart<'a>(blocks: impl IntoIterator<Item = &'a Allocation>) {
    let by_address: BTreeMap<u64, u64> = blocks.into_iter().map(|it| (it.address(), it.bytes())).collect();
    for ((start, bytes), (next, _)) in by_address.iter().zip(by_address.iter().skip(1)) {
        assert!(start + bytes <= *next, "{start:#x} and {next:#x} overlap");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(120))]

    #[test]
    fn restored_blocks_are_where_they_were_and_nothing_overlaps_them(
        (before, inside, after) in (steps(12), steps(40), steps(40)),
        compact in any::<bool>(),
    ) {
        let host = HostConfig::default().capacity(8 << 30).phantom(true);
        let setting = if compact { ",elastic_setting:compact" } else { "" };
        let bed = Bed::with(host, &format!("expandable_segments:True{setting}"));
        let streams = [bed.stream(), bed.stream(), bed.stream()];
        let mut outside = Vec::new();
        run(&bed, None, &streams, &before, &mut outside);
        let pool = bed.allocator.create_pool();
        let mut live = Vec::new();
        run(&bed, Some(&pool), &streams, &inside, &mut live);
        let saved: Addresses = pool.save_addresses().unwrap().to_string().parse().unwrap();
        prop_assert_eq!(saved.blocks().len(), live.len());
        let within = |block: &Allocation| {
            let end = block.address() + block.bytes();
            saved.segments().iter().any(|it| it.base <= block.address() && end <= it.end())
        };
        prop_assert!(live.iter().all(within));
        drop((live, pool));
        let (pool, blocks) = bed.allocator.restore_addresses(&saved, &streams[0]).unwrap();
        assert_places(&saved, &blocks);
        bed.allocator.check().unwrap();
        let (mut later, mut others) = (Vec::new(), Vec::new());
        run(&bed, Some(&pool), &streams, &after, &mut later);
        run(&bed, None, &streams, &after, &mut others);
        check_apart(blocks.iter().chain(&later).chain(&others).chain(&outside));
        bed.allocator.check().unwrap();
        bed.close((blocks, later, others, outside, pool, streams));
    }
}
