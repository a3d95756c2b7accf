//! Figures as a text table.

use std::collections::HashSet;
use std::fmt;

/// Rows of text under headings; the first column is aligned to the left, all others to the right.
#[derive(Clone, Debug)]
pub struct Table<const N: usize> {
    /// The headings come first.
    rows: Vec<[String; N]>,
}

impl<const N: usize> Table<N> {
    /// A table without rows.
    #[must_use]
    pub fn new(headings: [&str; N]) -> Self {
        Self { rows: vec![headings.map(str::to_owned)] }
    }

    /// The table in parts of at most `width` columns, one below the other; each begins with the columns that distinguish
    /// the rows.
    #[must_use]
    pub fn folded(&self, width: usize) -> String {
        let (widths, labels) = (self.widths(), self.labels());
        let mut text = String::new();
        let mut first = labels;
        while first < N {
            let mut columns: Vec<usize> = (0..labels).collect();
            let mut used = widths[..labels].iter().sum::<usize>() + 2 * (labels - 1);
            while first < N && (columns.len() == labels || used + 2 + widths[first] <= width) {
                used += 2 + widths[first];
                columns.push(first);
                first += 1;
            }
            if !text.is_empty() {
                text.push('\n');
            }
            for row in &self.rows {
                text += &line(row, &widths, &columns);
            }
        }
        text
    }

    /// How many first columns differ between all rows; 1 if rows are equal.
    fn labels(&self) -> usize {
        let are_distinct = |count: &usize| {
            let mut seen = HashSet::new();
            self.rows.iter().all(|row| seen.insert(&row[..*count]))
        };
        (1..N).find(are_distinct).unwrap_or(1)
    }

    fn widths(&self) -> [usize; N] {
        std::array::from_fn(|column| {
            let cells = self.rows.iter().map(|row| row[column].chars().count());
            cells.max().unwrap_or(0)
        })
    }

    /// Adds a row at the end.
    pub fn push(&mut self, row: [String; N]) {
        self.rows.push(row);
    }
}

impl<const N: usize> fmt::Display for Table<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.folded(usize::MAX))
    }
}

/// The cells of `columns`: the first to the left, the others to the right of their width.
fn line(row: &[String], widths: &[usize], columns: &[usize]) -> String {
    let cells = columns.iter().map(|column| {
        let (cell, width) = (&row[*column], widths[*column]);
        if *column == 0 { format!("{cell:<width$}") } else { format!("  {cell:>width$}") }
    });
    cells.chain(["\n".to_owned()]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new(["workload", "ns"]);
        table.push(["pair é".into(), "12.5".into()]);
        table.push(["a longer name".into(), "7".into()]);
        assert_eq!(
            table.to_string(),
            "workload         ns\n\
             pair é         12.5\n\
             a longer name     7\n"
        );
    }

    #[test]
    fn a_table_too_wide_continues_below_itself() {
        let mut table = Table::new(["trace", "requested", "ratio"]);
        table.push(["gpt2".into(), "1.00 GiB".into(), "1.02".into()]);
        assert_eq!(
            table.folded(16),
            "trace  requested\n\
             gpt2    1.00 GiB\n\
             \n\
             trace  ratio\n\
             gpt2    1.02\n"
        );
        assert_eq!(table.folded(23), table.to_string());
        table.push(["gpt2".into(), "2.00 GiB".into(), "1.01".into()]);
        assert!(
            table.folded(16).ends_with("trace  requested  ratio\ngpt2    1.00 GiB   1.02\ngpt2    2.00 GiB   1.01\n")
        );
    }
}
