//! Figures, their bounds, their medians over the runs, and how they are printed.

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

    /// The same without a bound, unless the bound holds for what is measured.
    pub(crate) const fn only_if(self, is_bound: bool) -> Self {
        if is_bound { self } else { Figure { must: None, aim: None, ..self } }
    }

    pub(crate) const fn at_least(self, must: f64, aim: f64) -> Self {
        Figure { must: Some(must), aim: Some(aim), is_rate: true, ..self }
    }
}

/// A figure and what each run gave.
#[derive(Debug, Serialize)]
struct ReportLine {
    #[serde(flatten)]
    figure: Figure,
    median: f64,
    values: Vec<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    is_kept: Option<bool>,
}

/// All figures of one invocation.
#[derive(Debug, Default)]
pub(crate) struct Results {
    readings: Vec<(Figure, Vec<f64>)>,
}

impl Results {
    /// Adds the value that one run gave for a figure.
    pub(crate) fn add(&mut self, figure: Figure, value: f64) {
        match self.readings.iter_mut().find(|(known, _)| *known == figure) {
            Some((_, values)) => values.push(value),
            None => self.readings.push((figure, vec![value])),
        }
    }

    /// Prints everything. The exit code says whether every bound was kept.
    pub(crate) fn print(&self, as_json: bool) -> Result<ExitCode> {
        let lines: Vec<ReportLine> = self.readings.iter().map(|(figure, values)| line(*figure, values)).collect();
        if as_json {
            println!("{}", serde_json::to_string_pretty(&lines)?);
        } else {
            print_table(&lines);
        }
        let is_kept = lines.iter().all(|line| line.is_kept != Some(false));
        Ok(if is_kept { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

fn line(figure: Figure, values: &[f64]) -> ReportLine {
    let median = median(values);
    // A count that must be zero must be zero in every run, so its worst run counts instead of the median.
    let judged = if figure.must == Some(0.0) { values.iter().copied().fold(0.0, f64::max) } else { median };
    ReportLine {
        figure,
        median,
        values: values.to_vec(),
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
    let mut scenario = "";
    for line in lines {
        if line.figure.scenario != scenario {
            scenario = line.figure.scenario;
            println!("\n{scenario}");
        }
        let bound = match (line.figure.must, line.figure.aim) {
            (Some(must), Some(aim)) => {
                let sign = if line.figure.is_rate { '≥' } else { '≤' };
                format!("must {sign} {}, aim {sign} {}", number(must), number(aim))
            }
            _ => String::new(),
        };
        let verdict = match line.is_kept {
            Some(true) => "kept",
            Some(false) => "MISSED",
            None => "",
        };
        let low = line.values.iter().copied().fold(f64::INFINITY, f64::min);
        let high = line.values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let spread = format!("{} ({}–{}) {}", number(line.median), number(low), number(high), line.figure.unit);
        println!("  {:<52} {spread:<36} {bound:<28} {verdict}", line.figure.name);
    }
    println!();
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
        let figure = Figure::new("s", "n", "µs").bound(2.0, 1.0);
        assert_eq!(line(figure, &[1.0, 2.0, 9.0]).is_kept, Some(true));
        assert_eq!(line(figure, &[1.0, 2.1, 9.0]).is_kept, Some(false));
        let never = Figure::new("s", "n", "").bound(0.0, 0.0);
        assert_eq!(line(never, &[0.0, 0.0, 1.0]).is_kept, Some(false));
        assert_eq!(line(Figure::new("s", "n", "µs"), &[1.0]).is_kept, None);
        let rate = Figure::new("s", "n", "/s").at_least(2.0, 3.0);
        assert_eq!([1.0, 2.0].map(|value| line(rate, &[value]).is_kept), [Some(false), Some(true)]);
    }
}
