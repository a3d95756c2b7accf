//! The id of a pool, and the options of a new one: its source and its policy.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::source::Source;

/// The options of a new pool.
#[derive(Clone, Debug, Default)]
#[must_use]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of its own")]
pub struct PoolOptions {
    pub(crate) id: Option<PoolId>,
    pub(crate) source: Option<Arc<dyn Source>>,
    pub(crate) no_split: bool,
    pub(crate) use_on_oom: bool,
    pub(crate) whole_segments: bool,
    /// Empty for none.
    pub(crate) tag: String,
    pub(crate) priority: Option<Priority>,
    pub(crate) reload: Option<PoolCallback>,
    pub(crate) registered: bool,
    pub(crate) before_sleep: Option<PoolCallback>,
}

impl PoolOptions {
    /// The default options.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the id, from [`PoolId::new`](super::PoolId::new).
    pub const fn id(mut self, id: PoolId) -> Self {
        self.id = Some(id);
        self
    }

    /// Allocates segments from `source` instead of the device.
    pub fn source(mut self, source: Arc<dyn Source>) -> Self {
        self.source = Some(source);
        self
    }

    /// Disables splits: every allocation gets a separate segment, which is direct.
    pub const fn no_split(mut self, on: bool) -> Self {
        self.no_split = on;
        self
    }

    /// Sets the tag. Pools with the same tag can sleep and wake together; see [`sleep`](crate::sleep).
    pub fn tag(mut self, tag: impl Into<String>) -> Self {
        self.tag = tag.into();
        self
    }

    /// Maps elastic memory for large requests in whole segments of 20 MiB, while there is enough memory.
    ///
    /// This holds more memory than chunks of the needed size. It is for programs that rely on the figures of PyTorch's
    /// expandable segments.
    pub const fn whole_segments(mut self, on: bool) -> Self {
        self.whole_segments = on;
        self
    }

    /// Lets requests evict the pool before they fail, while it has no guard; see [`evict`](crate::evict).
    pub const fn evictable(mut self, priority: Priority) -> Self {
        self.priority = Some(priority);
        self
    }

    /// Drops the contents when the pool is evicted, and calls `reload` to write them again.
    ///
    /// It runs inside [`make_resident`](crate::Pool::make_resident) and may allocate from the pool and queue work in its
    /// streams. It must not make other pools resident: two threads could wait for each other.
    pub fn reload<E: fmt::Display>(mut self, reload: impl Fn(PoolId) -> Result<(), E> + Send + Sync + 'static) -> Self {
        self.reload = Some(PoolCallback::new(reload));
        self
    }

    /// Never changes the memory behind an address while the pool has users, so that it may be registered.
    ///
    /// Network cards and collective libraries keep registrations of memory by its address (`GPUDirect` RDMA, NCCL, UCX,
    /// NIXL). No memory of the pool moves or is released, even if it is free, and network cards may access it where
    /// the device supports that. The pool sleeps only if a callback agrees: [`before_sleep`](Self::before_sleep).
    pub const fn registered(mut self, on: bool) -> Self {
        self.registered = on;
        self
    }

    /// Calls `agree` before the pool sleeps, to end registrations of its memory. If it fails, the pool stays awake.
    ///
    /// It runs once per sleep, before anything is waited for, and must not put the pool to sleep or wake it.
    pub fn before_sleep<E: fmt::Display>(
        mut self,
        agree: impl Fn(PoolId) -> Result<(), E> + Send + Sync + 'static,
    ) -> Self {
        self.before_sleep = Some(PoolCallback::new(agree));
        self
    }

    /// Lets the pool's free blocks serve requests of other pools before those fail.
    pub const fn use_on_oom(mut self, on: bool) -> Self {
        self.use_on_oom = on;
        self
    }
}

/// How long an evictable pool stays: pools of a lower priority are evicted first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Priority(pub u32);

/// A callback of a pool. Its error text reaches the caller.
#[derive(Clone)]
pub(crate) struct PoolCallback(Arc<dyn Fn(PoolId) -> Result<(), String> + Send + Sync>);

impl PoolCallback {
    fn new<E: fmt::Display>(call: impl Fn(PoolId) -> Result<(), E> + Send + Sync + 'static) -> Self {
        Self(Arc::new(move |pool| call(pool).map_err(|error| error.to_string())))
    }

    pub(crate) fn call(&self, pool: PoolId) -> Result<(), String> {
        (self.0)(pool)
    }
}

impl fmt::Debug for PoolCallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PoolCallback")
    }
}

/// The id of a pool, unique in the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PoolId {
    /// The number of a capture pool; zero for a pool that a user created.
    pub capture: u64,
    /// The number of a pool that a user created; zero for a capture pool.
    pub user: u64,
}

impl PoolId {
    /// The default pool, which serves all requests without a route.
    pub const DEFAULT: Self = Self { capture: 0, user: 0 };

    /// Returns a new id, for a pool that is created later. PyTorch calls it a pool handle.
    #[doc(alias = "graph_pool_handle")]
    #[must_use]
    pub fn new() -> Self {
        /// Relaxed: only the numbers must differ.
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self { capture: 0, user: NEXT.fetch_add(1, Relaxed) }
    }

    pub(super) fn of_capture() -> Self {
        /// Relaxed: only the numbers must differ.
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self { capture: NEXT.fetch_add(1, Relaxed), user: 0 }
    }

    /// The id as a pair, for sources and other languages.
    #[must_use]
    pub const fn pair(self) -> (u64, u64) {
        (self.capture, self.user)
    }
}

impl fmt::Display for PoolId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{}, {}}}", self.capture, self.user)
    }
}
