//! Identifiers of pools.

use cachette::PoolId;

use crate::guard::{call, promises};
use crate::handle::Empty;
use crate::status::Status;

/// The identifier of a pool, unique in the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct PoolName {
    /// Not zero for a pool that was created for captures.
    pub capture: u64,
    /// Not zero for a pool that a user created.
    pub user: u64,
}

impl Empty for PoolName {
    const EMPTY: Self = Self { capture: 0, user: 0 };
}

impl From<PoolId> for PoolName {
    fn from(id: PoolId) -> Self {
        let (capture, user) = id.pair();
        Self { capture, user }
    }
}

impl From<PoolName> for PoolId {
    fn from(PoolName { capture, user }: PoolName) -> Self {
        Self { capture, user }
    }
}

/// Writes a new identifier, for a pool that is created later.
#[doc = promises!("2")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cachette_pool_new_id(out_id: *mut PoolName) -> Status {
    call!([out(out_id)], *out_id = PoolId::new().into())
}
