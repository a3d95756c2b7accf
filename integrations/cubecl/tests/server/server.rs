//! A server of cubecl on Cachette's host device.
//!
//! It has the parts that a real one has: cubecl's pools over a storage, and a second attempt after it gave unused pages
//! back. Kernels run at once, on the addresses of the buffers.

use std::any::Any;
use std::slice;
use std::sync::{Arc, OnceLock};

use cachette::hal::AnyDevice;
use cachette::{Allocator, Backends};
use cachette_cubecl::{CachetteStorage, Resource};
use cubecl_common::bytes::Bytes;
use cubecl_common::device::{DeviceId, DeviceService, ServiceId};
use cubecl_common::profile::{ProfileDuration, TimingMethod};
use cubecl_environment::future::DynFut;
use cubecl_environment::stream::StreamId;
use cubecl_ir::features::Features;
use cubecl_ir::{
    DeviceIdentity, DeviceProperties, HardwareProperties, MemoryDeviceProperties, TargetProperties, VectorSize,
};
use cubecl_server::allocator::ContiguousMemoryLayoutPolicy;
use cubecl_server::dry_run::LaunchMode;
use cubecl_server::kernel::CubeKernel;
use cubecl_server::logging::ServerLogger;
use cubecl_server::memory_management::{
    Cleanup, ErrorGraph, ManagedMemoryHandle, MemoryAllocationMode, MemoryConfiguration, MemoryManagement,
    MemoryManagementOptions, PageUpdate, StreamMemoryReport,
};
use cubecl_server::server::{
    BufferBinding, CopyDescriptor, CubeCount, IoError, KernelArguments, KernelResource, ProfileError, ProfilingToken,
    Server, ServerCommunication, ServerError, ServerStorage, ServerUtilities,
};
use cubecl_server::storage::ManagedResource;
use cubecl_server::timestamp_profiler::TimestampProfiler;

use crate::kernel::Add;

pub(crate) const DEVICE: DeviceId = DeviceId { type_id: 0, index_id: 0 };
/// What the server's allocator may hold.
pub(crate) const LIMIT: u64 = 64 << 20;

/// The cache of the process, which the server shares with everything else in it.
pub(crate) fn cache() -> &'static Allocator {
    static CACHE: OnceLock<Allocator> = OnceLock::new();
    CACHE.get_or_init(|| {
        let allocator = Allocator::new(Backends::open("host").expect("the host is a device"));
        allocator.set_memory_limit(Some(LIMIT));
        allocator
    })
}

#[derive(Debug)]
pub(crate) struct HostServer {
    memory: MemoryManagement<CachetteStorage<AnyDevice>>,
    failures: ErrorGraph,
    timestamps: TimestampProfiler,
    utilities: Arc<ServerUtilities>,
}

impl HostServer {
    fn reserve(&mut self, size: u64) -> Result<ManagedMemoryHandle, IoError> {
        match self.memory.reserve(size, PageUpdate::Allow, &mut self.failures) {
            Err(refused) if refused.may_succeed_after_reclaim() => {
                self.memory.cleanup(Cleanup::Explicit, &mut self.failures);
                self.memory.reserve(size, PageUpdate::Allow, &mut self.failures)
            }
            answer => answer,
        }
    }

    fn resource(&mut self, buffer: &BufferBinding) -> Result<Resource, IoError> {
        self.memory.get_resource(buffer.memory.clone(), buffer.offset_start, buffer.offset_end)
    }
}

/// The bytes of a resource.
fn bytes(resource: Resource, len: usize) -> &'static mut [u8] {
    assert!(len as u64 <= resource.bytes());
    // SAFETY: the addresses of the host device are host memory, which the caller's binding keeps. Buffers do not overlap.
    unsafe { slice::from_raw_parts_mut(resource.address() as *mut u8, len) }
}

impl Server for HostServer {
    fn initialize_memory(
        &mut self,
        memory: ManagedMemoryHandle,
        size: u64,
        _stream: StreamId,
    ) -> Result<(), ServerError> {
        let reserved = self.reserve(size)?;
        self.memory.bind(reserved, memory, 0, &mut self.failures)?;
        Ok(())
    }

    fn logger(&self) -> Arc<ServerLogger> {
        Arc::clone(&self.utilities.logger)
    }

    fn utilities(&self) -> Arc<ServerUtilities> {
        Arc::clone(&self.utilities)
    }

    fn read(&mut self, from: Vec<CopyDescriptor>, _stream: StreamId) -> DynFut<Result<Vec<Bytes>, ServerError>> {
        let copies: Result<Vec<Bytes>, ServerError> = from
            .iter()
            .map(|copy| {
                let len = usize::try_from(copy.handle.size_in_used()).expect("a length");
                let resource = self.resource(&copy.handle)?;
                Ok(Bytes::from_bytes_vec(bytes(resource, len).to_vec()))
            })
            .collect();
        Box::pin(async move { copies })
    }

    fn write(&mut self, to: Vec<(CopyDescriptor, Bytes)>, _stream: StreamId) {
        for (copy, data) in to {
            let resource = self.resource(&copy.handle).expect("what is written was initialised");
            bytes(resource, data.len()).copy_from_slice(&data);
        }
    }

    fn sync(&mut self, _buffers: Vec<BufferBinding>, _stream: StreamId) -> DynFut<Result<(), ServerError>> {
        Box::pin(async { Ok(()) })
    }

    fn check(&mut self, buffers: Vec<BufferBinding>, _stream: StreamId) -> Result<(), ServerError> {
        buffers.iter().try_for_each(|buffer| self.resource(buffer).map(drop)).map_err(ServerError::from)
    }

    unsafe fn launch(
        &mut self,
        kernel: Box<dyn CubeKernel>,
        _count: CubeCount,
        arguments: KernelArguments,
        _stream: StreamId,
        _mode: LaunchMode,
    ) {
        assert!((&*kernel as &dyn Any).is::<Add>(), "the server has one kernel");
        let resources: Vec<Resource> = arguments
            .resources
            .iter()
            .map(|resource| match resource {
                KernelResource::Buffer(buffer) => self.resource(buffer).expect("arguments are initialised"),
                KernelResource::TensorMap(_) => panic!("the kernel takes buffers"),
            })
            .collect();
        Add::run(&resources.try_into().expect("the kernel takes three buffers"));
    }

    fn flush(&mut self, _stream: StreamId) -> Result<(), ServerError> {
        Ok(())
    }

    fn memory_report(&mut self, stream: StreamId) -> Option<StreamMemoryReport> {
        Some(StreamMemoryReport { stream, pools: self.memory.memory_report(), auxiliary: Vec::new() })
    }

    fn memory_cleanup(&mut self, _stream: StreamId) -> Result<(), ServerError> {
        self.memory.cleanup(Cleanup::Explicit, &mut self.failures);
        Ok(())
    }

    fn start_profile(&mut self, _stream: StreamId) -> Result<ProfilingToken, ServerError> {
        Ok(self.timestamps.start())
    }

    fn end_profile(&mut self, _stream: StreamId, token: ProfilingToken) -> Result<ProfileDuration, ProfileError> {
        self.timestamps.stop(token)
    }

    fn allocation_mode(&mut self, mode: MemoryAllocationMode, _stream: StreamId) {
        self.memory.mode(mode);
    }
}

impl ServerCommunication for HostServer {}

impl ServerStorage for HostServer {
    type Storage = CachetteStorage<AnyDevice>;

    fn get_resource(
        &mut self,
        buffer: BufferBinding,
        _stream: StreamId,
    ) -> Result<ManagedResource<Resource>, ServerError> {
        let resource = self.resource(&buffer)?;
        Ok(ManagedResource::new(buffer.memory, resource))
    }
}

impl DeviceService for HostServer {
    fn init(device: DeviceId) -> Self {
        let storage = CachetteStorage::new(cache().clone(), cache().create_stream().expect("a stream is made"));
        let properties = MemoryDeviceProperties::new(LIMIT, CachetteStorage::<AnyDevice>::ALIGNMENT as u64);
        let logger = Arc::new(ServerLogger::default());
        let memory = MemoryManagement::from_configuration(
            storage,
            &properties,
            MemoryConfiguration::ExclusivePages,
            Arc::clone(&logger),
            MemoryManagementOptions::new("host"),
        );
        let identity = DeviceIdentity { name: "host".into(), fingerprint: "host".into(), physical: None };
        let properties =
            DeviceProperties::new(Features::default(), properties, hardware(), TimingMethod::System, identity);
        let (utilities, _captures) = ServerUtilities::init(
            ServiceId::of::<Self>(device),
            "host",
            properties,
            TargetProperties::default(),
            logger,
            ContiguousMemoryLayoutPolicy::new(4),
        );
        Self {
            memory,
            failures: ErrorGraph::default(),
            timestamps: TimestampProfiler::default(),
            utilities: Arc::new(utilities),
        }
    }

    fn utilities(&self) -> Arc<dyn Any + Send + Sync> {
        Server::utilities(self)
    }
}

fn hardware() -> HardwareProperties {
    HardwareProperties {
        load_width: 128,
        vector_register_count: None,
        plane_size_min: 1,
        plane_size_max: 1,
        max_bindings: 8,
        max_shared_memory_size: 0,
        max_cube_count: (1, 1, 1),
        max_units_per_cube: 1,
        max_cube_dim: (1, 1, 1),
        num_streaming_multiprocessors: None,
        num_tensor_cores: None,
        min_tensor_cores_dim: None,
        num_cpu_cores: None,
        last_level_cache_size: None,
        max_vector_size: VectorSize::MAX,
        cube_mma_reserved_shared_memory: 0,
    }
}
