//! Numbers for people.

/// So many bytes of a command are shown, unless its name alone is longer.
const SHOWN_OF_A_COMMAND: usize = 120;

pub fn duration(ns: u64) -> String {
    let ms = ns as f64 / 1e6;
    match ns {
        0 => "0 s".to_owned(),
        1..1_000_000 => format!("{ms:.2} ms"),
        1_000_000..100_000_000 => format!("{ms:.1} ms"),
        100_000_000..10_000_000_000 => format!("{:.2} s", ms / 1e3),
        _ => format!("{:.1} s", ms / 1e3),
    }
}

pub fn bytes(bytes: u64) -> String {
    match bytes {
        0..1_000 => format!("{bytes} bytes"),
        1_000..1_000_000 => format!("{:.1} KB", bytes as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", bytes as f64 / 1e6),
        _ => format!("{:.2} GB", bytes as f64 / 1e9),
    }
}

/// `1 read`, `2 reads`.
pub fn count(number: u64, what: &str) -> String {
    if number == 1 { format!("1 {what}") } else { format!("{number} {what}s") }
}

pub fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { 100.0 * part as f64 / whole as f64 }
}

/// Text that a terminal shows and does not obey.
pub fn printable(text: &str) -> String {
    text.chars().map(|shown| if shown.is_control() { '\u{fffd}' } else { shown }).collect()
}

/// A command, as much of it as two lines hold: it may have ten thousand arguments.
pub fn command(words: &[String]) -> String {
    let mut text = String::new();
    for (number, word) in words.iter().enumerate() {
        if text.len() + word.len() > SHOWN_OF_A_COMMAND && number > 0 {
            text += &format!(" ... and {} more", words.len() - number);
            break;
        }
        text += if number == 0 { "" } else { " " };
        text += &printable(word);
    }
    text
}

/// Bytes of a page.
pub const PAGE: u64 = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let told = [0, 20_000, 1_100_000, 640_000_000, 12_300_000_000].map(duration);
        assert_eq!(told, ["0 s", "0.02 ms", "1.1 ms", "0.64 s", "12.3 s"]);
        assert_eq!(
            [7, 4096, 5_400_000, 2_500_000_000].map(bytes),
            ["7 bytes", "4.1 KB", "5.4 MB", "2.50 GB"]
        );
        assert_eq!([count(1, "read"), count(2, "read")], ["1 read", "2 reads"]);
    }

    #[test]
    fn a_terminal_is_not_told_what_to_do() {
        assert_eq!(printable("grep \u{1b}[31m a\nb é"), "grep \u{fffd}[31m a\u{fffd}b é");
        let many: Vec<String> = (0..5000).map(|number| number.to_string()).collect();
        assert!(command(&many).ends_with(" more") && command(&many).len() < 200);
    }
}
