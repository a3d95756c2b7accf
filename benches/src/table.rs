//! Figures as a text table.

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

    /// Adds a row at the end.
    pub fn push(&mut self, row: [String; N]) {
        self.rows.push(row);
    }
}

impl<const N: usize> fmt::Display for Table<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = |column: usize| {
            let cells = self.rows.iter().map(|row| row[column].chars().count());
            cells.max().unwrap_or(0)
        };
        let widths: [usize; N] = std::array::from_fn(width);
        for row in &self.rows {
            for (column, (cell, width)) in row.iter().zip(widths).enumerate() {
                if column == 0 {
                    write!(f, "{cell:<width$}")?;
                } else {
                    write!(f, "  {cell:>width$}")?;
                }
            }
            writeln!(f)?;
        }
        Ok(())
    }
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
}
