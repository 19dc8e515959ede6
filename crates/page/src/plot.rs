//! Bars as inline SVG. Colours are the page's: each part has a class. Pure.

use crate::page::escaped;
use std::fmt::Write as _;

#[derive(Clone, Debug)]
pub struct Part {
    pub class: &'static str,
    pub name: &'static str,
    pub value: u64,
    /// The value, for people.
    pub told: String,
}

#[derive(Clone, Debug)]
pub struct Bar {
    pub name: String,
    pub parts: Vec<Part>,
}

/// In the picture's own units.
const WIDTH: f64 = 820.0;
const LEFT: f64 = 190.0;
const BAR: f64 = 26.0;
const STEP: f64 = 40.0;
const KEY: f64 = 22.0;
/// The longest key has some 35 letters.
const KEYS_IN_A_ROW: usize = 2;

/// All to one scale, each with its parts one behind the other; below them what each colour means, with the
/// value where that is one for all bars.
pub fn bars(bars: &[Bar]) -> String {
    let total = |bar: &Bar| bar.parts.iter().map(|part| part.value as f64).sum::<f64>();
    let most = bars.iter().map(total).fold(1.0, f64::max);
    let scale = (WIDTH - LEFT) / most;
    let mut keys: Vec<&Part> = Vec::new();
    for part in bars.iter().flat_map(|bar| &bar.parts).filter(|part| part.value > 0) {
        let named = |key: &&Part| (key.class, key.name) == (part.class, part.name);
        if !keys.iter().any(named) {
            keys.push(part);
        }
    }
    let rows = keys.len().div_ceil(KEYS_IN_A_ROW) as f64;
    let height = STEP * bars.len() as f64 + KEY * rows + 8.0;
    let mut svg = format!("<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\">");
    for (row, bar) in bars.iter().enumerate() {
        let top = STEP * row as f64;
        let _ = write!(
            svg,
            "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            LEFT - 12.0,
            top + BAR * 0.68,
            escaped(&bar.name)
        );
        let mut x = LEFT;
        for part in bar.parts.iter().filter(|part| part.value > 0) {
            // What is there is seen.
            let width = (part.value as f64 * scale).max(0.8);
            let _ = write!(
                svg,
                "<rect class=\"{}\" x=\"{x:.2}\" y=\"{top}\" width=\"{width:.2}\" height=\"{BAR}\"><title>{}: {}</title></rect>",
                part.class,
                part.name,
                escaped(&part.told)
            );
            x += width;
        }
    }
    let column = (WIDTH - LEFT) / KEYS_IN_A_ROW as f64;
    for (number, key) in keys.iter().enumerate() {
        let x = LEFT + column * (number % KEYS_IN_A_ROW) as f64;
        let y = STEP * bars.len() as f64 + KEY * (number / KEYS_IN_A_ROW) as f64;
        let same = |part: &&Part| (part.class, part.name) == (key.class, key.name);
        let mut values = bars.iter().flat_map(|bar| &bar.parts).filter(same).map(|part| part.value);
        let is_one = values.all(|value| value == key.value);
        let told = if is_one { escaped(&key.told) } else { String::new() };
        let _ = write!(
            svg,
            "<rect class=\"{}\" x=\"{x:.1}\" y=\"{:.1}\" width=\"11\" height=\"11\" rx=\"2\"/>\
             <text class=\"quiet\" x=\"{:.1}\" y=\"{:.1}\">{} {told}</text>",
            key.class,
            y + 4.0,
            x + 17.0,
            y + 14.0,
            key.name
        );
    }
    svg + "</svg>\n"
}
