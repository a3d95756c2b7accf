//! Pools, and the threads that have entered them.

use std::cell::RefCell;
use std::path::PathBuf;
use std::sync::Arc;

use cachette::addresses::AddressRange;
use cachette::evict::Resident;
use cachette::hal::{AnyDevice, Guarded};
use cachette::pool::{Filter, PoolGuard};
use cachette::{Pool, PoolId};
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyDict, PyTuple};

use crate::allocation::PyAllocation;
use crate::growable::PyGrowable;
use crate::sleep::{self, SleptEntry};
use crate::stream::Named;
use crate::{calls, error, stats};

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

/// A callback of a pool, which gets its identifier.
pub(crate) fn callback(function: Py<PyAny>) -> impl Fn(PoolId) -> Result<(), String> + Send + Sync {
    move |id| calls::ask(&function, (id.pair(),))
}

impl PyPool {
    pub(crate) fn of(pool: Result<Pool, cachette::Error>) -> PyResult<Self> {
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

    /// Reserves addresses for up to `size` bytes, without memory. The memory sleeps and wakes with the pool.
    #[pyo3(signature = (size, stream=None))]
    fn allocate_growable(&self, py: Python<'_>, size: u64, stream: Option<Named<'_>>) -> PyResult<PyGrowable> {
        let pool = self.pool()?;
        PyGrowable::reserve(py, pool.allocator(), stream, |stream| pool.allocate_growable(size, stream))
    }

    /// Wakes the pool if it sleeps, and keeps it on the device until the guard is released.
    ///
    /// If there is too little memory, evictable pools without guards are evicted. Contents that were dropped are
    /// written again by `reload`.
    fn make_resident(&self, py: Python<'_>) -> PyResult<PyResident> {
        let pool = self.pool()?;
        let made = calls::detached(py, || pool.make_resident())?.map_err(error::of_allocator)?;
        Ok(PyResident { inner: Guarded::new(Some(made)) })
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

    /// Copies `size` bytes of contents that the sleeping pool keeps, from `address` on; `None` if they are not kept.
    fn read_contents<'py>(
        &self,
        py: Python<'py>,
        address: u64,
        size: usize,
    ) -> PyResult<Option<Bound<'py, PyByteArray>>> {
        let pool = self.pool()?;
        let read = calls::detached(py, || {
            let mut into = vec![0; size];
            pool.read_contents(address, &mut into).map(|found| found.then_some(into))
        })?;
        let read = read.map_err(error::of_allocator)?;
        Ok(read.map(|bytes| PyByteArray::new(py, &bytes)))
    }

    /// Moves the contents that the sleeping pool keeps to a file in `folder`; the wake reads them back. Returns the bytes
    /// of host memory that were freed.
    ///
    /// The file has no name, so it ends with the pool or the process.
    fn spill_contents(&self, py: Python<'_>, folder: PathBuf) -> PyResult<u64> {
        let pool = self.pool()?;
        calls::detached(py, move || pool.spill_contents(&folder))?.map_err(error::of_allocator)
    }

    /// Writes the addresses of the pool's memory to a file, for `Allocator.restore_addresses` in another process.
    ///
    /// The contents are not saved.
    fn save_addresses(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        let pool = self.pool()?;
        calls::detached(py, || pool.save_addresses()?.write_to(path))?.map_err(error::of_allocator)
    }

    /// Adds free memory at exactly these addresses, for requests of `stream`: each segment as its address and its bytes.
    ///
    /// All of it, or none after an error. No memory leaves the pool before its last user is gone.
    #[pyo3(signature = (segments, stream=None))]
    fn restore_segments(
        &self,
        py: Python<'_>,
        mut segments: Vec<(u64, u64)>,
        stream: Option<Named<'_>>,
    ) -> PyResult<()> {
        let pool = self.pool()?;
        let stream = Named::open(stream, pool.allocator())?;
        segments.sort_unstable();
        let segments: Vec<_> = segments.into_iter().map(|(base, bytes)| AddressRange { base, bytes }).collect();
        calls::detached(py, || pool.restore_segments(&segments, &stream))?.map_err(error::of_allocator)
    }

    /// Routes the requests of every thread to the pool for the rest of its life, unless they enter another pool.
    fn route_all(&self) -> PyResult<()> {
        let pool = self.pool()?;
        pool.allocator().begin_allocate_to_pool(pool.id(), Filter::All).map_err(error::of_allocator)
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

/// A guard: its pool is awake and is not evicted until `release()`, the end of a `with` block, or the object's end.
#[pyclass(module = "cachette_gpu", name = "Resident", frozen)]
pub(crate) struct PyResident {
    /// `None` after the release.
    inner: Guarded<Option<Resident>>,
}

#[pymethods]
impl PyResident {
    /// Ends the guard. Work that was queued until now still finds its memory. A second call does nothing.
    fn release(&self, py: Python<'_>) {
        let taken = self.inner.lock().take();
        py.detach(|| drop(taken));
    }

    fn __enter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) {
        self.release(py);
    }

    fn __repr__(&self) -> String {
        let pool = self.inner.lock().as_ref().map(|resident| resident.pool().id().pair());
        pool.map_or_else(
            || "<cachette_gpu.Resident, released>".to_owned(),
            |id| format!("<cachette_gpu.Resident of {id:?}>"),
        )
    }
}
