//! A paper's table or figure with ours beside it, as text.
//!
//! Each row has two lines, the paper's and ours. Below the rows stands, for every column where the two
//! differ by more than a tenth somewhere, why they do; and why figures of ours are missing. A difference
//! without a known reason says so.

use std::cmp::Ordering;
use std::fmt::Write;

/// What stands in a place.
#[derive(Clone, Debug, PartialEq)]
pub enum Figure {
    Number(f64),
    /// The paper gives the least and the most.
    Range(f64, f64),
    /// What the paper says where it gives no number.
    Words(&'static str),
    /// The reason.
    Missing(String),
    /// Nothing is meant to stand here.
    Empty,
}

impl Figure {
    /// A number, or why there is none.
    pub fn or(value: Option<f64>, reason: &str) -> Figure {
        value.map_or_else(|| Figure::Missing(reason.into()), Figure::Number)
    }

    pub fn number(&self) -> Option<f64> {
        match self {
            Figure::Number(value) => Some(*value),
            _ => None,
        }
    }
}

impl From<f64> for Figure {
    fn from(value: f64) -> Figure {
        Figure::Number(value)
    }
}

pub struct Column {
    pub name: &'static str,
    /// Decimal places.
    pub places: usize,
    /// Why ours is more than the paper's where it is, as far as that is known.
    pub more: &'static str,
    /// Why it is less.
    pub less: &'static str,
}

pub struct Row {
    pub label: String,
    /// Paper's and ours, for each column.
    pub cells: Vec<(Figure, Figure)>,
}

pub struct Table {
    pub title: String,
    pub columns: Vec<Column>,
    pub rows: Vec<Row>,
    /// What else a reader must know.
    pub notes: Vec<String>,
    /// Ours come from other disks than the experiment's, which explains every difference before all else.
    pub other_disk: bool,
}

/// Two figures that differ by less are alike.
const ALIKE: f64 = 0.10;

impl Table {
    pub fn show(&self) -> String {
        let widths: Vec<usize> = self.columns.iter().map(|column| column.name.len().max(9) + 2).collect();
        let label_width = self.rows.iter().map(|row| row.label.chars().count()).max().unwrap_or(0) + 2;
        let mut text = format!("\n{}\n{:<label_width$}{:<7}", self.title, "", "");
        for (column, width) in self.columns.iter().zip(&widths) {
            let _ = write!(text, "{:>width$}", column.name);
        }
        text.push('\n');
        let mut reasons: Vec<String> = Vec::new();
        for row in &self.rows {
            for (whose, pick) in [("paper", 0), ("ours", 1)] {
                let label = if pick == 0 { row.label.as_str() } else { "" };
                let _ = write!(text, "{label:<label_width$}{whose:<7}");
                for ((column, width), cell) in self.columns.iter().zip(&widths).zip(&row.cells) {
                    let figure = if pick == 0 { &cell.0 } else { &cell.1 };
                    let shown = match figure {
                        Figure::Number(value) => format!("{value:.*}", column.places),
                        Figure::Range(least, most) => {
                            format!("{least} to {most}")
                        }
                        Figure::Words(words) => (*words).to_string(),
                        Figure::Missing(reason) => {
                            let number = reasons.iter().position(|known| known == reason);
                            let number = number.unwrap_or_else(|| {
                                reasons.push(reason.clone());
                                reasons.len() - 1
                            });
                            format!("({})", number + 1)
                        }
                        Figure::Empty => String::new(),
                    };
                    let _ = write!(text, "{shown:>width$}");
                }
                text.truncate(text.trim_end().len());
                text.push('\n');
            }
        }
        for (number, reason) in reasons.iter().enumerate() {
            let _ = writeln!(text, "({}) {reason}", number + 1);
        }
        let differences = self.differences();
        if self.other_disk && !differences.is_empty() {
            text += "Ours are from another disk than the experiment's: no difference means anything.\n";
        }
        for difference in differences.iter().filter(|_| !self.other_disk) {
            let Difference { column, more, rows } = difference;
            let why = if *more { column.more } else { column.less };
            let why = if why.is_empty() { "no reason is known" } else { why };
            let direction = if *more { "more" } else { "less" };
            let _ = writeln!(text, "{}, ours {direction} ({rows}): {why}", column.name);
        }
        for note in &self.notes {
            let _ = writeln!(text, "{note}");
        }
        text
    }

    /// Columns in which paper and we are not alike, in which direction and which rows.
    fn differences(&self) -> Vec<Difference<'_>> {
        let mut found = Vec::new();
        for (index, column) in self.columns.iter().enumerate() {
            for more in [true, false] {
                let order = |row: &Row| {
                    let (paper, ours) = row.cells.get(index)?;
                    compare(ours, paper, column.places)
                };
                let wanted = if more { Ordering::Greater } else { Ordering::Less };
                let differs = |row: &&Row| order(row) == Some(wanted);
                let rows: Vec<&str> =
                    self.rows.iter().filter(differs).map(|row| row.label.as_str()).collect();
                let compared = self.rows.iter().filter(|row| order(row).is_some()).count();
                let rows = match rows.len() {
                    0 => continue,
                    all if all == compared && all > 1 => "everywhere".to_string(),
                    _ => rows.join("; "),
                };
                found.push(Difference { column, more, rows });
            }
        }
        found
    }
}

struct Difference<'a> {
    column: &'a Column,
    more: bool,
    rows: String,
}

/// Ours against the paper's: equal within a tenth, or within a unit of the last place that is shown.
fn compare(ours: &Figure, paper: &Figure, places: usize) -> Option<Ordering> {
    let (least, most) = match paper {
        Figure::Number(value) => (*value, *value),
        Figure::Range(least, most) => (*least, *most),
        _ => return None,
    };
    let ours = ours.number()?;
    let slack = |value: f64| (ALIKE * value.abs()).max(10f64.powi(-(places as i32)));
    Some(match () {
        () if ours > most + slack(most) => Ordering::Greater,
        () if ours < least - slack(least) => Ordering::Less,
        () => Ordering::Equal,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(ours: Figure, other_disk: bool) -> String {
        Table {
            title: "A table".into(),
            columns: vec![Column { name: "stalls", places: 1, more: "", less: "the disk is faster" }],
            rows: vec![Row { label: "Agrep".into(), cells: vec![(Figure::Number(10.0), ours)] }],
            notes: vec!["A note.".into()],
            other_disk,
        }
        .show()
    }

    #[test]
    fn a_difference_is_explained_and_only_a_difference() {
        let far = table(Figure::Number(2.0), false);
        assert!(far.contains("stalls, ours less (Agrep): the disk is faster"), "{far}");
        assert!(table(Figure::Number(20.0), false).contains("ours more (Agrep): no reason is known"));
        let near = table(Figure::Number(10.5), false);
        assert!(!near.contains("ours more") && near.contains("10.5") && near.contains("A note."), "{near}");
        let elsewhere = table(Figure::Number(2.0), true);
        assert!(elsewhere.contains("no difference means anything"), "{elsewhere}");
        assert!(!elsewhere.contains("ours less"), "{elsewhere}");
    }

    #[test]
    fn a_range_is_kept_to_or_left() {
        let order = |ours: f64| compare(&ours.into(), &Figure::Range(1.0, 4.0), 1);
        let found = [0.8, 0.95, 2.0, 4.3, 4.5].map(|ours| order(ours).unwrap());
        use Ordering::{Equal, Greater, Less};
        assert_eq!(found, [Less, Equal, Equal, Equal, Greater]);
        assert_eq!(compare(&1.0.into(), &Figure::Words("?"), 1), None);
        assert_eq!(compare(&Figure::Empty, &1.0.into(), 1), None);
    }

    #[test]
    fn what_is_missing_says_why() {
        let text = table(Figure::Missing("page faults are not speculated on yet".into()), false);
        assert!(text.contains("(1)") && text.contains("(1) page faults are not"), "{text}");
    }
}
