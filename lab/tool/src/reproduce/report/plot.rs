//! Plots as SVG: lines over numbers, or bars where positions have names. The paper's numbers are marks: rings, with a
//! line where the paper gives a range.

use std::fmt::Write;

use super::axis::Axis;
use crate::reproduce::figure::X;
use crate::reproduce::results::Measurement;
use crate::reproduce::table::{distinct, number, paper, position, with_unit};

const WIDTH: f64 = 520.0;
const HEIGHT: f64 = 330.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 30.0;
const BOTTOM: f64 = 52.0;
/// Number of colours in the stylesheet; further series reuse them.
const COLOURS: usize = 8;

/// Formats a round number briefly.
fn tick(value: f64) -> String {
    match value.abs() {
        magnitude if magnitude >= 1e9 => format!("{}G", number(value / 1e9)),
        magnitude if magnitude >= 1e6 => format!("{}M", number(value / 1e6)),
        magnitude if magnitude >= 1e4 => format!("{}k", number(value / 1e3)),
        _ => number(value),
    }
}

/// The contents of a plot: one metric of a figure.
pub struct Plot<'a> {
    pub title: &'a str,
    /// Meaning of positions.
    pub x: &'a str,
    pub unit: &'a str,
    pub logarithmic: bool,
    /// Results with a value, or with a value of the paper.
    pub rows: Vec<&'a Measurement>,
}

/// Escapes text for HTML.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

impl Plot<'_> {
    /// Draws it; returns an empty text if no row has a value.
    pub fn svg(&self) -> String {
        if self.rows.iter().all(|row| row.value.is_none()) {
            return String::new();
        }
        let is_numeric = self.rows.iter().all(|row| matches!(row.x, X::Number(_)));
        let positions = distinct(self.rows.iter().map(|row| &row.x)).len();
        if is_numeric && positions > 1 { self.lines() } else { self.bars() }
    }

    fn series(&self) -> Vec<&String> {
        distinct(self.rows.iter().map(|row| &row.series))
    }

    fn values(&self) -> impl Iterator<Item = f64> {
        self.rows.iter().flat_map(|row| [row.value, row.paper_value, row.paper_upto]).flatten()
    }

    /// Begins a drawing of this height with a vertical axis.
    fn begin(&self, height: f64, label: &str) -> String {
        format!(
            "<svg class=\"plot\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{}\">\n\
             <text class=\"title\" x=\"{}\" y=\"18\">{}</text>\n",
            escape(label),
            4,
            escape(label),
        )
    }

    fn label(&self) -> String {
        if self.unit.is_empty() { self.title.to_owned() } else { format!("{} [{}]", self.title, self.unit) }
    }

    fn lines(&self) -> String {
        let numbers =
            self.rows.iter().filter_map(|row| if let X::Number(x) = row.x { Some(x) } else { None });
        let xs: Vec<f64> = numbers.collect();
        let (least, most) = xs.iter().fold((f64::MAX, f64::MIN), |(a, b), x| (a.min(*x), b.max(*x)));
        // Threads, sizes and nodes double from one to the next.
        let doubling = least > 0.0 && most / least >= 6.0 && distinct(xs.iter()).len() <= 8;
        let across = (LEFT, WIDTH - RIGHT);
        let scaled = |x: f64| if doubling { x.log2() } else { x };
        let x_axis = Axis::over(xs.iter().map(|x| scaled(*x)), false, false, across);
        let y_axis = Axis::over(self.values(), self.logarithmic, true, (HEIGHT - BOTTOM, TOP));
        let mut svg = self.begin(HEIGHT, &self.label());
        self.grid(&mut svg, &y_axis);
        let ticks: Vec<f64> =
            if doubling { distinct(xs.iter()).into_iter().copied().collect() } else { x_axis.ticks() };
        for tick_value in ticks {
            let (x, y) = (x_axis.place(scaled(tick_value)), HEIGHT - BOTTOM);
            let _ = writeln!(
                svg,
                "<text class=\"tick\" x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                y + 17.0,
                tick(tick_value)
            );
        }
        let middle = (LEFT + WIDTH - RIGHT) / 2.0;
        let _ = writeln!(
            svg,
            "<text class=\"axis\" x=\"{middle:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            HEIGHT - 10.0,
            escape(self.x)
        );
        for (at, series) in self.series().into_iter().enumerate() {
            self.line(&mut svg, series, at % COLOURS, (&|x| x_axis.place(scaled(x)), &y_axis));
        }
        svg.push_str("</svg>\n");
        svg.push_str(&self.legend());
        svg
    }

    fn line(
        &self,
        svg: &mut String,
        series: &str,
        colour: usize,
        (x_of, y_axis): (&dyn Fn(f64) -> f64, &Axis),
    ) {
        let mut points: Vec<(f64, &Measurement)> = Vec::new();
        for row in self.rows.iter().filter(|row| row.series == series) {
            if let X::Number(x) = row.x {
                points.push((x, row));
            }
        }
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        let places: Vec<_> = points
            .iter()
            .filter_map(|(x, row)| Some((x_of(*x), y_axis.place(row.value?), *x, *row)))
            .collect();
        let path: Vec<String> = places.iter().map(|(x, y, ..)| format!("{x:.1},{y:.1}")).collect();
        if path.len() > 1 {
            let _ = writeln!(svg, "<polyline class=\"data line c{colour}\" points=\"{}\"/>", path.join(" "));
        }
        if places.len() <= 32 {
            for (x, y, at, row) in &places {
                let tip = self.tip(row, &format!("{} {}", self.x, number(*at)));
                let _ = writeln!(
                    svg,
                    "<circle class=\"data dot c{colour}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\"><title>{tip}</title></circle>"
                );
            }
        }
        for (x, row) in &points {
            self.mark(svg, colour, row, x_of(*x), |value| y_axis.place(value));
        }
    }

    /// Returns the tooltip of a point.
    fn tip(&self, row: &Measurement, at: &str) -> String {
        let ours = row.value.map_or_else(|| "not measured".to_owned(), |value| with_unit(value, self.unit));
        let theirs = paper(row).map_or_else(String::new, |paper| format!("; paper {paper}"));
        let comma = if at.is_empty() { "" } else { ", " };
        escape(&format!("{}{comma}{at}: {ours}{theirs}", row.series))
    }

    /// Draws the paper's number at a horizontal position; `y_of` returns the vertical one of a value.
    fn mark(&self, svg: &mut String, colour: usize, row: &Measurement, x: f64, y_of: impl Fn(f64) -> f64) {
        let Some(value) = row.paper_value else { return };
        let y = y_of(value);
        if let Some(upto) = row.paper_upto {
            let _ = writeln!(
                svg,
                "<line class=\"paper range c{colour}\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{y:.1}\" y2=\"{:.1}\"/>",
                y_of(upto)
            );
        }
        let place = row.paper_place.as_deref().unwrap_or_default();
        let tip = escape(&format!("paper, {place}: {}", paper(row).unwrap_or_default()));
        let _ = writeln!(
            svg,
            "<circle class=\"paper ring c{colour}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"6\"><title>{tip}</title></circle>"
        );
    }

    /// Draws the lines of a vertical axis, and their numbers.
    fn grid(&self, svg: &mut String, y_axis: &Axis) {
        for tick_value in y_axis.ticks() {
            let y = y_axis.place(tick_value);
            let _ = writeln!(
                svg,
                "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>",
                WIDTH - RIGHT
            );
            let _ = writeln!(
                svg,
                "<text class=\"tick\" x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                LEFT - 7.0,
                y + 4.5,
                tick(tick_value)
            );
        }
    }

    /// Draws a bar for each row, from left to right, with its name above it.
    fn bars(&self) -> String {
        const EACH: f64 = 38.0;
        let count = self.rows.len() as f64;
        let height = TOP + count * EACH + BOTTOM - 14.0;
        let x_axis = Axis::over(self.values(), self.logarithmic, true, (26.0, WIDTH - 30.0));
        let mut svg = self.begin(height, &self.label());
        for tick_value in x_axis.ticks() {
            let x = x_axis.place(tick_value);
            let _ = writeln!(
                svg,
                "<line class=\"grid\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP}\" y2=\"{:.1}\"/>",
                TOP + count * EACH
            );
            let _ = writeln!(
                svg,
                "<text class=\"tick\" x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                TOP + count * EACH + 17.0,
                tick(tick_value)
            );
        }
        let series = self.series();
        // Those at one position beside each other.
        let positions = distinct(self.rows.iter().map(|row| &row.x));
        let mut rows = self.rows.clone();
        rows.sort_by_key(|row| positions.iter().position(|x| **x == row.x));
        for (at, row) in rows.iter().enumerate() {
            let y = TOP + at as f64 * EACH;
            let colour = series.iter().position(|series| **series == row.series).unwrap_or(0) % COLOURS;
            let name = match &row.x {
                X::None => row.series.clone(),
                X::Label(label) => format!("{}, {label}", row.series),
                x => format!("{}, {} {}", row.series, self.x, position(x)),
            };
            let told =
                row.value.map_or_else(|| "not measured".to_owned(), |value| with_unit(value, self.unit));
            let _ = writeln!(
                svg,
                "<text class=\"name\" x=\"16\" y=\"{:.1}\">{}: {}</text>",
                y + 14.0,
                escape(&name),
                escape(&told)
            );
            if let Some(value) = row.value {
                let (from, to) = (x_axis.origin(), x_axis.place(value));
                let _ = writeln!(
                    svg,
                    "<rect class=\"data bar c{colour}\" x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"12\"><title>{}</title></rect>",
                    from.min(to),
                    y + 20.0,
                    (to - from).abs().max(1.0),
                    self.tip(row, &position(&row.x))
                );
            }
            self.mark_across(&mut svg, colour, row, y + 26.0, &x_axis);
        }
        svg.push_str("</svg>\n");
        if self.rows.iter().any(|row| row.paper_value.is_some()) {
            svg.push_str(PAPERS_MARK);
        }
        svg
    }

    fn mark_across(&self, svg: &mut String, colour: usize, row: &Measurement, y: f64, x_axis: &Axis) {
        let Some(value) = row.paper_value else { return };
        let x = x_axis.place(value);
        if let Some(upto) = row.paper_upto {
            let _ = writeln!(
                svg,
                "<line class=\"paper range c{colour}\" x1=\"{x:.1}\" x2=\"{:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>",
                x_axis.place(upto)
            );
        }
        let place = row.paper_place.as_deref().unwrap_or_default();
        let tip = escape(&format!("paper, {place}: {}", paper(row).unwrap_or_default()));
        let _ = writeln!(
            svg,
            "<circle class=\"paper ring c{colour}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"6\"><title>{tip}</title></circle>"
        );
    }

    fn legend(&self) -> String {
        let series = self.series();
        let item = |(at, series): (usize, &&String)| {
            format!(
                "<span><svg viewBox=\"0 0 14 14\" aria-hidden=\"true\"><circle class=\"dot c{}\" cx=\"7\" cy=\"7\" r=\"5\"/></svg>{}</span>",
                at % COLOURS,
                escape(series)
            )
        };
        let items: Vec<String> = series.iter().enumerate().map(item).collect();
        let marks = if self.rows.iter().any(|row| row.paper_value.is_some()) { PAPERS_MARK } else { "" };
        format!("<p class=\"legend\">{}</p>\n{marks}", items.join(""))
    }
}

const PAPERS_MARK: &str = "<p class=\"legend\"><span><svg viewBox=\"0 0 14 14\" aria-hidden=\"true\"><circle class=\"ring\" cx=\"7\" cy=\"7\" r=\"5\"/></svg>the paper\u{2019}s number</span></p>\n";
