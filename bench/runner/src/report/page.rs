//! The page around the plots: what was measured on what, every figure, and every reservation.

use std::fmt::Write;

use super::figures;
use super::plot::{escape, number};
use crate::compare;
use crate::machine;
use crate::results::Record;

const STYLE: &str = "body{font:15px/1.45 'DejaVu Sans',Verdana,sans-serif;max-width:1160px;margin:2em auto;padding:0 1em;\
color:#1d2126}table{border-collapse:collapse;font-size:13px}td,th{padding:3px 7px;border-bottom:1px solid #ddd;\
text-align:right;white-space:nowrap}th{white-space:normal;vertical-align:bottom}td:first-child,th:first-child,td:nth-child(2),th:nth-child(2){text-align:left}svg{max-width:100%;\
height:auto;margin:1em 0}.below,.marks{color:#a32020}.wide{overflow-x:auto}pre{font-size:12px;line-height:1.3}";

/// `newest` is shown; `all` tells how well repeated measurements agree.
/// `papers` are the papers' tables as text.
pub fn page(newest: &[&Record], all: &[Record], svgs: &[&str], papers: &[String]) -> String {
    let mut html = format!(
        "<!DOCTYPE html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>Runahead: measurements</title>\
         <style>{STYLE}</style></head><body><h1>Runahead: measurements</h1>"
    );
    html += &about(newest);
    html += &table(newest);
    for svg in svgs {
        html += svg;
    }
    for table in papers {
        let _ = write!(html, "<pre class=\"wide\">{}</pre>", escape(table));
    }
    html += &agreement(all);
    html += &marks(newest);
    html + "</body></html>\n"
}

fn about(records: &[&Record]) -> String {
    let mut seen: Vec<String> = Vec::new();
    for record in records {
        let machine = &record.machine;
        let line = format!(
            "{}: commit {}, {}; {} with {} processors, {} MB, {}, Linux {}",
            machine::date(record.time),
            record.commit,
            record.subject,
            machine.processor,
            machine.processors,
            machine.memory_mb,
            machine.system,
            machine.kernel
        );
        if !seen.contains(&line) {
            seen.push(line);
        }
    }
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

fn table(records: &[&Record]) -> String {
    let mut html = String::from(
        "<div class=\"wide\"><table><tr><th>workload</th><th>disk</th><th>runs</th><th>alone s</th><th>ours s</th>\
         <th>times as fast</th><th>floor</th><th>limit s</th><th>share of possible gain</th><th>processor s, alone</th>\
         <th>ours</th><th>outputs</th></tr>",
    );
    for record in records {
        let cell = |value: Option<f64>| value.map_or_else(|| "–".into(), number);
        let (alone, ours) = (figures(record, "alone"), figures(record, "runahead"));
        let spread = |figures: Option<&crate::results::Figures>| {
            figures.map_or_else(
                || "–".into(),
                |figures| {
                    format!("{} ({}–{})", number(figures.median), number(figures.least), number(figures.most))
                },
            )
        };
        let equal = record.runs.iter().all(|run| run.measured.same);
        let ratio = ours.and_then(|figures| figures.ratio);
        let _ = write!(
            html,
            "<tr><td>{}{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td{}>{}</td><td>{}</td><td>{}</td><td>{}</td>\
             <td>{}</td><td>{}</td><td>{}</td></tr>",
            escape(&record.workload),
            if record.marks.is_empty() { "" } else { " *" },
            escape(&record.disk.profile),
            alone.map_or(0, |figures| figures.runs),
            spread(alone),
            spread(ours),
            if record.below_floor() { " class=\"below\"" } else { "" },
            cell(ratio),
            cell(record.floor),
            cell(record.summary.limit),
            cell(record.summary.share_of_possible_gain),
            cell(alone.map(|figures| figures.processor)),
            cell(ours.map(|figures| figures.processor)),
            if equal { "equal" } else { "<b class=\"below\">DIFFER</b>" },
        );
    }
    html + "</table></div>"
}

/// Repeated measurements of the same commit on an emulated disk are to agree; where not, it is said.
fn agreement(all: &[Record]) -> String {
    let mut repeated = compare::repetitions(all);
    repeated.retain(|one| one.first.disk.profile != "native");
    let mut items = String::new();
    for one in repeated.iter().filter(|one| !one.agrees()) {
        let _ = write!(
            items,
            "<li>{} on {}: {} and {}</li>",
            escape(&one.first.workload),
            escape(&one.first.disk.profile),
            number(one.ratios.0),
            number(one.ratios.1)
        );
    }
    match (repeated.len(), items.is_empty()) {
        (0, _) => "<p>Nothing was measured twice, so how well repetitions agree is not known.</p>".into(),
        (repeated, true) => {
            format!("<p>All {repeated} repeated measurements agree within 8% in their ratio.</p>")
        }
        (_, false) => {
            format!("<h2>Repetitions that disagree by more than 8%</h2><ul class=\"marks\">{items}</ul>")
        }
    }
}

fn marks(records: &[&Record]) -> String {
    let mut items = String::new();
    for record in records {
        for mark in &record.marks {
            let _ = write!(
                items,
                "<li>{} on {}: {}</li>",
                escape(&record.workload),
                escape(&record.disk.profile),
                escape(mark)
            );
        }
    }
    if items.is_empty() {
        return "<p>No result has a reservation.</p>".into();
    }
    format!("<h2>Reservations (*)</h2><ul class=\"marks\">{items}</ul>")
}
