//! Cachette as the memory of a patched runtime: what a program writes, and cubecl's pools over it.

use std::sync::Arc;

use cachette::hal::{AnyDevice, StreamRef};
use cachette::{Allocator, Backends, Error};
use cubecl_environment::backtrace::BackTrace;
use cubecl_ir::MemoryDeviceProperties;
use cubecl_server::logging::ServerLogger;
use cubecl_server::memory_management::{
    Cleanup, ErrorGraph, MemoryConfiguration, MemoryManagement, MemoryManagementOptions, PageUpdate,
};
use cubecl_server::server::IoError;
use cubecl_server::storage::DeviceMemory;

#[cfg(feature = "cuda")]
use crate::compute::storage::{external::ExternalMemory, gpu::GpuStorage};
#[cfg(feature = "hip")]
use crate::compute::{external::ExternalMemory, gpu::GpuStorage};

struct Cachette(Allocator);

impl DeviceMemory for Cachette {
    fn alloc(&self, _device: u32, stream: usize, size: u64) -> Result<u64, IoError> {
        // SAFETY: 1. and 2. The runtime's streams live as long as the process.
        unsafe { self.0.allocate_raw(size, StreamRef::from_raw(stream)) }.map_err(|error| match error {
            Error::OutOfMemory(_) => IoError::OutOfMemory { size, backtrace: BackTrace::capture() },
            other => IoError::Unknown { description: other.to_string(), backtrace: BackTrace::capture() },
        })
    }

    fn dealloc(&self, _device: u32, _stream: usize, address: u64, _size: u64) {
        if let Err(error) = self.0.free_raw(address) {
            log::warn!("{error}");
        }
    }
}

#[test]
fn external_memory_is_cachette() {
    let allocator = Allocator::new(Backends::open("host").unwrap());
    allocator.set_memory_limit(Some(32 << 20));
    let stream = allocator.create_stream().unwrap();
    let external = ExternalMemory::new(Arc::new(Cachette(allocator.clone())), 0, stream.handle().raw());
    #[cfg(feature = "hip")]
    let storage = GpuStorage::new(512);
    #[cfg(feature = "cuda")]
    let storage = GpuStorage::new(512, std::ptr::null_mut(), cubecl_server::config::memory::CudaAllocator::External);
    let mut failures = ErrorGraph::default();
    let mut memory = MemoryManagement::from_configuration(
        storage.with_external(Some(external)),
        &MemoryDeviceProperties::new(64 << 20, 512),
        MemoryConfiguration::ExclusivePages,
        Arc::new(ServerLogger::default()),
        MemoryManagementOptions::new("test"),
    );
    let first = memory.reserve(20 << 20, PageUpdate::Allow, &mut failures).unwrap();
    assert!(allocator.allocated_bytes() >= 20 << 20);
    let refused = memory.reserve(20 << 20, PageUpdate::Allow, &mut failures).unwrap_err();
    assert!(refused.may_succeed_after_reclaim(), "{refused}");
    drop(first);
    memory.cleanup(Cleanup::Explicit, &mut failures);
    assert_eq!(allocator.allocated_bytes(), 0);
    memory.reserve(24 << 20, PageUpdate::Allow, &mut failures).unwrap();
    allocator.check().unwrap();
}

#[test]
fn external_is_a_word_of_the_configuration() {
    use cubecl_server::config::memory::CudaAllocator;
    let config: Result<CudaAllocator, _> = serde_json::from_str("\"external\"");
    assert_eq!(config.unwrap(), CudaAllocator::External);
}
