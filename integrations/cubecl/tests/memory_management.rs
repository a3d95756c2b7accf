//! cubecl's own memory management over pages from Cachette.

use std::sync::Arc;

use cachette::hal::AnyDevice;
use cachette::{Allocator, Backends};
use cachette_cubecl::{CachetteStorage, Resource};
use cubecl_ir::MemoryDeviceProperties;
use cubecl_server::logging::ServerLogger;
use cubecl_server::memory_management::{
    Cleanup, ErrorGraph, ManagedMemoryHandle, MemoryAllocationMode, MemoryConfiguration, MemoryManagement,
    MemoryManagementOptions, PageUpdate,
};
use cubecl_server::server::IoError;
use cubecl_server::storage::{ComputeStorage, StorageHandle, StorageId, StorageUtilization};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

fn cache() -> Allocator {
    Allocator::new(Backends::open("host").expect("the host is a device"))
}

fn storage(allocator: &Allocator) -> CachetteStorage<AnyDevice> {
    CachetteStorage::new(allocator.clone(), allocator.create_stream().expect("a stream is made"))
}

/// cubecl's memory management, with the failures that it keeps beside it.
struct Memory {
    pools: MemoryManagement<CachetteStorage<AnyDevice>>,
    failures: ErrorGraph,
}

impl Memory {
    fn new(allocator: &Allocator, configuration: MemoryConfiguration) -> Self {
        let properties = MemoryDeviceProperties::new(64 * MIB, CachetteStorage::<AnyDevice>::ALIGNMENT as u64);
        let (logger, options) = (Arc::new(ServerLogger::default()), MemoryManagementOptions::new("test"));
        let storage = storage(allocator);
        let pools = MemoryManagement::from_configuration(storage, &properties, configuration, logger, options);
        Self { pools, failures: ErrorGraph::default() }
    }

    fn reserve(&mut self, bytes: u64) -> Result<ManagedMemoryHandle, IoError> {
        self.pools.reserve(bytes, PageUpdate::Allow, &mut self.failures)
    }

    fn resource(&mut self, handle: &ManagedMemoryHandle) -> Resource {
        self.pools.get_resource(handle.clone().binding(), None, None).expect("the buffer is reserved")
    }

    fn cleanup(&mut self) {
        self.pools.cleanup(Cleanup::Explicit, &mut self.failures);
    }
}

#[test]
fn a_reservation_is_served_by_the_cache() {
    let allocator = cache();
    let mut memory = Memory::new(&allocator, MemoryConfiguration::default());
    let handle = memory.reserve(MIB).unwrap();
    let resource = memory.resource(&handle);
    assert!(resource.bytes() >= MIB);
    assert_eq!(resource.address() % 512, 0);
    assert!(allocator.allocated_bytes() >= MIB);
    assert!(memory.pools.bytes_allocated() >= MIB);
    allocator.check().unwrap();
}

#[test]
fn buffers_share_a_page_and_do_not_overlap() {
    let allocator = cache();
    let mut memory = Memory::new(&allocator, MemoryConfiguration::default());
    let large = memory.reserve(8 * MIB).unwrap();
    drop(large);
    let handles: Vec<_> = (0..16).map(|_| memory.reserve(256 * KIB).unwrap()).collect();
    let mut parts: Vec<Resource> = handles.iter().map(|handle| memory.resource(handle)).collect();
    parts.sort_by_key(Resource::address);
    assert!(parts.windows(2).all(|pair| pair[0].address() + pair[0].bytes() <= pair[1].address()), "{parts:?}");
    let pages = allocator.stats().allocation.all.current;
    assert!(pages < 16, "{pages} pages serve 16 buffers");
}

#[test]
fn a_cleanup_gives_pages_back_and_the_cache_keeps_them() {
    let allocator = cache();
    let mut memory = Memory::new(&allocator, MemoryConfiguration::default());
    let handle = memory.reserve(4 * MIB).unwrap();
    drop(handle);
    memory.cleanup();
    assert_eq!((allocator.allocated_bytes(), memory.pools.bytes_allocated()), (0, 0));
    let asked = allocator.stats().num_device_alloc;
    let _again = memory.reserve(4 * MIB).unwrap();
    assert_eq!(allocator.stats().num_device_alloc, asked, "the cache had the page");
}

#[test]
fn dedicated_buffers_come_straight_from_the_cache() {
    let allocator = cache();
    let mut memory = Memory::new(&allocator, MemoryConfiguration::ExclusivePages);
    memory.pools.mode(MemoryAllocationMode::Dedicated);
    let address = {
        let first = memory.reserve(3 * MIB).unwrap();
        memory.resource(&first).address()
    };
    memory.cleanup();
    let second = memory.reserve(3 * MIB).unwrap();
    assert_eq!(memory.resource(&second).address(), address, "the freed block serves the next request");
    assert_eq!(allocator.allocated_bytes(), 3 * MIB);
}

#[test]
fn out_of_memory_asks_cubecl_to_reclaim_and_then_succeeds() {
    let allocator = cache();
    allocator.set_memory_limit(Some(32 * MIB));
    let mut memory = Memory::new(&allocator, MemoryConfiguration::ExclusivePages);
    let held = memory.reserve(20 * MIB).unwrap();
    let refused = memory.reserve(20 * MIB).unwrap_err();
    assert!(matches!(refused, IoError::OutOfMemory { size, .. } if size >= 20 * MIB), "{refused}");
    assert!(refused.may_succeed_after_reclaim());
    drop(held);
    memory.cleanup();
    let _served = memory.reserve(24 * MIB).unwrap();
    allocator.check().unwrap();
}

#[test]
fn the_report_of_a_refused_page_reaches_an_observer() {
    let allocator = cache();
    allocator.set_memory_limit(Some(2 * MIB));
    let (send, receive) = std::sync::mpsc::channel();
    allocator.on_out_of_memory(move |report| send.send((report.requested, report.limit)).unwrap());
    storage(&allocator).alloc(4 * MIB).unwrap_err();
    assert_eq!(receive.try_recv(), Ok((4 * MIB, Some(2 * MIB))));
}

#[test]
fn a_page_larger_than_any_device_is_not_tried_again() {
    let refused = storage(&cache()).alloc(1 << 60).unwrap_err();
    assert!(matches!(refused, IoError::BufferTooBig { size, .. } if size == 1 << 60), "{refused}");
    assert!(!refused.may_succeed_after_reclaim());
}

#[test]
fn a_deallocation_takes_effect_when_it_is_flushed() {
    let allocator = cache();
    let mut storage = storage(&allocator);
    let page = storage.alloc(MIB).unwrap();
    storage.dealloc(page.id);
    assert_eq!(storage.bytes_allocated(), MIB);
    assert!(storage.get(&page).is_ok());
    storage.flush();
    assert_eq!((storage.bytes_allocated(), allocator.allocated_bytes()), (0, 0));
    let gone = storage.get(&page).unwrap_err();
    assert!(matches!(gone, IoError::StorageHandleNotFound { .. }), "{gone}");
    // Twice is once.
    storage.dealloc(page.id);
    storage.flush();
    assert_eq!(storage.bytes_allocated(), 0);
}

#[test]
fn a_wrong_handle_is_a_failed_lookup() {
    let mut storage = storage(&cache());
    let page = storage.alloc(4 * KIB).unwrap();
    let part = |id, offset, size| StorageHandle::new(id, StorageUtilization { offset, size });
    assert_eq!(storage.get(&part(page.id, KIB, 3 * KIB)).unwrap().bytes(), 3 * KIB);
    for wrong in [part(page.id, KIB, 4 * KIB), part(page.id, u64::MAX, 2), part(StorageId::new(), 0, 1)] {
        let refused = storage.get(&wrong).unwrap_err();
        assert!(matches!(refused, IoError::StorageHandleNotFound { .. }), "{refused}");
    }
}

#[test]
fn a_page_of_no_bytes_has_a_handle_and_no_memory() {
    let allocator = cache();
    let mut storage = storage(&allocator);
    let page = storage.alloc(0).unwrap();
    let resource = storage.get(&page).unwrap();
    assert_eq!((resource.address(), resource.bytes()), (0, 0));
    assert_eq!(allocator.allocated_bytes(), 0);
}

#[test]
fn a_dropped_storage_leaves_no_memory_behind() {
    let allocator = cache();
    let mut storage = storage(&allocator);
    storage.alloc(MIB).unwrap();
    let kept = storage.alloc(MIB).unwrap();
    storage.dealloc(kept.id);
    drop(storage);
    assert_eq!(allocator.allocated_bytes(), 0);
}
