//! Charts: lines over two logarithmic axes, as SVG. Pure.

use std::fmt::Write as _;

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 80.0;
const RIGHT: f64 = 200.0;
const TOP: f64 = 44.0;
const BOTTOM: f64 = 52.0;
/// Colours that people with red-green blindness can distinguish (Okabe and Ito).
const COLOURS: [&str; 8] = ["#d55e00", "#0072b2", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#7f7f7f", "#000000"];

/// Lines, each with a name and its points.
pub(crate) struct Chart<'a> {
    pub(crate) title: &'a str,
    pub(crate) x: &'a str,
    pub(crate) y: &'a str,
    pub(crate) lines: Vec<(String, Vec<(f64, f64)>)>,
}

/// One axis: values from `low` to `high` over the pixels from `from` to `to`.
#[derive(Clone, Copy)]
struct Axis {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Axis {
    /// Around these values. Those that are not above zero have no place on it.
    fn around(values: impl Iterator<Item = f64>, from: f64, to: f64) -> Self {
        let (mut low, mut high) = (f64::INFINITY, 0.0f64);
        for value in values.filter(|value| *value > 0.0) {
            (low, high) = (low.min(value), high.max(value));
        }
        if low > high {
            (low, high) = (1.0, 10.0);
        }
        Axis { low: low / 1.1, high: high * 1.1, from, to }
    }

    fn place(self, value: f64) -> f64 {
        self.from + (self.to - self.from) * (value / self.low).ln() / (self.high / self.low).ln()
    }

    /// 1, 2 and 5 times the powers of ten.
    fn ticks(self) -> Vec<f64> {
        let decades = self.low.log10().floor() as i32..=self.high.log10().ceil() as i32;
        let ticks = decades.flat_map(|decade| [1.0, 2.0, 5.0].map(|step| step * 10f64.powi(decade)));
        ticks.filter(|tick| (self.low..=self.high).contains(tick)).collect()
    }
}

impl Chart<'_> {
    /// The chart as SVG text.
    pub(crate) fn svg(&self) -> String {
        let points = || self.lines.iter().flat_map(|(_, points)| points);
        let x = Axis::around(points().map(|point| point.0), LEFT, WIDTH - RIGHT);
        let y = Axis::around(points().map(|point| point.1), HEIGHT - BOTTOM, TOP);
        let mut svg = format!(r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img""#);
        let _ = write!(svg, r#" font-family="sans-serif" font-size="12"><title>{}</title>"#, escaped(self.title));
        svg.push_str(r##"<rect width="100%" height="100%" fill="#ffffff"/>"##);
        let mut text = |x: f64, y: f64, anchor: &str, text: &str| {
            let _ = write!(svg, r#"<text x="{x:.1}" y="{y:.1}" text-anchor="{anchor}">{}</text>"#, escaped(text));
        };
        text(LEFT, 20.0, "start", self.title);
        text(f64::midpoint(LEFT, WIDTH - RIGHT), HEIGHT - 12.0, "middle", self.x);
        text(LEFT, 36.0, "start", self.y);
        for tick in x.ticks() {
            text(x.place(tick), HEIGHT - BOTTOM + 18.0, "middle", &short(tick));
        }
        for tick in y.ticks() {
            text(LEFT - 8.0, y.place(tick) + 4.0, "end", &short(tick));
        }
        for (index, (name, _)) in self.lines.iter().enumerate() {
            text(WIDTH - RIGHT + 34.0, TOP + 20.0 * index as f64 + 4.0, "start", name);
        }
        for tick in y.ticks() {
            let at = y.place(tick);
            let _ = write!(svg, r##"<path d="M{LEFT} {at:.1}H{:.1}" stroke="#dddddd"/>"##, WIDTH - RIGHT);
        }
        for (index, (_, points)) in self.lines.iter().enumerate() {
            let colour = COLOURS[index % COLOURS.len()];
            let drawn = points.iter().filter(|(one, other)| *one > 0.0 && *other > 0.0);
            let line: Vec<String> =
                drawn.map(|(one, other)| format!("{:.1} {:.1}", x.place(*one), y.place(*other))).collect();
            let at = TOP + 20.0 * index as f64;
            let (line, from) = (line.join("L"), WIDTH - RIGHT + 4.0);
            let _ = write!(svg, r#"<path d="M{line}" fill="none" stroke="{colour}" stroke-width="2"/>"#);
            let _ = write!(svg, r#"<path d="M{from:.1} {at:.1}h24" stroke="{colour}" stroke-width="3"/>"#);
        }
        svg.push_str("</svg>\n");
        svg
    }
}

/// A number as axes show it.
fn short(value: f64) -> String {
    match value {
        large if large >= 1e6 => format!("{} M", large / 1e6),
        large if large >= 1e3 => format!("{} k", large / 1e3),
        small => format!("{}", (small * 1e6).round() / 1e6),
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_stand_in_the_order_of_their_values() {
        let axis = Axis::around([1_000.0, 1_000_000.0, 0.0].into_iter(), 0.0, 100.0);
        let places = [1_000.0, 10_000.0, 1_000_000.0].map(|value| axis.place(value));
        assert!(places.is_sorted() && places[0] > 0.0 && places[2] < 100.0, "{places:?}");
        assert_eq!(axis.ticks(), [1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 2e5, 5e5, 1e6]);
    }

    #[test]
    fn a_chart_without_points_and_one_with_signs_of_markup_are_whole() {
        let lines = vec![("a<b".to_owned(), Vec::new()), ("c".to_owned(), vec![(0.0, 1.0), (2.0, 3.0)])];
        let svg = Chart { title: "one & \"two\"", x: "x", y: "y", lines }.svg();
        assert!(svg.contains("a&lt;b") && svg.contains("one &amp; &quot;two&quot;") && svg.ends_with("</svg>\n"));
    }
}
