//! What the documents say was measured: each result that they name is stored and can be read, the first
//! tables of docs/figures.md say what it says, and README's picture is of one. And that their links lead
//! somewhere.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use runahead_bench::results::{self, median};

fn checkout() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The rows of docs/figures.md's first tables, by what they are called there.
const ROWS: &[(&str, &str)] = &[
    ("`tar` of 9000 source files to a pipe", "tar"),
    ("`rg -j1`", "ripgrep"),
    ("`grep -r`", "grep-r"),
    ("`git grep`, 1 thread", "git-grep"),
    ("`git status`", "git-status"),
    ("`agrep`", "agrep"),
    ("`md5sum` of 3000 files", "md5sum"),
    ("`python3` reading them", "python"),
    ("`sqlite3`, 1500 look-ups by index in 1 GB", "sqlite-index"),
    ("`cscope -b`, 3000 files", "cscope"),
    ("GNU `ld`, 490 objects", "ld"),
    ("`du -s`, 48,000 files", "du"),
    ("`find -ls`, the same", "find"),
    ("`python3` importing numpy and pandas", "python-import"),
    ("20,000 random reads of 4 KiB", "preads"),
    ("25 slices of a volume of 512 MB", "slices"),
    ("a pure chain: each read depends on the one before", "chain"),
    ("a column of a matrix, 16,384 rows of 64 KB", "columns"),
    ("10,000 words at computed places of 1 GB", "gather"),
    ("the same at places that stand in a second file", "gather-indexed"),
    ("`sqlite3`, 1500 look-ups by index in 1 GB, mapped", "sqlite-index-mapped"),
    ("5000 look-ups in a B-tree as LMDB's", "tree"),
    ("NumPy, slices of a memmap", "memmap-slices"),
    ("`git grep` of a commit in one pack of 244 MB", "git-grep-pack"),
    ("a mapped matrix from end to end", "scan-mapped"),
    ("two NAS codes on a mapped file larger than memory (as root only)", "mgrid-file fftpde-file"),
    ("40,000 words of memory on swap (as root only)", "gather-swap"),
    ("a chain through a mapped file", "chain-mapped"),
];

const COLUMNS: &str = "| program | 1 ms disk: alone | with Runahead | times | local disk: times |";

/// All documents of the checkout, but those of what was built or fetched.
fn documents() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![checkout()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().flatten() {
            let (path, name) = (entry.path(), entry.file_name());
            let name = name.to_string_lossy();
            if entry.file_type().unwrap().is_dir() {
                let foreign = ["target", "data", "node_modules", "report"].contains(&&*name);
                folders.extend((!foreign && !name.starts_with('.')).then_some(path));
            } else if name.ends_with(".md") {
                found.push(path);
            }
        }
    }
    found
}

/// Names of results in a text: `2026-11-22-core-90de6f0.jsonl`.
fn named(text: &str) -> Vec<String> {
    let part_of_name = |letter: char| letter.is_ascii_alphanumeric() || "-.+".contains(letter);
    text.split(|letter| !part_of_name(letter))
        .map(|word| word.trim_end_matches('.'))
        .filter(|word| word.starts_with("20") && word.ends_with(".jsonl"))
        .map(String::from)
        .collect()
}

/// Where results are: the runner's, and those of other places (`bench/where`).
fn folders() -> [PathBuf; 2] {
    ["bench/results", "bench/where/results"].map(|folder| checkout().join(folder))
}

#[test]
fn each_result_that_a_document_names_is_stored() {
    let mut count = 0;
    for document in documents() {
        for name in named(&fs::read_to_string(&document).unwrap()) {
            count += 1;
            let is_stored = folders().iter().any(|folder| folder.join(&name).is_file());
            assert!(is_stored, "{} names {name}, which is not stored", document.display());
        }
    }
    assert!(count > 5, "the documents name {count} results: are they still looked for in the right way?");
}

#[test]
fn stored_results_can_be_read_and_name_no_place_of_a_machine() {
    assert!(results::all(&folders()[0]).unwrap().len() > 50);
    for entry in folders().iter().flat_map(|folder| fs::read_dir(folder).unwrap().flatten()) {
        let text = fs::read_to_string(entry.path()).unwrap();
        let places = places(&text);
        assert!(places.is_empty(), "{} names places: {places:?}", entry.path().display());
    }
}

/// Where every machine has the same things: programs and the kernel's own.
const EVERYWHERE: &[&str] = &["usr", "bin", "sbin", "lib", "lib64", "etc", "proc", "dev", "sys"];

/// The absolute paths in a text, or in its JSON, that are of one machine.
fn places(text: &str) -> Vec<String> {
    let text = text.replace("\\n", "\n").replace("\\t", "\t");
    let part_of_path = |letter: char| letter.is_alphanumeric() || "-_.+~/<>{}$*".contains(letter);
    text.split(|letter| !part_of_path(letter))
        .filter_map(|word| Some((word, word.strip_prefix('/')?.split('/').next()?)))
        .filter(|(_, first)| first.starts_with(char::is_alphanumeric) && !EVERYWHERE.contains(first))
        .map(|(word, _)| word.to_string())
        .collect()
}

#[test]
fn a_place_of_a_machine_is_told_from_what_is_everywhere() {
    let text = r#"{"command": ["/home/me/x", "--list=/mnt/disk", "said:\n/srv/data", "'/opt'"]}"#;
    assert_eq!(places(text), ["/home/me/x", "/mnt/disk", "/srv/data", "/opt"]);
    let text = r#"["/usr/bin/cat", "/proc/self/maps", "bench/a.py", "./b", "1/2 MB/s", "a / b", "//"]"#;
    assert_eq!(places(text), Vec::<String>::new());
}

/// Median seconds over all runs, by workload, disk and configuration.
type Medians = BTreeMap<(String, String, String), f64>;

fn medians(name: &str) -> Medians {
    let mut seconds: BTreeMap<(String, String, String), Vec<f64>> = BTreeMap::new();
    for record in results::read(&checkout().join("bench/results").join(name)).unwrap() {
        for run in &record.runs {
            let key = (record.workload.clone(), record.disk.profile.clone(), run.configuration.clone());
            seconds.entry(key).or_default().push(run.seconds());
        }
    }
    seconds.into_iter().map(|(key, values)| (key, median(values))).collect()
}

/// Whether a figure, as written, is this value: off by three quarters of its last digit at most, as a quotient of rounded
/// figures may be.
fn says(written: &str, value: f64) -> bool {
    let Ok(number) = written.parse::<f64>() else { return false };
    let digits = written.split_once('.').map_or(0, |(_, digits)| digits.len());
    // The greater figures are rounded to two places and no fewer: 217 is written 220, and 100 is not 60.
    let places = written.len().saturating_sub(2);
    let zeros =
        if digits == 0 { (written.len() - written.trim_end_matches('0').len()).min(places) } else { 0 };
    (number - value).abs() <= 0.75 * 10f64.powi(zeros as i32 - digits as i32)
}

#[test]
fn tables_of_what_is_gained_say_what_was_measured() {
    let document = fs::read_to_string(checkout().join("docs/figures.md")).unwrap();
    let lines: Vec<&str> = document.lines().collect();
    let mut rows = 0;
    let mut wrong = Vec::new();
    for (start, _) in lines.iter().enumerate().filter(|(_, line)| **line == COLUMNS) {
        let end = start + lines[start..].iter().position(|line| !line.starts_with('|')).unwrap();
        // The first result named after the table, or else before it.
        let around = |lines: &[&str]| named(&lines.join("\n"));
        let behind = around(&lines[end..lines.len().min(end + 2)]).first().cloned();
        let name = behind.or_else(|| around(&lines[..start]).last().cloned());
        let medians = medians(&name.expect("no result is named beside a table"));
        for row in &lines[start + 2..end] {
            let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
            let [label, alone, ours, times, local] = cells[..] else { panic!("not five cells: {row}") };
            let Some((_, workloads)) = ROWS.iter().find(|(known, _)| *known == label) else {
                panic!("docs/figures.md has a row '{label}'; say in this test which workload that is");
            };
            rows += 1;
            for (index, workload) in workloads.split(' ').enumerate() {
                let of = |profile: &str, configuration: &str| {
                    let key = (workload.to_string(), profile.to_string(), configuration.to_string());
                    *medians.get(&key).unwrap_or_else(|| panic!("{key:?} was not measured: {row}"))
                };
                let ratio = |profile: &str| of(profile, "alone") / of(profile, "runahead");
                for (cell, value) in [
                    (alone, of("cloud", "alone")),
                    (ours, of("cloud", "runahead")),
                    (times, ratio("cloud")),
                    (local, ratio("native")),
                ] {
                    let written = cell.trim_end_matches(" s").split(", ").nth(index).unwrap_or("nothing");
                    if !says(written, value) {
                        wrong.push(format!("{label}: {written} is written, {value:.3} was measured"));
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(rows > 20, "only {rows} rows were found");
}

#[test]
fn a_figure_may_be_rounded_and_no_more() {
    for (written, value) in [
        ("9.1", 9.089),
        ("21", 20.853),
        ("0.44", 0.4359),
        ("220", 217.0),
        ("100", 104.0),
        ("1.0", 1.038),
        ("10", 10.1),
    ] {
        assert!(says(written, value), "{written} {value}");
    }
    for (written, value) in [
        ("9.1", 9.2),
        ("21", 22.1),
        ("0.44", 0.46),
        ("220", 230.0),
        ("100", 60.0),
        ("200", 230.0),
        ("10", 11.0),
        ("nothing", 1.0),
    ] {
        assert!(!says(written, value), "{written} {value}");
    }
    assert_eq!(named("From `bench/results/2026-11-22-a-1.jsonl`. In 2026."), ["2026-11-22-a-1.jsonl"]);
}

#[test]
fn readmes_picture_is_made_of_the_stored_result() {
    let made =
        std::process::Command::new("python3").arg(checkout().join("bench/picture.py")).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let stored = fs::read(checkout().join("docs/gains.svg")).unwrap();
    assert!(made.stdout == stored, "docs/gains.svg is not what bench/picture.py > docs/gains.svg makes");
    assert!(fs::read_to_string(checkout().join("README.md")).unwrap().contains("](docs/gains.svg)"));
}

/// What links of a text lead to: `(docs/a.md#part)`, not of what is shown as it is.
fn links(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (number, piece) in text.split("```").enumerate() {
        let shown: String = piece.split('`').step_by(2).collect::<Vec<_>>().join(" ");
        let targets = shown.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
        found.extend(targets.filter(|_| number % 2 == 0).map(|(target, _)| target.to_owned()));
    }
    found
}

/// What a heading is linked by.
fn anchors(text: &str) -> Vec<String> {
    let slug = |heading: &str| {
        let kept = |letter: &char| letter.is_alphanumeric() || " -_".contains(*letter);
        heading.trim().to_lowercase().chars().filter(kept).collect::<String>().replace(' ', "-")
    };
    text.lines().filter(|line| line.starts_with('#')).map(|line| slug(line.trim_start_matches('#'))).collect()
}

#[test]
fn links_lead_somewhere() {
    let mut count = 0;
    let mut wrong = Vec::new();
    for document in documents() {
        let text = fs::read_to_string(&document).unwrap();
        for link in
            links(&text).into_iter().filter(|link| !link.contains("://") && !link.starts_with("mailto:"))
        {
            count += 1;
            let (path, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let to = match path {
                "" => document.clone(),
                path => document.parent().unwrap().join(path),
            };
            let has_anchor =
                || anchors(&fs::read_to_string(&to).unwrap_or_default()).iter().any(|one| one == anchor);
            if !to.exists() || (!anchor.is_empty() && !has_anchor()) {
                wrong.push(format!("{}: {link}", document.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count > 50, "only {count} links were found");
}

#[test]
fn a_link_is_told_from_what_is_shown() {
    let text = "[a](b.md#c-d) and `[x](y)`\n```\n[z](w)\n```\n![p](q.svg)";
    assert_eq!(links(text), ["b.md#c-d", "q.svg"]);
    assert_eq!(anchors("# A `b`, C\ntext\n## What one may notice"), ["a-b-c", "what-one-may-notice"]);
}
