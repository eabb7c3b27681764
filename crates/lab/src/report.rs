//! Figures, their bounds, their medians over the runs, and how they are printed.

use std::collections::BTreeMap;
use std::process::ExitCode;

use anyhow::Result;
use serde::Serialize;

/// A figure that is measured.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Figure {
    pub(crate) scenario: &'static str,
    pub(crate) name: &'static str,
    pub(crate) unit: &'static str,
    /// The bound that the figure must not exceed, or fall below. None = it has no bound.
    pub(crate) must: Option<f64>,
    /// The value that the project aims at.
    pub(crate) aim: Option<f64>,
    /// Whether a greater value is better.
    pub(crate) is_rate: bool,
}

impl Figure {
    pub(crate) const fn new(scenario: &'static str, name: &'static str, unit: &'static str) -> Self {
        Figure { scenario, name, unit, must: None, aim: None, is_rate: false }
    }

    pub(crate) const fn bound(self, must: f64, aim: f64) -> Self {
        Figure { must: Some(must), aim: Some(aim), ..self }
    }

    /// The figure that each scenario has: nothing may be lost, doubled, out of order or closed.
    pub(crate) const fn exact(scenario: &'static str) -> Self {
        Figure::new(scenario, "lost, doubled, out of order, closed", "").bound(0.0, 0.0)
    }

    /// The same figure without its bound, unless `is_bound`.
    pub(crate) const fn only_if(self, is_bound: bool) -> Self {
        if is_bound { self } else { Figure { must: None, aim: None, ..self } }
    }

    pub(crate) const fn at_least(self, must: f64, aim: f64) -> Self {
        Figure { must: Some(must), aim: Some(aim), is_rate: true, ..self }
    }
}

/// The parts of a ratio: the medians of the measured value and of its floor, in this unit.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
struct RatioParts {
    measured: f64,
    floor: f64,
    parts_unit: &'static str,
}

/// A figure and its value in each run.
#[derive(Debug, Serialize)]
struct ReportLine {
    #[serde(flatten)]
    figure: Figure,
    median: f64,
    values: Vec<f64>,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    parts: Option<RatioParts>,
    #[serde(skip_serializing_if = "Option::is_none")]
    is_kept: Option<bool>,
}

/// The values of a figure.
#[derive(Debug)]
struct Readings {
    figure: Figure,
    values: Vec<f64>,
    /// For ratios: the measured values with their floors, and the unit.
    parts: Vec<(f64, f64)>,
    parts_unit: &'static str,
}

/// All figures of one invocation.
#[derive(Debug, Default)]
pub(crate) struct Results {
    readings: Vec<Readings>,
    /// Lines of a chart by name: the values of the runs for each place on the axis.
    lines: BTreeMap<String, BTreeMap<u32, Vec<f64>>>,
}

impl Results {
    /// Adds the value of one run to a figure.
    pub(crate) fn add(&mut self, figure: Figure, value: f64) {
        self.of(figure, "").values.push(value);
    }

    /// Adds the ratios of measured values to their floors; both are in `unit`.
    pub(crate) fn compare(&mut self, figure: Figure, unit: &'static str, pairs: &[(f64, f64)]) {
        let readings = self.of(figure, unit);
        readings.values.extend(pairs.iter().map(|(measured, floor)| measured / floor));
        readings.parts.extend(pairs);
    }

    /// Adds a point of one run to a line of a chart.
    pub(crate) fn point(&mut self, line: &str, x: u32, y: f64) {
        self.lines.entry(line.to_owned()).or_default().entry(x).or_default().push(y);
    }

    /// The lines of the chart, each with the medians of the runs.
    pub(crate) fn lines(&self) -> Vec<(String, Vec<(f64, f64)>)> {
        let points = |steps: &BTreeMap<u32, Vec<f64>>| steps.iter().map(|(x, y)| (f64::from(*x), median(y))).collect();
        self.lines.iter().map(|(name, steps)| (name.clone(), points(steps))).collect()
    }

    /// Appends all figures of other results.
    pub(crate) fn append(&mut self, others: Results) {
        for other in others.readings {
            let own = self.of(other.figure, other.parts_unit);
            own.values.extend(other.values);
            own.parts.extend(other.parts);
        }
    }

    fn of(&mut self, figure: Figure, parts_unit: &'static str) -> &mut Readings {
        let known = self.readings.iter().position(|readings| readings.figure == figure);
        let index = known.unwrap_or_else(|| {
            self.readings.push(Readings { figure, values: Vec::new(), parts: Vec::new(), parts_unit });
            self.readings.len() - 1
        });
        &mut self.readings[index]
    }

    /// Prints everything. The exit code says whether every bound was kept.
    pub(crate) fn print(&self, as_json: bool) -> Result<ExitCode> {
        let lines: Vec<ReportLine> = self.readings.iter().map(line).collect();
        if as_json {
            println!("{}", serde_json::to_string_pretty(&lines)?);
        } else {
            print_table(&lines);
        }
        let is_kept = lines.iter().all(|line| line.is_kept != Some(false));
        Ok(if is_kept { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

fn line(readings: &Readings) -> ReportLine {
    let Readings { figure, values, parts, parts_unit } = readings;
    let middle = median(values);
    // A count that must be zero must be zero in every run, so its worst run counts instead of the median.
    let judged = if figure.must == Some(0.0) { values.iter().copied().fold(0.0, f64::max) } else { middle };
    let median_of = |of: fn(&(f64, f64)) -> f64| median(&parts.iter().map(of).collect::<Vec<_>>());
    ReportLine {
        figure: *figure,
        median: middle,
        values: values.clone(),
        parts: (!parts.is_empty()).then(|| RatioParts {
            measured: median_of(|pair| pair.0),
            floor: median_of(|pair| pair.1),
            parts_unit,
        }),
        is_kept: figure.must.map(|must| if figure.is_rate { judged >= must } else { judged <= must }),
    }
}

pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => f64::NAN,
        length if length % 2 == 1 => sorted[middle],
        _ => f64::midpoint(sorted[middle - 1], sorted[middle]),
    }
}

fn print_table(lines: &[ReportLine]) {
    let (mut scenario, mut has_parts) = ("", false);
    for line in lines {
        if line.figure.scenario != scenario {
            (scenario, has_parts) = (line.figure.scenario, false);
            println!("\n{scenario}");
        }
        if line.parts.is_some() && !has_parts {
            has_parts = true;
            println!("  {:<66} {:>12} {:>12}  {:<22} bound", "", "measured", "floor", "ratio");
        }
        println!("{}", table_row(line));
    }
    println!();
}

/// One line of the table. A ratio also shows the measured value and its floor.
fn table_row(line: &ReportLine) -> String {
    let sign = if line.figure.is_rate { '≥' } else { '≤' };
    let verdict = match line.is_kept {
        Some(true) => "kept",
        Some(false) => "MISSED",
        None => "",
    };
    let low = line.values.iter().copied().fold(f64::INFINITY, f64::min);
    let high = line.values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let spread = format!("{} ({}–{}) {}", number(line.median), number(low), number(high), line.figure.unit);
    if let Some(RatioParts { measured, floor, parts_unit }) = line.parts {
        let bound = line.figure.must.map_or_else(String::new, |must| format!("{sign} {}", number(must)));
        let [measured, floor] = [measured, floor].map(|part| format!("{} {parts_unit}", number(part)));
        return format!("  {:<66} {measured:>12} {floor:>12}  {spread:<22} {bound:<9} {verdict}", line.figure.name);
    }
    let bound = match (line.figure.must, line.figure.aim) {
        (Some(must), Some(aim)) => format!("must {sign} {}, aim {sign} {}", number(must), number(aim)),
        _ => String::new(),
    };
    format!("  {:<52} {spread:<36} {bound:<28} {verdict}", line.figure.name)
}

/// Three significant digits are more than these figures deserve.
fn number(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        small if small < 1.0 => format!("{value:.3}"),
        small if small < 100.0 => format!("{value:.2}"),
        _ => format!("{value:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle() {
        assert!((median(&[3.0, 1.0, 2.0]) - 2.0).abs() < 1e-9);
        assert!((median(&[4.0, 1.0, 2.0, 3.0]) - 2.5).abs() < 1e-9);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn a_bound_is_kept_by_the_median() {
        let line = |figure, values: &[f64]| {
            super::line(&Readings { figure, values: values.to_vec(), parts: Vec::new(), parts_unit: "" })
        };
        let figure = Figure::new("s", "n", "µs").bound(2.0, 1.0);
        assert_eq!(line(figure, &[1.0, 2.0, 9.0]).is_kept, Some(true));
        assert_eq!(line(figure, &[1.0, 2.1, 9.0]).is_kept, Some(false));
        let never = Figure::new("s", "n", "").bound(0.0, 0.0);
        assert_eq!(line(never, &[0.0, 0.0, 1.0]).is_kept, Some(false));
        assert_eq!(line(Figure::new("s", "n", "µs"), &[1.0]).is_kept, None);
        let rate = Figure::new("s", "n", "/s").at_least(2.0, 3.0);
        assert_eq!([1.0, 2.0].map(|value| line(rate, &[value]).is_kept), [Some(false), Some(true)]);
    }

    #[test]
    fn a_ratio_is_the_median_of_its_pairs() {
        let figure = Figure::new("s", "n", "×").bound(2.0, 1.0);
        let (mut results, mut more) = (Results::default(), Results::default());
        results.compare(figure, "µs", &[(10.0, 10.0), (30.0, 10.0)]);
        more.compare(figure, "µs", &[(30.0, 20.0)]);
        results.append(more);
        let line = line(&results.readings[0]);
        assert_eq!((line.values, line.median, line.is_kept), (vec![1.0, 3.0, 1.5], 1.5, Some(true)));
        assert_eq!(line.parts, Some(RatioParts { measured: 30.0, floor: 10.0, parts_unit: "µs" }));
    }
}
