//! What cannot be saved or restored, and what the error says.

use std::ptr;

use cachette::addresses::{AddressHolder, AddressRange, Addresses, AddressesProblem};
use cachette::hal::{Call, Feature, Ordinal};
use cachette::pool::PoolProblem;
use cachette::sleep::Contents;
use cachette::{Allocator, Error};
use cachette_hal_host::{HostBackend, HostConfig};

use crate::text::with_checksum;
use crate::{Bed, MIB, PAGE, problem};

fn pool_problem<T: std::fmt::Debug>(result: Result<T, Error>) -> PoolProblem {
    match result {
        Err(Error::Pool { why, .. }) => why,
        other => panic!("{other:?} is no problem of a pool"),
    }
}

/// Checks that a restore fails, and that everything is as before. Returns what has the addresses.
fn refused(bed: &Bed, saved: &Addresses) -> AddressHolder {
    let stream = bed.stream();
    let before = (bed.device.live(), bed.device.physical_bytes(), bed.allocator.stats().allocated_bytes);
    let problem = problem(bed.allocator.restore_addresses(saved, &stream).map(drop));
    let after = (bed.device.live(), bed.device.physical_bytes(), bed.allocator.stats().allocated_bytes);
    assert_eq!(after, before);
    bed.allocator.check().unwrap();
    let text = Error::from(problem.clone()).to_string();
    assert!(text.contains("restore before anything else allocates"), "{text}");
    match problem {
        AddressesProblem::Taken { holder, start, end } => {
            assert!(saved.segments().contains(&AddressRange { base: start, bytes: end - start }));
            holder
        }
        other => panic!("{other}"),
    }
}

#[test]
fn a_taken_address_names_the_mapping_of_the_kernel() {
    let bed = Bed::new();
    let saved = bed.saved(&[3 * MIB, 3 * MIB, 20 * MIB], &bed.stream());
    // Nothing of the pool is left that could be in the way.
    let Bed { device, allocator, turn } = bed;
    let any = allocator.device().clone();
    drop(allocator);
    let bed = Bed { device, allocator: Allocator::new(any), turn };
    let at = usize::try_from(saved.segments()[0].base + PAGE).unwrap();
    let (flags, none) = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE, libc::PROT_NONE);
    // SAFETY: without a replacement no mapping of others changes.
    let taken = unsafe { libc::mmap(ptr::with_exposed_provenance_mut(at), 4096, none, flags, -1, 0) };
    assert_eq!(taken.addr(), at);
    let holder = refused(&bed, &saved);
    let AddressHolder::Mapping(line) = holder else { panic!("{holder}") };
    assert!(line.starts_with(&format!("{at:x}-")) && line.contains("---p"), "{line}");
    // SAFETY: it was mapped above, and nothing uses it.
    assert_eq!(unsafe { libc::munmap(taken, 4096) }, 0);
    let stream = bed.stream();
    drop(bed.allocator.restore_addresses(&saved, &stream).unwrap());
    bed.close(stream);
}

#[test]
fn a_taken_address_names_the_segment_of_this_process_and_its_pool() {
    let bed = Bed::new();
    let stream = bed.stream();
    let (pool, blocks) = bed.pool(&[3 * MIB, MIB, 7 * MIB], &stream);
    let saved = pool.save_addresses().unwrap();
    let holder = refused(&bed, &saved);
    let AddressHolder::Segment { pool: id, start, end } = holder else { panic!("{holder}") };
    assert_eq!(id, pool.id().to_string());
    assert!(start <= saved.segments()[0].base && saved.segments()[0].end() <= end);
    bed.close((blocks, pool, stream));
}

#[test]
fn addresses_that_a_sleeping_pool_needs_stay_its_own() {
    // Such a device frees memory only with its addresses, so that another reservation could get them.
    let bed = Bed::on(HostConfig::default().withholding());
    let stream = bed.stream();
    let (pool, blocks) = bed.pool(&[3 * MIB, MIB, 7 * MIB], &stream);
    let saved = pool.save_addresses().unwrap();
    pool.sleep(Contents::Keep).unwrap();
    let holder = refused(&bed, &saved);
    assert!(matches!(&holder, AddressHolder::Segment { pool: id, .. } if *id == pool.id().to_string()), "{holder}");
    pool.wake().unwrap();
    assert_eq!(pool.save_addresses().unwrap(), saved);
    bed.close((blocks, pool, stream));
}

#[test]
fn a_file_of_another_card_or_driver_is_refused_with_both_facts() {
    let host = HostConfig::default().devices(2);
    let bed = Bed::on(host.clone());
    let saved = bed.saved(&[MIB], &bed.stream());
    let other = HostBackend::new(host).unwrap().device(Ordinal(1)).unwrap();
    let other = Allocator::new(std::sync::Arc::new(other) as cachette::hal::AnyDevice);
    let refused = |allocator: &Allocator, saved: &Addresses| {
        let stream = allocator.create_stream().unwrap();
        problem(allocator.restore_addresses(saved, &stream).map(drop))
    };
    let (saved_on, here) = ("Cachette host device 0".to_owned(), "Cachette host device 1".to_owned());
    assert_eq!(refused(&other, &saved), AddressesProblem::OtherDevice { fact: "card", saved: saved_on, here });
    for (line, changed, fact) in [
        ("vendor host", "vendor NVIDIA", "vendor"),
        ("driver none", "driver 12.4", "driver"),
        ("architecture none", "architecture sm_90", "architecture"),
        ("page 2097152", "page 1048576", "page size"),
    ] {
        let text = saved.to_string();
        assert!(text.contains(line), "{text}");
        let changed: Addresses = with_checksum(&text.replace(line, changed)).parse().unwrap();
        let problem = refused(&bed.allocator, &changed);
        assert!(matches!(&problem, AddressesProblem::OtherDevice { fact: found, .. } if *found == fact), "{problem}");
        assert!(problem.to_string().contains("restore them on such a machine"), "{problem}");
    }
    bed.close(());
}

#[test]
fn only_elastic_segments_are_saved_and_restored() {
    let bed = Bed::with(HostConfig::default(), "expandable_segments:False");
    let stream = bed.stream();
    let (pool, blocks) = bed.pool(&[MIB], &stream);
    assert_eq!(pool_problem(pool.save_addresses()), PoolProblem::NotElastic);
    let segments = [AddressRange { base: 1 << 40, bytes: PAGE }];
    assert_eq!(problem(pool.restore_segments(&segments, &stream)), AddressesProblem::NotElastic);
    bed.close((blocks, pool, stream));
    let bed = Bed::on(HostConfig::default().without(Feature::VirtualMemory));
    let stream = bed.stream();
    let (pool, blocks) = bed.pool(&[MIB], &stream);
    assert!(matches!(pool.save_addresses(), Err(Error::Missing(_))));
    assert!(matches!(pool.restore_segments(&segments, &stream), Err(Error::Missing(_))));
    bed.close((blocks, pool, stream));
}

#[test]
fn a_pool_with_pending_blocks_or_asleep_is_not_saved() {
    let bed = Bed::new();
    let (stream, side) = (bed.stream(), bed.stream());
    let (pool, mut blocks) = bed.pool(&[MIB, MIB, MIB], &stream);
    let hold = bed.device.hold(side.handle()).unwrap();
    bed.fill(&blocks[0], 1, &side);
    blocks[0].record_stream(&side);
    let address = blocks.remove(0).address();
    assert_eq!(pool_problem(pool.save_addresses()), PoolProblem::Waiting { address });
    hold.release();
    side.synchronize().unwrap();
    assert_eq!(pool.save_addresses().unwrap().blocks().len(), 1);
    pool.sleep(Contents::Keep).unwrap();
    assert_eq!(pool_problem(pool.save_addresses()), PoolProblem::Asleep);
    pool.wake().unwrap();
    bed.close((blocks, pool, stream, side));
}

#[test]
fn segments_that_are_no_whole_pages_in_order_are_refused() {
    let bed = Bed::new();
    let (stream, pool) = (bed.stream(), bed.allocator.create_pool());
    let at = |base, bytes| AddressRange { base, bytes };
    let first = at(1 << 40, PAGE);
    for wrong in [
        vec![at(0, PAGE)],
        vec![at(1 << 40, 0)],
        vec![at((1 << 40) + 4096, PAGE)],
        vec![at(1 << 40, PAGE - 512)],
        vec![at(1 << 40, 2 << 40)],
        vec![at(u64::MAX - PAGE + 1, PAGE)],
        vec![first, first],
        vec![at((1 << 40) + PAGE, PAGE), first],
    ] {
        let calls = bed.device.total_calls();
        let problem = problem(pool.restore_segments(&wrong, &stream));
        assert!(matches!(problem, AddressesProblem::Unusable { page: PAGE, .. }), "{problem}");
        assert_eq!(bed.device.total_calls(), calls);
    }
    bed.close((pool, stream));
}

#[test]
fn memory_that_is_short_is_reported_and_evicts_what_is_idle_before() {
    let bed = Bed::on(HostConfig::default().capacity(64 * MIB));
    let stream = bed.stream();
    let saved = bed.saved(&[30 * MIB, 512, 10 * MIB], &stream);
    // Idle memory of other streams makes room.
    let side = bed.stream();
    drop(bed.allocator.allocate(50 * MIB, &side).unwrap());
    let (pool, blocks) = bed.allocator.restore_addresses(&saved, &stream).unwrap();
    drop((blocks, pool));
    let live = bed.allocator.allocate(50 * MIB, &side).unwrap();
    let before = bed.device.physical_bytes();
    let Err(Error::OutOfMemory(report)) = bed.allocator.restore_addresses(&saved, &stream) else { panic!("no room") };
    assert_eq!(report.requested, saved.bytes());
    assert_eq!(bed.device.physical_bytes(), before);
    assert_eq!(bed.allocator.stats().reserved_bytes.all.current, before);
    let calls = bed.device.calls(Call::Reserve);
    let huge = [AddressRange { base: 1 << 40, bytes: 1 << 40 }, AddressRange { base: 2 << 40, bytes: 1 << 40 }];
    let short = bed.allocator.create_pool().restore_segments(&huge, &stream);
    assert!(matches!(short, Err(Error::OutOfMemory(_))), "{short:?}");
    assert_eq!(bed.device.calls(Call::Reserve), calls, "no device has so much");
    drop(live);
    let (pool, blocks) = bed.allocator.restore_addresses(&saved, &stream).unwrap();
    bed.close((blocks, pool, stream, side));
}
