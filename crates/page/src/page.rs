//! A report as one page for a browser: it loads nothing, runs nothing, and follows the reader's choice of
//! light or dark. Pure.
//!
//! Whatever a report holds goes through [`escaped`] once: it is a file that anybody may have written.

use crate::plot::{Bar, Part, bars};
use crate::report::Report;
use crate::timeline;
use crate::trace::Trace;
use crate::units::PAGE;
use crate::units::{self, bytes, count, duration, percent};
use crate::waits::{BEST, LIKELY, Overlapped, Spared, Waits};
use crate::why;
use runahead_remedies::Surroundings;
use serde_json::Value;

const STYLE: &str = include_str!("page.css");

/// `document`: the report as it was written, of which all is shown at the end.
pub fn html(report: &Report, document: &Value, trace: Option<&Trace>, around: &Surroundings) -> String {
    let command = escaped(&units::command(&report.command));
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta name=\"color-scheme\" content=\"light dark\"><title>Runahead: {command}</title>\
         <style>{STYLE}</style></head><body><main>\n<h1><code>{command}</code></h1>\n"
    );
    page += &cards(report);
    if report.plainly_because.is_none() && report.elapsed_ns > 0 {
        page += &section("Where the time went", &time(report));
        page += &section("What was waited for, and what was covered", &covered(report));
        page += &fetched(report).map_or(String::new(), |plot| section("What was fetched ahead", &plot));
    }
    page += &trace.map_or(String::new(), |trace| section("Over time", &timeline::plot(trace)));
    page += &reasons(report, around);
    page += &all_counts(document);
    page + "</main></body></html>\n"
}

/// Text as it may stand in HTML, in an attribute too.
pub fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => safe += "&amp;",
            '<' => safe += "&lt;",
            '>' => safe += "&gt;",
            '"' => safe += "&quot;",
            '\'' => safe += "&#39;",
            '\n' | '\t' => safe.push(letter),
            letter if letter.is_control() => safe.push('\u{fffd}'),
            letter => safe.push(letter),
        }
    }
    safe
}

fn section(title: &str, inside: &str) -> String {
    format!("<section><h2>{title}</h2>\n{inside}</section>\n")
}

/// The few figures that count.
fn cards(report: &Report) -> String {
    let waits = Waits::of(report);
    let spared = Spared::of(report);
    let mut cards = Vec::new();
    if report.elapsed_ns > 0 {
        cards.push((duration(report.elapsed_ns), "it took"));
    }
    if report.plainly_because.is_none() {
        cards.push((duration(waits.disk_ns()), "waited for files, all threads together"));
        if report.speculated {
            cards.push(match spared.ns() {
                0 if spared.faults > 0 => (count(spared.faults, "wait"), "spared"),
                ns => (duration(ns), "of waiting spared"),
            });
        } else if let Some(overlapped) = Overlapped::of(report) {
            cards.push((duration(overlapped.likely_ns), "if its waiting were overlapped, about"));
        }
    } else {
        cards.push(("plainly".to_owned(), "it ran, without Runahead"));
    }
    let card =
        |(figure, what): &(String, &str)| format!("<div><strong>{figure}</strong><span>{what}</span></div>");
    format!("<div class=\"cards\">{}</div>\n", cards.iter().map(card).collect::<String>())
}

/// Bars of time: this run, and what it is compared with.
fn time(report: &Report) -> String {
    let waits = Waits::of(report);
    let program = report.program.unwrap_or_default();
    let part = |class, name, ns: u64| Part { class, name, value: ns, told: duration(ns) };
    let mut parts = vec![
        part("compute", "computing", program.processor_ns),
        part("queue", "no processor", program.queued_ns),
        part("read", "reads", waits.reads_ns),
        part("name", "names of files", waits.names_ns),
        part("fault", "page faults (at most)", waits.faults_ns),
    ];
    match waits.elsewhere_ns {
        Some(ns) => parts.push(part("rest", "the rest", ns)),
        None => {
            let known = parts.iter().fold(0u64, |sum, part| sum.saturating_add(part.value));
            parts.push(part("rest", "computing and the rest", report.elapsed_ns.saturating_sub(known)));
        }
    }
    let sum = parts.iter().fold(0u64, |sum, part| sum.saturating_add(part.value));
    let mut all = vec![Bar { name: "this run".into(), parts: parts.clone() }];
    if report.speculated {
        let spared = Spared::of(report).ns();
        if spared > 0 {
            parts.push(part("spared", "spared (measured)", spared));
            all.push(Bar { name: "without Runahead, about".into(), parts });
        }
    } else if let Some(Overlapped { best_ns, likely_ns, .. }) = Overlapped::of(report) {
        for (name, ns) in [(format!("{LIKELY} at a time"), likely_ns), (format!("{BEST} at a time"), best_ns)]
        {
            all.push(Bar { name: format!("overlapped, {name}"), parts: vec![part("spared", "about", ns)] });
        }
    }
    let mut plot = bars(&all);
    if sum > report.elapsed_ns.saturating_add(report.elapsed_ns / 20) {
        plot += "<p>The parts are more than the time that it took: threads wait and compute at the same time, and a wait may be for a disk and then for a processor.</p>\n";
    }
    plot
}

fn covered(report: &Report) -> String {
    let (waits, spared) = (Waits::of(report), Spared::of(report));
    let partial = report.counts.partial_prefetches.min(waits.reads);
    let part = |class, name, number: u64| Part { class, name, value: number, told: number.to_string() };
    let rows = [
        ("reads", spared.reads, partial, waits.reads - partial),
        ("names of files", spared.names, 0, waits.names),
        ("page faults", spared.faults, 0, waits.faults),
    ];
    let all: Vec<Bar> = rows
        .into_iter()
        .filter(|(_, covered, partial, waited)| covered | partial | waited != 0)
        .map(|(name, covered, partial, waited)| Bar {
            name: format!("{name}: {}", covered.saturating_add(partial).saturating_add(waited)),
            parts: vec![
                part("spared", "covered", covered),
                part("partial", "in part", partial),
                part("read", "waited", waited),
            ],
        })
        .collect();
    if all.is_empty() { "<p>Nothing waited that could be seen.</p>\n".to_owned() } else { bars(&all) }
}

fn fetched(report: &Report) -> Option<String> {
    let counts = &report.counts;
    let pages = counts.speculator.prefetched_pages.saturating_add(counts.faults.prefetched_pages);
    let vain = counts.speculator.unused_pages.min(pages);
    let part =
        |class, name, pages: u64| Part { class, name, value: pages, told: bytes(pages.saturating_mul(PAGE)) };
    (pages > 0).then(|| {
        let parts = vec![part("spared", "used", pages - vain), part("vain", "in vain", vain)];
        let percent = percent(vain, pages);
        bars(&[Bar { name: "fetched ahead".into(), parts }])
            + &format!("<p>In vain: {percent:.1}% of it.</p>\n")
    })
}

fn reasons(report: &Report, around: &Surroundings) -> String {
    let reasons = why::reasons(report, around, false);
    if reasons.is_empty() {
        return String::new();
    }
    let line = |reason: &why::Reason| {
        let remedy = reason.remedy.as_ref();
        let remedy =
            remedy.map_or(String::new(), |remedy| format!("<br>try: <code>{}</code>", escaped(remedy)));
        format!("<li>{}{remedy}</li>\n", escaped(&reason.found))
    };
    let title = if report.speculated { "Why not more" } else { "Why" };
    section(title, &format!("<ul>{}</ul>\n", reasons.iter().map(line).collect::<String>()))
}

fn all_counts(document: &Value) -> String {
    let mut rows = String::new();
    each("", document, &mut |name, value| {
        let value = match value {
            Value::String(text) => escaped(text),
            Value::Null => "&mdash;".to_owned(),
            other => escaped(&other.to_string()),
        };
        rows += &format!("<tr><td>{}</td><td>{value}</td></tr>\n", escaped(name));
    });
    format!(
        "<details><summary>All counts</summary>\n<p>docs/report.md says what each means: times in nanoseconds, pages of 4096 bytes.</p>\n\
         <table>{rows}</table></details>\n"
    )
}

/// Each field with the names of those it lies in; a list is one field.
fn each(before: &str, value: &Value, tell: &mut impl FnMut(&str, &Value)) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                let name = if before.is_empty() { name.clone() } else { format!("{before}.{name}") };
                each(&name, field, tell);
            }
        }
        Value::Array(items) => {
            let words: Vec<String> =
                items.iter().map(|item| item.as_str().unwrap_or("").to_owned()).collect();
            tell(before, &Value::String(words.join(" ")));
        }
        value => tell(before, value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(report: &Value) -> String {
        let read = Report::read(report.to_string().as_bytes()).unwrap();
        html(&read.0, &read.1, None, &Surroundings::default())
    }

    fn example() -> Value {
        let (_, rest) = include_str!("../../../docs/report.md").split_once("```json\n").expect("an example");
        serde_json::from_str(rest.split_once("```").expect("its end").0).expect("JSON")
    }

    #[test]
    fn a_page_needs_nothing_else() {
        let page = page(&example());
        for word in ["http:", "https:", "src=", "href=", "url(", "@import", "<script"] {
            assert!(!page.contains(word), "{word}");
        }
        assert!(page.contains("prefers-color-scheme: dark") && page.contains("<svg"));
        assert!(page.contains("of waiting spared") && page.contains("md5sum big.iso"));
        assert!(page.contains("counts.speculator.endings.last_fault"));
    }

    #[test]
    fn what_a_report_holds_is_no_markup() {
        let mut report = example();
        report["command"] = vec!["<script>alert(1)</script>\"'&"].into();
        report["left_because"] = "<img src=x>".into();
        report["<b>"] = "<i>".into();
        let page = page(&report);
        for word in ["<script", "<img", "<i>", "<b>"] {
            assert!(!page.contains(word), "{word}");
        }
        assert!(page.contains("&lt;script&gt;"));
    }

    #[test]
    fn each_of_svgs_numbers_is_one() {
        for report in [example(), {
            let mut greatest = example();
            greatest["elapsed_ns"] = u64::MAX.into();
            greatest["counts"]["stalls"] = u64::MAX.into();
            greatest["counts"]["stall_ns"] = u64::MAX.into();
            greatest["counts"]["saved_ns"] = u64::MAX.into();
            greatest
        }] {
            let page = page(&report);
            assert!(!page.contains("NaN") && !page.contains("inf\""), "{page}");
        }
    }
}
