//! The page around the plots: what was measured on what, every figure, and every reservation.

use std::fmt::Write;

use super::figures;
use super::plot::{escape, number};
use crate::results::{Figures, Record};
use crate::{certainty, compare, machine};

const STYLE: &str = "body{font:15px/1.45 'DejaVu Sans',Verdana,sans-serif;max-width:1160px;margin:2em auto;padding:0 1em;\
color:#1d2126}table{border-collapse:collapse;font-size:13px}td,th{padding:3px 7px;border-bottom:1px solid #ddd;\
text-align:right;white-space:nowrap}th{white-space:normal;vertical-align:bottom}td:first-child,th:first-child,td:nth-child(2),th:nth-child(2){text-align:left}svg{max-width:100%;\
height:auto;margin:1em 0}.below,.marks{color:#a32020}.wide{overflow-x:auto}pre{font-size:12px;line-height:1.3}";

/// `cold` and `warm` are shown, the newest of each; `all` tells how well repeated measurements agree.
/// `papers` are the papers' tables as text.
pub fn page(cold: &[Record], warm: &[Record], all: &[Record], svgs: &[&str], papers: &[String]) -> String {
    let mut html = format!(
        "<!DOCTYPE html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>Runahead: measurements</title>\
         <style>{STYLE}</style></head><body><h1>Runahead: measurements</h1>"
    );
    let mut shown: Vec<&Record> = cold.iter().collect();
    shown.extend(warm.iter().filter(|one| !cold.contains(one)));
    html += &about(&shown);
    html += &agreement(all);
    html += &table(cold);
    for svg in svgs {
        html += svg;
    }
    html += &warm_table(warm);
    for table in papers {
        let _ = write!(html, "<pre class=\"wide\">{}</pre>", escape(table));
    }
    html += &marks(&shown);
    html + "</body></html>\n"
}

fn about(records: &[&Record]) -> String {
    // One line a machine, with all that was measured on it.
    let mut machines: Vec<(String, Vec<String>)> = Vec::new();
    for record in records {
        let machine = &record.machine;
        let line = format!(
            "{} with {} processor{}, {} MB, {}, Linux {}",
            machine.processor,
            machine.processors,
            if machine.processors == 1 { "" } else { "s" },
            machine.memory_mb,
            machine.system,
            machine.kernel
        );
        let what = format!("{} of {}, {}", record.commit, machine::date(record.time), record.subject);
        match machines.iter_mut().find(|(known, _)| *known == line) {
            Some((_, commits)) if commits.contains(&what) => {}
            Some((_, commits)) => commits.push(what),
            None => machines.push((line, vec![what])),
        }
    }
    let mut seen: Vec<String> =
        machines.iter().map(|(line, commits)| format!("{line}: commits {}", commits.join("; "))).collect();
    let mut sets: Vec<String> = Vec::new();
    for set in records.iter().flat_map(|record| &record.data) {
        let megabytes = number(set.bytes as f64 / 1e6);
        let line = format!("{} {} files, {megabytes} MB (recipe {})", set.name, set.files, set.version);
        if !sets.contains(&line) {
            sets.push(line);
        }
    }
    if !sets.is_empty() {
        seen.push(format!("data: {}", sets.join("; ")));
    }
    let items: String = seen.iter().map(|line| format!("<li>{}</li>", escape(line))).collect();
    format!(
        "<p>Each command alone and under Runahead in turn, nothing cached, medians; outputs compared byte by byte. \
         The limit is the greater of the warm run and of the same requests made 64 at a time.</p><ul>{items}</ul>"
    )
}

fn table(records: &[Record]) -> String {
    let mut html = String::from(
        "<h2>Cold</h2><p>± is the standard error of <i>times as fast</i>, from how much the runs differ; with fewer than \
         three runs of either nobody can tell.</p><div class=\"wide\"><table><tr><th>workload</th><th>disk</th>\
         <th>runs, alone and ours</th><th>alone s</th><th>ours s</th><th>times as fast</th><th>±</th><th>floor</th>\
         <th>limit s</th><th>share of possible gain</th><th>processor s, alone</th><th>ours</th><th>outputs</th></tr>",
    );
    for record in records {
        if record.hopeless {
            let _ = write!(
                html,
                "<tr><td>{} *</td><td>{}</td><td colspan=\"11\">not over after {} s</td></tr>",
                escape(&record.workload),
                escape(&super::disk(record)),
                record.patience
            );
            continue;
        }
        let cell = |value: Option<f64>| value.map_or_else(|| "–".into(), number);
        let (alone, ours) = (figures(record, "alone"), figures(record, "runahead"));
        let runs = |figures: Option<&Figures>| figures.map_or(0, |figures| figures.runs);
        let ratio = ours.and_then(|figures| figures.ratio);
        let _ = write!(
            html,
            "<tr><td>{}{}</td><td>{}</td><td>{}, {}</td><td>{}</td><td>{}</td><td{}>{}</td><td>{}</td><td>{}</td>\
             <td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            escape(&record.workload),
            if record.marks.is_empty() { "" } else { " *" },
            escape(&super::disk(record)),
            runs(alone),
            runs(ours),
            spread(alone, record.patience),
            spread(ours, record.patience),
            if record.below_floor() { " class=\"below\"" } else { "" },
            cell(ratio),
            ratio
                .and_then(|_| error(record))
                .map_or_else(|| "–".into(), |part| format!("{:.0}%", 100.0 * part)),
            cell(record.floor),
            cell(record.summary.limit),
            cell(record.summary.share_of_possible_gain),
            cell(alone.map(|figures| figures.processor)),
            cell(ours.map(|figures| figures.processor)),
            if record.equal() { "equal" } else { "<b class=\"below\">DIFFER</b>" },
        );
    }
    html + "</table></div>"
}

/// Median, least and most.
fn spread(figures: Option<&Figures>, patience: u64) -> String {
    match figures {
        None => "–".into(),
        Some(figures) if figures.late => format!("not over after {patience}"),
        Some(figures) if figures.runs == 1 => number(figures.median),
        Some(figures) => {
            format!("{} ({}–{})", number(figures.median), number(figures.least), number(figures.most))
        }
    }
}

/// Of the ratio, in parts of it.
fn error(record: &Record) -> Option<f64> {
    let seconds = |name: &str| {
        let of = record.runs.iter().filter(|run| run.configuration == name);
        of.map(|run| run.seconds()).collect::<Vec<_>>()
    };
    certainty::error_of_ratio(&seconds("alone"), &seconds("runahead"))
}

/// What Runahead costs where there is nothing to wait for.
fn warm_table(records: &[Record]) -> String {
    if records.is_empty() {
        return String::new();
    }
    let mut html = String::from(
        "<h2>All cached</h2><div class=\"wide\"><table><tr><th>workload</th><th>disk</th><th>runs, alone and ours</th>\
         <th>alone s</th><th>ours s</th><th>ms longer</th><th>% longer</th></tr>",
    );
    for record in records {
        let (alone, ours) = (figures(record, "alone-warm"), figures(record, "runahead-warm"));
        let (Some(alone), Some(ours)) = (alone, ours) else { continue };
        let known = !alone.late && !ours.late;
        let longer = known.then_some(ours.median - alone.median);
        let none = || String::from("–");
        let _ = write!(
            html,
            "<tr><td>{}{}</td><td>{}</td><td>{}, {}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            escape(&record.workload),
            if record.marks.is_empty() { "" } else { " *" },
            escape(&super::disk(record)),
            alone.runs,
            ours.runs,
            spread(Some(alone), record.patience),
            spread(Some(ours), record.patience),
            longer.map_or_else(none, |longer| number(1000.0 * longer)),
            longer.map_or_else(none, |longer| format!("{:.1}", 100.0 * longer / alone.median))
        );
    }
    html + "</table></div>"
}

/// Repeated measurements of the same commit on an emulated disk are to agree; how many do, and which do not.
fn agreement(all: &[Record]) -> String {
    let mut repeated = compare::repetitions(all);
    repeated.retain(|one| one.first.disk.profile != "native");
    let mut items = String::new();
    for one in repeated.iter().filter(|one| !one.agrees()) {
        let marked = [one.first, one.second].iter().filter(|record| !record.marks.is_empty()).count();
        let _ = write!(
            items,
            "<li>{} on {}, commit {}: {} and {} times as fast{}</li>",
            escape(&one.first.workload),
            escape(&one.first.disk.profile),
            escape(&one.first.commit),
            number(one.ratios.0),
            number(one.ratios.1),
            ["", ", one of them with a reservation", ", both with reservations"][marked]
        );
    }
    let (all, agreeing) = (repeated.len(), repeated.iter().filter(|one| one.agrees()).count());
    match (all, all == agreeing) {
        (0, _) => "<p>Nothing was measured twice, so how well repetitions agree is not known.</p>".into(),
        (_, true) => format!("<p>All {all} repeated measurements agree within 8% in their ratio.</p>"),
        (_, false) => format!(
            "<p>Of {all} measurements on emulated disks that repeat one of the same commit, {agreeing} agree with it \
             within 8% in their ratio. These disagree by more than 8%:</p><ul class=\"marks\">{items}</ul>"
        ),
    }
}

/// Each once, also where warm runs were measured apart on the same occasion.
fn marks(records: &[&Record]) -> String {
    let mut items: Vec<String> = Vec::new();
    for record in records {
        for mark in &record.marks {
            let disk = super::disk(record);
            let item =
                format!("<li>{} on {}: {}</li>", escape(&record.workload), escape(&disk), escape(mark));
            if !items.contains(&item) {
                items.push(item);
            }
        }
    }
    if items.is_empty() {
        return "<p>No result has a reservation.</p>".into();
    }
    format!("<h2>Reservations (*)</h2><ul class=\"marks\">{}</ul>", items.concat())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::{Summary, base_of, tests};

    #[test]
    fn of_two_that_disagree_it_is_said_which_have_a_reservation() {
        let said = |first: &[&str], second: &[&str]| {
            let mut records = [tests::record("grep", 1, 10.0, 2.0), tests::record("grep", 2, 10.0, 1.0)];
            for (record, marks) in records.iter_mut().zip([first, second]) {
                record.marks = marks.iter().map(|mark| mark.to_string()).collect();
            }
            agreement(&records)
        };
        assert!(!said(&[], &[]).contains("reservation"));
        assert!(said(&["x"], &[]).contains("one of them with a reservation"));
        assert!(said(&[], &["x"]).contains("one of them with a reservation"));
        assert!(said(&["x"], &["y"]).contains("both with reservations"));
    }

    #[test]
    fn warm_runs_that_were_ended_early_are_not_compared() {
        let mut record = tests::record("grep", 1, 10.0, 2.0);
        record.runs[0].configuration = "alone-warm".into();
        record.runs[1].configuration = "runahead-warm".into();
        record.summary = Summary::of(&record.runs, &[], base_of);
        assert!(warm_table(&[record.clone()]).contains("<td>-8000</td><td>-80.0</td>"));
        record.runs[0].measured.late = true;
        record.summary = Summary::of(&record.runs, &[], base_of);
        let table = warm_table(&[record]);
        assert!(
            table.contains("<td>not over after 900</td>") && table.contains("<td>–</td><td>–</td>"),
            "{table}"
        );
    }

    #[test]
    fn a_reservation_and_a_data_set_are_told_once() {
        let cold = tests::record("grep", 1, 10.0, 2.0);
        let warm = tests::record("grep", 2, 10.0, 2.0);
        let html = page(&[cold], &[warm], &[], &[], &[]);
        assert_eq!(html.matches("not cold</li>").count(), 1, "{html}");
        assert_eq!(html.matches("kernel 9000 files").count(), 1, "{html}");
    }
}
