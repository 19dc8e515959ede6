//! Plots as SVG, drawn by hand: bars in groups, and lines with points.
//!
//! They stand inline in the page and are turned into PNG files from the same text, so no script, no
//! style sheet and nothing from a network takes part.

use std::fmt::Write;

/// A quantity that is shown for each group, with its colour.
pub struct Series {
    pub name: String,
    pub colour: &'static str,
}

/// Grey, green, amber, blue, red, violet: told apart in print and by most colour-blind readers.
pub const COLOURS: [&str; 6] = ["#8a8f98", "#0b7a53", "#e0a100", "#2f6fb7", "#b23a48", "#7a4fa3"];

/// Kinds of lines: strokes and gaps.
const DASHES: [&str; 4] = ["none", "7 3", "2 3", "9 3 2 3"];

const FONT: &str = "font-family=\"DejaVu Sans, Verdana, sans-serif\"";
const WIDTH: f64 = 900.0;
const LEFT: f64 = 130.0;
const RIGHT: f64 = 70.0;
/// The width of a letter of the labels, generously.
const LETTER: f64 = 7.2;
/// From one name to the next, at their size.
const LABEL_LINE: f64 = 14.0;

/// Horizontal bars, a group for each label.
pub struct Bars {
    pub title: String,
    pub axis: String,
    pub series: Vec<Series>,
    /// Label, and a value for each series where there is one.
    pub groups: Vec<(String, Vec<Option<f64>>)>,
    /// For values that span orders of magnitude; they must be above 0 then.
    pub logarithmic: bool,
}

impl Bars {
    /// Series without a single value have neither bars nor a place in the legend.
    pub fn draw(mut self) -> String {
        let has = |index: usize| {
            self.groups.iter().any(|(_, values)| values.get(index).is_some_and(Option::is_some))
        };
        let kept: Vec<bool> = (0..self.series.len()).map(has).collect();
        let mut keep = kept.iter();
        self.series.retain(|_| *keep.next().unwrap_or(&true));
        for (_, values) in &mut self.groups {
            let mut keep = kept.iter();
            values.retain(|_| *keep.next().unwrap_or(&true));
        }
        self.draw_all()
    }

    fn draw_all(&self) -> String {
        let bar = 13.0;
        let group = bar * self.series.len() as f64 + 12.0;
        let (top, bottom) = (70.0, 45.0);
        let height = top + group * self.groups.len() as f64 + bottom;
        let values = || self.groups.iter().flat_map(|(_, values)| values.iter().flatten().copied());
        let most = values().fold(0.0_f64, f64::max).max(1e-3);
        let least = values().filter(|value| *value > 0.0).fold(most, f64::min);
        let longest = self.groups.iter().map(|(label, _)| label.chars().count()).max().unwrap_or(0);
        let left = LEFT.max(20.0 + LETTER * longest as f64);
        let axis = Axis::new(least, most, self.logarithmic, left, WIDTH - RIGHT);
        let mut svg = open(&self.title, height, &self.series);
        for tick in axis.ticks() {
            let x = axis.place(tick);
            line(&mut svg, (x, top - 6.0), (x, height - bottom), "#dddddd");
            text(&mut svg, (x, height - bottom + 16.0), "middle", 11, &number(tick));
        }
        text(&mut svg, ((left + WIDTH - RIGHT) / 2.0, height - 10.0), "middle", 12, &self.axis);
        for (index, (label, values)) in self.groups.iter().enumerate() {
            let start = top + group * index as f64;
            text(&mut svg, (left - 8.0, start + group / 2.0), "end", 12, label);
            for (number_of, (series, value)) in self.series.iter().zip(values).enumerate() {
                let Some(value) = value else { continue };
                let y = start + bar * number_of as f64;
                // A negative value has no bar, but its number stands there.
                let end = axis.place(value.max(axis.least)).max(left);
                let _ = write!(
                    svg,
                    "<rect x=\"{left}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{}\"/>",
                    end - left,
                    bar - 2.0,
                    series.colour
                );
                text(&mut svg, (end + 4.0, y + bar - 3.5), "start", 10, &number(*value));
            }
        }
        svg + "</svg>"
    }
}

/// Points joined by lines, both axes logarithmic.
pub struct Lines {
    pub title: String,
    pub across: String,
    pub up: String,
    pub series: Vec<Series>,
    /// For each series its points, above 0.
    pub points: Vec<Vec<(f64, f64)>>,
}

impl Lines {
    pub fn draw(&self) -> String {
        let longest = self.series.iter().map(|series| series.name.chars().count()).max().unwrap_or(0);
        // Where lines end and their names begin.
        let right = WIDTH - 30.0 - LETTER * longest as f64;
        let (top, bottom) = (70.0, 60.0);
        // Room for every name, one below the other.
        let height = f64::max(560.0, top + bottom + LABEL_LINE * self.series.len() as f64);
        let all = || self.points.iter().flatten();
        let bounds = |value: fn(&(f64, f64)) -> f64| {
            let least = all().map(value).fold(f64::INFINITY, f64::min);
            (least.min(1e9), all().map(value).fold(1e-3, f64::max))
        };
        let ((least, most), (low, high)) = (bounds(|point| point.0), bounds(|point| point.1));
        let across = Axis::new(least, most, true, LEFT, right);
        let up = Axis::new(low.min(1.0), high, true, height - bottom, top);
        let mut svg = open(&self.title, height, &[]);
        for tick in across.ticks() {
            let x = across.place(tick);
            line(&mut svg, (x, top), (x, height - bottom), "#dddddd");
            text(&mut svg, (x, height - bottom + 16.0), "middle", 11, &number(tick));
        }
        for tick in up.ticks() {
            let y = up.place(tick);
            line(&mut svg, (LEFT, y), (right, y), "#dddddd");
            text(&mut svg, (LEFT - 8.0, y + 4.0), "end", 11, &number(tick));
        }
        text(&mut svg, ((LEFT + right) / 2.0, height - 20.0), "middle", 12, &self.across);
        text(&mut svg, (LEFT, top - 10.0), "end", 12, &self.up);
        let mut labels: Vec<(f64, &Series, &str)> = Vec::new();
        for (number, (series, points)) in self.series.iter().zip(&self.points).enumerate() {
            // The same colour comes back with another kind of line.
            let dash = DASHES[number / COLOURS.len() % DASHES.len()];
            let places: Vec<(f64, f64)> =
                points.iter().map(|(x, y)| (across.place(*x), up.place(*y))).collect();
            for pair in places.windows(2) {
                dashed(&mut svg, pair[0], pair[1], series.colour, dash);
            }
            for (x, y) in &places {
                let _ =
                    write!(svg, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" fill=\"{}\"/>", series.colour);
            }
            labels.extend(places.last().map(|(_, y)| (*y, series, dash)));
        }
        labels.sort_by(|one, other| one.0.total_cmp(&other.0));
        // Each at its line's end, or as far from there as its neighbours demand, and all within the picture.
        let mut next = 0.0;
        for (index, (y, series, dash)) in labels.iter().enumerate() {
            let below = (labels.len() - index) as f64 * LABEL_LINE;
            let y = y.min(height - 20.0 - below).max(next);
            next = y + LABEL_LINE;
            dashed(&mut svg, (right + 4.0, y), (right + 22.0, y), series.colour, dash);
            text(&mut svg, (right + 26.0, y + 4.0), "start", 11, &series.name);
        }
        svg + "</svg>"
    }
}

/// From values to places.
struct Axis {
    least: f64,
    most: f64,
    logarithmic: bool,
    from: f64,
    to: f64,
}

impl Axis {
    fn new(least: f64, most: f64, logarithmic: bool, from: f64, to: f64) -> Axis {
        // A logarithmic axis begins and ends at a round number beyond all values, so that the shortest bar has a length.
        let (least, most) = match logarithmic {
            true => {
                let below = round_numbers(least, most).rfind(|round| *round < least * 0.999);
                let above = round_numbers(least, most).find(|round| *round >= most * 0.999);
                (below.unwrap_or(least), above.unwrap_or(most))
            }
            false => (0.0, most),
        };
        // Of a single value there is nothing to spread.
        let most = if most > least { most } else { least + 1.0 };
        Axis { least, most, logarithmic, from, to }
    }

    fn place(&self, value: f64) -> f64 {
        let share = match self.logarithmic {
            true => (value / self.least).log10() / (self.most / self.least).log10(),
            false => value / self.most,
        };
        self.from + (self.to - self.from) * share
    }

    fn ticks(&self) -> Vec<f64> {
        if self.logarithmic {
            let within = |round: &f64| (self.least * 0.999..self.most * 1.001).contains(round);
            let all: Vec<f64> = round_numbers(self.least, self.most).filter(within).collect();
            let decades: Vec<f64> = all
                .iter()
                .copied()
                .filter(|round| (round.log10() - round.log10().round()).abs() < 1e-6)
                .collect();
            return if all.len() <= 8 { all } else { decades };
        }
        let rough = self.most / 5.0;
        let decade = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|times| times * decade).into_iter().find(|step| *step >= rough);
        let step = step.unwrap_or(rough);
        (0..=(self.most / step) as i32).map(|count| f64::from(count) * step).collect()
    }
}

/// 1, 2, 5, 10 and so on, from a decade below to a decade above.
fn round_numbers(least: f64, most: f64) -> impl DoubleEndedIterator<Item = f64> {
    let (first, last) = (least.log10().floor() as i32 - 1, most.log10().ceil() as i32 + 1);
    (first..=last).flat_map(|decade| [1.0, 2.0, 5.0].map(|digit| digit * 10f64.powi(decade)))
}

fn open(title: &str, height: f64, series: &[Series]) -> String {
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" \
         height=\"{height}\" {FONT}><rect width=\"100%\" height=\"100%\" fill=\"white\"/>"
    );
    text(&mut svg, (12.0, 24.0), "start", 16, title);
    let mut x = 12.0;
    for one in series {
        let _ =
            write!(svg, "<rect x=\"{x:.1}\" y=\"36\" width=\"12\" height=\"12\" fill=\"{}\"/>", one.colour);
        text(&mut svg, (x + 17.0, 46.0), "start", 12, &one.name);
        // Seven units a letter at this size, generously.
        x += 40.0 + 7.0 * one.name.chars().count() as f64;
    }
    svg
}

fn line(svg: &mut String, from: (f64, f64), to: (f64, f64), colour: &str) {
    let _ = write!(
        svg,
        "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"{colour}\"/>",
        from.0, from.1, to.0, to.1
    );
}

fn dashed(svg: &mut String, from: (f64, f64), to: (f64, f64), colour: &str, dash: &str) {
    let _ = write!(
        svg,
        "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"{colour}\" stroke-width=\"1.5\" \
         stroke-dasharray=\"{dash}\"/>",
        from.0, from.1, to.0, to.1
    );
}

fn text(svg: &mut String, at: (f64, f64), anchor: &str, size: u32, words: &str) {
    let _ = write!(
        svg,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\" font-size=\"{size}\">{}</text>",
        at.0,
        at.1,
        escape(words)
    );
}

/// Three significant digits, as a person would write them.
pub fn number(value: f64) -> String {
    match value.abs() {
        0.0 => "0".into(),
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}").trim_end_matches(".0").to_string(),
        size if size >= 0.995 => trim(format!("{value:.2}")),
        size if size >= 0.001 => trim(format!("{value:.3}")),
        _ => format!("{value:.0e}"),
    }
}

fn trim(text: String) -> String {
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

/// Text for inside an element of SVG or HTML.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        let shown = [0.0, 1234.5, 12.0, 12.34, 1.0, 1.5, 0.25, 0.008, 0.0001].map(number);
        assert_eq!(shown, ["0", "1234", "12", "12.3", "1", "1.5", "0.25", "0.008", "1e-4"]);
    }

    #[test]
    fn a_longer_bar_is_a_greater_value() {
        for logarithmic in [false, true] {
            let axis = Axis::new(0.02, 30.0, logarithmic, 100.0, 800.0);
            let places = [0.02, 1.0, 30.0].map(|value| axis.place(value));
            assert!(places.is_sorted() && places[0] >= 100.0 && places[2] <= 800.0, "{places:?}");
            assert!(axis.ticks().len() >= 3);
        }
    }

    #[test]
    fn nothing_from_the_data_becomes_markup() {
        let bars = Bars {
            title: "<b>".into(),
            axis: "a & b".into(),
            series: ["\"x\"", "no value"].map(|name| Series { name: name.into(), colour: COLOURS[0] }).into(),
            groups: vec![("g".into(), vec![Some(1.0), None]), ("none".into(), vec![None, None])],
            logarithmic: false,
        };
        let svg = bars.draw();
        assert!(svg.contains("&quot;x&quot;") && !svg.contains("no value"));
        assert!(!svg.contains("<b>") && svg.contains("&lt;b&gt;") && svg.contains("a &amp; b"));
    }
}
