//! Statistics as dictionaries, with PyTorch's keys.

use cachette::pool::PoolStats;
use cachette::{Stat, StatArray, Stats};
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyDict};

/// The statistics as nested dictionaries.
pub(crate) fn nested<'py>(py: Python<'py>, stats: &Stats) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for (name, value) in counts(stats) {
        dict.set_item(name, value)?;
    }
    for (name, array) in stats.arrays() {
        let kinds = PyDict::new(py);
        for (kind, stat) in kinds_of(array) {
            kinds.set_item(kind, of_stat(py, stat)?)?;
        }
        dict.set_item(name, kinds)?;
    }
    for (name, stat) in oversize(stats) {
        dict.set_item(name, of_stat(py, stat)?)?;
    }
    Ok(dict)
}

/// The statistics in one dictionary, ordered by key; dots join the nested names.
pub(crate) fn flat<'py>(py: Python<'py>, stats: &Stats) -> PyResult<Bound<'py, PyDict>> {
    let counts = counts(stats).map(|(name, value)| (name.to_owned(), value));
    let mut all = counts.to_vec();
    let mut add = |name: &str, stat: &Stat| {
        for (figure, value) in figures(stat) {
            all.push((format!("{name}.{figure}"), value.cast_signed()));
        }
    };
    for (name, array) in stats.arrays() {
        for (kind, stat) in kinds_of(array) {
            add(&format!("{name}.{kind}"), stat);
        }
    }
    for (name, stat) in oversize(stats) {
        add(name, stat);
    }
    all.sort();
    all.into_py_dict(py)
}

/// The statistics of a pool.
pub(crate) fn of_pool<'py>(py: Python<'py>, stats: &PoolStats) -> PyResult<Bound<'py, PyDict>> {
    let figures = [
        ("allocations", stats.allocations),
        ("allocated_bytes", stats.allocated_bytes),
        ("segments", stats.segments),
        ("reserved_bytes", stats.reserved_bytes),
    ];
    figures.into_py_dict(py)
}

/// The statistics that are single numbers.
fn counts(stats: &Stats) -> [(&'static str, i64); 10] {
    // PyTorch's counts are signed; there, -1 means no split limit.
    let counts = [
        ("num_alloc_retries", stats.num_alloc_retries),
        ("num_ooms", stats.num_ooms),
        ("num_sync_all_streams", stats.num_sync_all_streams),
        ("num_device_alloc", stats.num_device_alloc),
        ("num_device_free", stats.num_device_free),
        ("num_oom_rejections", stats.num_oom_rejections),
        ("max_split_size", stats.max_split_size),
        ("num_reclaims", stats.num_reclaims),
        ("reclaimed_bytes", stats.reclaimed_bytes),
        ("given_bytes", stats.given_bytes),
    ];
    counts.map(|(name, count)| (name, count.cast_signed()))
}

const fn kinds_of(array: &StatArray) -> [(&'static str, &Stat); 3] {
    [("all", &array.all), ("small_pool", &array.small_pool), ("large_pool", &array.large_pool)]
}

const fn oversize(stats: &Stats) -> [(&'static str, &Stat); 2] {
    [("oversize_allocations", &stats.oversize_allocations), ("oversize_segments", &stats.oversize_segments)]
}

pub(crate) const fn figures(stat: &Stat) -> [(&'static str, u64); 4] {
    [("current", stat.current), ("peak", stat.peak), ("allocated", stat.allocated), ("freed", stat.freed)]
}

fn of_stat<'py>(py: Python<'py>, stat: &Stat) -> PyResult<Bound<'py, PyDict>> {
    figures(stat).into_py_dict(py)
}
