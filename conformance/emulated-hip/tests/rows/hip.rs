//! The library under test, with what most rows need of it.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr;

use cachette_emulated_hip::{Personality, install};
use cachette_hal::load::{Candidate, Library};
use cachette_hal::symbol_table;
use cachette_hal_hip::symbols::Symbols;
use cachette_hal_hip::types::{
    Address, BackingHandle, EventHandle, MemAccessDesc, MemAllocationFlags, MemAllocationProp, MemLocation, Status,
    StreamHandle,
};

/// Calls a function of the library: `call!(hip.GROUP.FUNCTION(ARGUMENTS))`.
macro_rules! call {
    ($hip:ident.extra.$function:ident($($argument:expr),*)) => {
        call!(@ $hip.extra.$function, $($argument),*)
    };
    ($hip:ident.core.$function:ident($($argument:expr),*)) => {
        call!(@ $hip.symbols.core.$function, $($argument),*)
    };
    ($hip:ident.$group:ident.$function:ident($($argument:expr),*)) => {
        call!(@ $hip.symbols.$group.as_ref().expect("it has every function").$function, $($argument),*)
    };
    (@ $function:expr, $($argument:expr),*) => {{
        let function = $function;
        // SAFETY: rows pass out-parameters that outlive the call, and else what lives or what the library checks.
        unsafe { function($($argument),*) }
    }};
}
pub(crate) use call;

symbol_table! {
    /// Functions that only tests call.
    pub(crate) struct Extra {
        required {
            peek as "hipPeekAtLastError": fn() -> Status;
            query as "hipStreamQuery": fn(stream: StreamHandle) -> Status;
            device_of as "hipStreamGetDevice": fn(stream: StreamHandle, device: *mut c_int) -> Status;
            malloc_async as "hipMallocAsync": fn(at: *mut Address, bytes: u64, stream: StreamHandle) -> Status;
            wait as "hipEventSynchronize": fn(event: EventHandle) -> Status;
            is_capturing as "hipStreamIsCapturing": fn(stream: StreamHandle, status: *mut c_int) -> Status;
            retain as "hipMemRetainAllocationHandle":
                fn(handle: *mut BackingHandle, address: Address) -> Status;
            version as "hipRuntimeGetVersion": fn(version: *mut c_int) -> Status;
            create_stream as "hipStreamCreateWithPriority":
                fn(stream: *mut StreamHandle, flags: c_uint, priority: c_int) -> Status;
            flags as "hipStreamGetFlags": fn(stream: StreamHandle, flags: *mut c_uint) -> Status;
        }
        optional {}
    }
}

/// The library under test, as one version.
pub(crate) struct Hip {
    pub(crate) personality: Personality,
    pub(crate) symbols: Symbols,
    pub(crate) extra: Extra,
}

impl Hip {
    pub(crate) fn load(personality: Personality) -> Self {
        let path = install(personality).expect("the library was built");
        // SAFETY: it is the library of this very crate.
        let library = unsafe { Library::open_first(&[Candidate::Path(path)]) };
        let library = library.expect("it opens");
        Self {
            personality,
            symbols: Symbols::resolve(&library).expect("it has every function"),
            extra: Extra::resolve(&library).expect("it has every function"),
        }
    }

    /// What was seen of 6.4.3, 7.2.4 and 7.14, in this order: the one for this version. 10 is as 7.14.
    pub(crate) fn seen<T: Copy>(&self, versions: [T; 3]) -> T {
        versions[(self.personality as usize).min(2)]
    }

    pub(crate) fn set_device(&self, device: c_int) {
        assert_eq!(call!(self.core.hipSetDevice(device)), 0);
    }

    pub(crate) fn malloc(&self, bytes: u64) -> Address {
        let mut at = 0;
        assert_eq!(call!(self.core.hipMalloc(&raw mut at, bytes)), 0);
        at
    }

    pub(crate) fn free(&self, at: Address) {
        assert_eq!(call!(self.core.hipFree(at)), 0);
    }

    /// Free memory of the current device.
    pub(crate) fn free_memory(&self) -> u64 {
        let (mut free, mut total) = (0, 0);
        assert_eq!(call!(self.core.hipMemGetInfo(&raw mut free, &raw mut total)), 0);
        free
    }

    pub(crate) fn stream(&self) -> StreamHandle {
        let mut stream = 0;
        assert_eq!(call!(self.core.hipStreamCreateWithFlags(&raw mut stream, 1)), 0);
        stream
    }

    pub(crate) fn destroy_stream(&self, stream: StreamHandle) {
        assert_eq!(call!(self.core.hipStreamDestroy(stream)), 0);
    }

    /// A stream that was destroyed.
    pub(crate) fn destroyed_stream(&self) -> StreamHandle {
        let stream = self.stream();
        self.destroy_stream(stream);
        stream
    }

    pub(crate) fn synchronize(&self, stream: StreamHandle) -> Status {
        call!(self.core.hipStreamSynchronize(stream))
    }

    /// Reserves addresses.
    pub(crate) fn reserve(&self, bytes: u64, alignment: u64) -> Result<Address, Status> {
        let mut at = 0;
        let status = call!(self.virtual_memory.hipMemAddressReserve(&raw mut at, bytes, alignment, 0, 0));
        if status == 0 { Ok(at) } else { Err(status) }
    }

    pub(crate) fn release(&self, at: Address, bytes: u64) -> Status {
        call!(self.virtual_memory.hipMemAddressFree(at, bytes))
    }

    /// Makes physical memory.
    pub(crate) fn create_on(&self, device: c_int, bytes: u64, kind: c_int) -> Result<BackingHandle, Status> {
        let mut handle = 0;
        let wanted = MemAllocationProp {
            kind: 1,
            requested_handle_type: kind,
            location: MemLocation { kind: 1, id: device },
            win32_handle_meta_data: ptr::null_mut::<c_void>(),
            flags: MemAllocationFlags::default(),
        };
        let status = call!(self.virtual_memory.hipMemCreate(&raw mut handle, bytes, &raw const wanted, 0));
        if status == 0 { Ok(handle) } else { Err(status) }
    }

    pub(crate) fn create(&self, bytes: u64) -> BackingHandle {
        self.create_on(0, bytes, 0).expect("there is memory")
    }

    pub(crate) fn destroy(&self, handle: BackingHandle) {
        assert_eq!(call!(self.virtual_memory.hipMemRelease(handle)), 0);
    }

    pub(crate) fn map(&self, at: Address, bytes: u64, handle: BackingHandle) -> Status {
        call!(self.virtual_memory.hipMemMap(at, bytes, 0, handle, 0))
    }

    pub(crate) fn unmap(&self, at: Address, bytes: u64) -> Status {
        call!(self.virtual_memory.hipMemUnmap(at, bytes))
    }

    /// Reserves addresses for physical memory of these sizes and maps each at its place.
    pub(crate) fn mapped(&self, sizes: &[u64]) -> (Address, Vec<BackingHandle>) {
        let at = self.reserve(sizes.iter().sum(), 0).expect("there are addresses");
        let mut next = at;
        let map = |bytes: &u64| {
            let handle = self.create(*bytes);
            assert_eq!(self.map(next, *bytes, handle), 0);
            next += bytes;
            handle
        };
        (at, sizes.iter().map(map).collect())
    }

    /// Unmaps and destroys what [`mapped`](Self::mapped) made, and releases the addresses.
    pub(crate) fn unmapped(&self, at: Address, sizes: &[u64], handles: &[BackingHandle]) {
        let mut next = at;
        for (bytes, handle) in sizes.iter().zip(handles) {
            assert_eq!(self.unmap(next, *bytes), 0);
            self.destroy(*handle);
            next += bytes;
        }
        assert_eq!(self.release(at, sizes.iter().sum()), 0);
    }

    /// Lets device 0 read and write.
    pub(crate) fn grant(&self, at: Address, bytes: u64) -> Status {
        let access = MemAccessDesc { location: MemLocation { kind: 1, id: 0 }, flags: 3 };
        call!(self.virtual_memory.hipMemSetAccess(at, bytes, &raw const access, 1))
    }
}
