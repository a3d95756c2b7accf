//! Pools for PyTorch's graph captures.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use cachette::hal::{Guarded, StreamRef};
use cachette::pool::{Filter, PoolProblem};
use cachette::{Allocator, Pool, PoolId, PoolOptions};
use cachette_process as process;

use crate::entry::with_vendor;
use crate::error::Error;
use crate::std_function::Owned;

/// A device and one of its pools.
type Name = (u32, PoolId);

/// One handle for every begin that has no release yet.
static USERS: Guarded<BTreeMap<Name, Vec<Pool>>> = Guarded::new(BTreeMap::new());

/// Returns a new identifier for an internal pool. PyTorch counts its own from one and never reaches it.
#[must_use]
pub fn new_pool_id() -> PoolId {
    /// Relaxed: only the numbers must differ.
    static NEXT: AtomicU64 = AtomicU64::new(1 << 62);
    PoolId { capture: 0, user: NEXT.fetch_add(1, Relaxed) }
}

/// Routes requests to a pool, which is created if there is none, and adds a user to it.
///
/// Its memory keeps its addresses until the last user is gone, since graphs contain them.
pub(crate) fn begin(device: u32, id: PoolId, filter: Option<Owned>) -> Result<(), Error> {
    let allocator = process::allocator(device)?;
    let pool = {
        // Of threads that begin a new pool at once, one creates it.
        let _users = USERS.lock();
        open_or_create(allocator, id, &mut Some(PoolOptions::new()))?
    };
    pool.keep();
    let filter = filter.map_or(Filter::All, |filter| by_function(allocator, filter));
    // Without the lock: the pool's source is notified, and after a failure the filter and the pool are dropped.
    with_vendor(allocator, allocator.begin_allocate_to_pool(id, filter))?;
    USERS.lock().entry((device, id)).or_default().push(pool);
    Ok(())
}

/// Adds a user to a pool, which is created with `options` if there is none.
pub(crate) fn join(device: u32, id: PoolId, options: PoolOptions) -> Result<(), Error> {
    let allocator = process::allocator(device)?;
    // If the pool exists, the options are dropped without the lock, since their source may call back.
    let mut options = Some(options);
    let mut users = USERS.lock();
    let pool = open_or_create(allocator, id, &mut options)?;
    users.entry((device, id)).or_default().push(pool);
    Ok(())
}

/// The number of users of a pool.
pub(crate) fn users_of(device: u32, id: PoolId) -> u64 {
    // The lock of the parent may never be released in a forked child.
    if process::is_forked() {
        return 0;
    }
    USERS.lock().get(&(device, id)).map_or(0, |all| all.len() as u64)
}

/// The pool with an identifier.
pub(crate) fn open(device: u32, id: PoolId) -> Result<Pool, Error> {
    let allocator = process::allocator(device)?;
    with_vendor(allocator, allocator.open_pool(id))
}

/// Ends the route to a pool; its users stay.
pub(crate) fn end(device: u32, id: PoolId) -> Result<(), Error> {
    let allocator = process::allocator(device)?;
    with_vendor(allocator, allocator.end_allocate_to_pool(id))
}

/// Removes a user of a pool.
pub(crate) fn release(device: u32, id: PoolId) -> Result<(), Error> {
    let user = {
        let mut users = USERS.lock();
        let of_pool = users.get_mut(&(device, id));
        let user = of_pool.and_then(Vec::pop);
        users.retain(|_, handles| !handles.is_empty());
        user
    };
    let id = id.pair();
    let user = user.ok_or(Error::NoUser { device, id })?;
    // PyTorch launches its graphs without the allocator.
    user.mark_external_graph_use();
    drop(user);
    Ok(())
}

/// Programs depend on the size of the segments of PyTorch's pools.
fn open_or_create(allocator: &Allocator, id: PoolId, options: &mut Option<PoolOptions>) -> Result<Pool, Error> {
    let opened = match allocator.open_pool(id) {
        Err(cachette::Error::Pool { why: PoolProblem::Unknown, .. }) => {
            allocator.create_pool_with(options.take().unwrap_or_default().id(id).whole_segments(true))
        }
        opened => opened,
    };
    with_vendor(allocator, opened)
}

/// A filter that calls PyTorch's.
///
/// PyTorch's filter throws if the driver cannot report whether the stream is captured, which must not happen in an
/// allocation. So the driver is queried first, and a stream with an unknown state is not routed.
fn by_function(allocator: &'static Allocator, filter: Owned) -> Filter {
    Filter::function(move |stream| can_tell(allocator, stream) && filter.call(stream))
}

fn can_tell(allocator: &Allocator, stream: StreamRef) -> bool {
    allocator.device().capture().is_ok_and(|capture| {
        // SAFETY: 1. a caller that allocates in a stream keeps it alive.
        unsafe { capture.capture_status(stream) }.is_ok()
    })
}
