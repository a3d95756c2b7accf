//! Pools, and the threads that have entered them.

use std::cell::RefCell;
use std::sync::Arc;

use cachette::hal::{AnyDevice, Guarded};
use cachette::pool::PoolGuard;
use cachette::{Allocator, Pool, PoolOptions};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::allocation::PyAllocation;
use crate::sleep::{self, SleptEntry};
use crate::stream::Named;
use crate::{calls, error, source, stats};

/// A private set of segments.
///
/// `with pool:` routes this thread's requests to it. When the last user is gone its unused memory is released.
#[pyclass(module = "cachette_gpu", name = "Pool", frozen)]
pub(crate) struct PyPool {
    id: (u64, u64),
    /// `None` after the release.
    inner: Guarded<Option<Arc<Pool>>>,
}

/// A pool that this thread has entered.
///
/// The guard is declared, and so dropped, before the pool that it borrows from.
struct Entered {
    _guard: PoolGuard<'static, AnyDevice>,
    pool: Arc<Pool>,
}

thread_local! {
    /// The pools that this thread has entered, the last one last.
    static ENTERED: RefCell<Vec<Entered>> = const { RefCell::new(Vec::new()) };
}

/// Options of a pool of `allocator` whose segments come from the source called `source`.
pub(crate) fn options(allocator: &Allocator, source: Option<&str>) -> PyResult<PoolOptions> {
    let options = PoolOptions::new();
    let Some(name) = source else { return Ok(options) };
    Ok(options.source(source::find(name, allocator.device_info())?))
}

impl PyPool {
    pub(crate) fn create(allocator: &Allocator, options: PoolOptions) -> PyResult<Self> {
        let pool = allocator.create_pool_with(options);
        let pool = pool.map_err(error::of_allocator)?;
        Ok(Self { id: pool.id().pair(), inner: Guarded::new(Some(Arc::new(pool))) })
    }

    /// The pool, unless it was released.
    fn pool(&self) -> PyResult<Arc<Pool>> {
        self.inner.lock().clone().ok_or_else(|| error::of_pool("this pool was released; create another"))
    }
}

#[pymethods]
impl PyPool {
    /// The pool's identifier: two numbers.
    #[getter]
    const fn id(&self) -> (u64, u64) {
        self.id
    }

    /// Allocates `size` bytes from the pool for work in `stream`; see `Allocator.allocate`.
    #[pyo3(signature = (size, stream=None))]
    fn allocate(&self, py: Python<'_>, size: u64, stream: Option<Named<'_>>) -> PyResult<PyAllocation> {
        let pool = self.pool()?;
        let stream = Named::open(stream, pool.allocator())?;
        let allocation = calls::detached(py, || pool.allocate(size, &stream))?.map_err(error::of_allocator)?;
        Ok(PyAllocation::new(pool.allocator().clone(), allocation))
    }

    /// The statistics of the pool: `allocations`, `allocated_bytes`, `segments`, `reserved_bytes`.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        stats::of_pool(py, &self.pool()?.stats())
    }

    /// Releases every unused segment of the pool, and returns the number of bytes.
    fn empty_cache(&self, py: Python<'_>) -> PyResult<u64> {
        let pool = self.pool()?;
        calls::detached(py, || pool.empty_cache())?.map_err(error::of_allocator)
    }

    /// Releases all memory of the pool to the device, and keeps every address. Returns the released and the saved
    /// bytes.
    ///
    /// Its memory must not be used until it wakes. With `keep` the contents are saved to host memory. `progress` is
    /// called with the bytes done and the total.
    #[pyo3(signature = (keep=true, progress=None))]
    fn sleep(&self, py: Python<'_>, keep: bool, progress: Option<Py<PyAny>>) -> PyResult<SleptEntry> {
        let pool = self.pool()?;
        sleep::sleep(py, &pool, keep, progress)
    }

    /// Allocates the memory again at the same addresses, with the saved contents. Returns the number of bytes.
    #[pyo3(signature = (progress=None))]
    fn wake(&self, py: Python<'_>, progress: Option<Py<PyAny>>) -> PyResult<u64> {
        let pool = self.pool()?;
        sleep::wake(py, &pool, progress)
    }

    /// Whether the pool is asleep.
    #[getter]
    fn is_asleep(&self) -> PyResult<bool> {
        Ok(self.pool()?.is_asleep())
    }

    /// Stops using the pool. Memory that is allocated stays valid; a second call does nothing.
    fn release(&self, py: Python<'_>) {
        let taken = self.inner.lock().take();
        py.detach(|| drop(taken));
    }

    fn __enter__(this: PyRef<'_, Self>) -> PyResult<PyRef<'_, Self>> {
        let pool = this.pool()?;
        // SAFETY: `Entered` keeps the pool at its address for as long as it keeps the guard that borrows from it.
        let borrowed: &'static Pool = unsafe { &*Arc::as_ptr(&pool) };
        let entered = Entered { _guard: borrowed.enter_all(), pool };
        ENTERED.with_borrow_mut(|list| list.push(entered));
        Ok(this)
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, _exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        let left = ENTERED.with_borrow_mut(|list| {
            let last = list.iter().rposition(|it| it.pool.id().pair() == self.id);
            last.map(|index| list.remove(index))
        });
        match left {
            Some(_) => Ok(()),
            None => Err(error::of_pool("this thread has not entered the pool; leave it on the thread that entered it")),
        }
    }

    fn __repr__(&self) -> String {
        format!("<cachette_gpu.Pool {:?}>", self.id)
    }
}
