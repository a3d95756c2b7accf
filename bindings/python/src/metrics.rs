//! Metrics for monitoring.

use std::collections::BTreeMap;

use cachette::Allocator;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// The labels that Cachette writes.
const OWN: [&str; 4] = ["device", "backend", "kind", "version"];

/// Returns the metrics of `allocator` in Prometheus' text format.
pub(crate) fn text(allocator: &Allocator, labels: BTreeMap<String, String>) -> PyResult<String> {
    if let Some(wrong) = labels.keys().find(|name| !is_label(name)) {
        let text = format!("'{wrong}' is no name of a label; use letters, digits and underscores, and no digit first");
        return Err(PyValueError::new_err(text));
    }
    if let Some(taken) = labels.keys().find(|name| OWN.contains(&name.as_str()) || name.starts_with("__")) {
        let text = format!("the label '{taken}' is used by Cachette or Prometheus itself; choose another name");
        return Err(PyValueError::new_err(text));
    }
    let labels: Vec<(String, String)> = labels.into_iter().collect();
    let labels: Vec<(&str, &str)> = labels.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let mut page = String::new();
    let written = allocator.metrics().write_prometheus(&mut page, &labels);
    written.map_err(|why| PyValueError::new_err(why.to_string()))?;
    Ok(page)
}

fn is_label(name: &str) -> bool {
    let fits = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    !name.is_empty() && !name.starts_with(|it: char| it.is_ascii_digit()) && name.chars().all(fits)
}
