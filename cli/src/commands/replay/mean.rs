//! Means over all traces, one for each configuration.

use serde::Serialize;

use super::row::Row;

/// The text in the column of the trace.
const MEAN: &str = "geometric mean";

/// A row, or one of the means that follow all rows.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(super) enum Entry<'a, T, M> {
    Row(&'a Row<T>),
    Mean(&'a Row<M>),
}

impl<'a, T, M> Entry<'a, T, M> {
    pub(super) fn all(rows: &'a [Row<T>], means: &'a [Row<M>]) -> Vec<Self> {
        let means = means.iter().map(Self::Mean);
        rows.iter().map(Self::Row).chain(means).collect()
    }
}

/// Returns a row for each of `configs` configurations; `mean` computes its figures from the rows of that configuration.
///
/// `rows` contains all configurations of the first trace, then those of the next in the same order.
pub(super) fn means<T, M>(rows: &[Row<T>], configs: usize, mean: impl Fn(&[&T]) -> M) -> Vec<Row<M>> {
    let of = |first: usize| -> Row<M> {
        let found: Vec<&T> = rows[first..].iter().step_by(configs).map(|row| &row.found).collect();
        let row = &rows[first];
        Row {
            trace: MEAN.to_owned(),
            backend: row.backend.clone(),
            name: row.name,
            config: row.config.clone(),
            recorded_peak_reserved: None,
            saved_bytes: None,
            found: mean(&found),
        }
    };
    (0..configs).map(of).collect()
}

/// Returns the geometric mean; `None` without figures, or if one is missing, since the mean of the rest would mislead.
pub(super) fn geometric(figures: impl IntoIterator<Item = Option<f64>>) -> Option<f64> {
    let (mut sum, mut count) = (0.0, 0.0);
    for figure in figures {
        sum += figure?.ln();
        count += 1.0;
    }
    let mean = f64::exp(sum / count);
    mean.is_finite().then_some(mean)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_of_factors_is_the_factor_that_does_the_same() {
        let mean = geometric([Some(2.0), Some(8.0)]).unwrap();
        assert!((mean - 4.0).abs() < 1e-9, "{mean}");
    }

    #[test]
    fn a_mean_of_less_than_all_is_none() {
        assert_eq!(geometric([Some(2.0), None]), None);
        assert_eq!(geometric([Some(2.0), Some(f64::NAN)]), None);
        assert_eq!(geometric([]), None);
    }
}
