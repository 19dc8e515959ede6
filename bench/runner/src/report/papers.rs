//! The papers' figures as plots, theirs beside ours, and their tables as text.

use super::Plot;
use super::plot::{Bars, COLOURS, Series};
use crate::experiment::{self, Experiment, Table};
use crate::results::Record;

/// Which columns of an experiment's table make a picture, and what they measure.
const PICTURES: [(&str, &[&str], &str); 5] = [
    ("fig3", &["speculating, % less", "by hand, % less"], "percent of the time alone that is saved"),
    ("fig4", &["ignored, % more", "warm, % more"], "percent more time than alone"),
    ("fig5", &["speculating, % less", "by hand, % less"], "percent of the time alone that is saved"),
    ("fig6", &["speculating, % less", "by hand, % less"], "percent of the time alone that is saved"),
    ("table7", &["speculating, % less", "by hand, % less"], "percent of the time alone that is saved"),
];

/// Every experiment of which something of ours was measured.
fn measured(records: &[Record]) -> Vec<(&'static Experiment, Table)> {
    experiment::every()
        .map(|experiment| (experiment, experiment.table(records, &[])))
        .filter(|(_, table)| {
            table.rows.iter().flat_map(|row| &row.cells).any(|(_, ours)| ours.number().is_some())
        })
        .collect()
}

/// Their text, in the order of the papers.
pub fn tables(records: &[Record]) -> Vec<String> {
    measured(records).iter().map(|(_, table)| table.show().trim_start().to_string()).collect()
}

pub fn plots(records: &[Record]) -> Vec<Plot> {
    measured(records).iter().filter_map(|(experiment, table)| picture(experiment, table)).collect()
}

fn picture(experiment: &Experiment, table: &Table) -> Option<Plot> {
    let (_, names, axis) = PICTURES.iter().find(|(name, ..)| *name == experiment.name)?;
    let columns: Vec<(usize, &str)> = table
        .columns
        .iter()
        .enumerate()
        .filter(|(_, column)| names.contains(&column.name))
        .map(|(index, column)| (index, column.name.split(',').next().unwrap_or(column.name)))
        .collect();
    let series = columns.iter().flat_map(|(_, name)| [format!("{name}, paper"), format!("{name}, ours")]);
    // Theirs in the pale colours, ours in the strong ones beside them.
    let colours = ["#b9bdc4", COLOURS[1], "#d9c68f", COLOURS[3]];
    let series: Vec<Series> = series.zip(colours).map(|(name, colour)| Series { name, colour }).collect();
    let groups: Vec<(String, Vec<Option<f64>>)> = table
        .rows
        .iter()
        .map(|row| {
            let values = columns.iter().flat_map(|(index, _)| {
                let cell = &row.cells[*index];
                [cell.0.number(), cell.1.number()]
            });
            (row.label.clone(), values.collect())
        })
        .collect();
    let bars = Bars { title: table.title.clone(), axis: (*axis).into(), series, groups, logarithmic: false };
    Some(Plot { name: format!("paper-{}", experiment.name), svg: bars.draw() })
}
