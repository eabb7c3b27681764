//! The named run: the figures that `./x bench --write` has measured.

use serde::Deserialize;

use touchline_house::files::root;

/// The contents of `docs/figures/run.json`.
#[derive(Debug, Deserialize)]
pub(super) struct FigureRun {
    commit: String,
    profile: String,
    machine: RunMachine,
    parts: Vec<MeasuredPart>,
}

#[derive(Debug, Deserialize)]
struct RunMachine {
    processor: String,
    processors: u32,
    memory_gib: u32,
    linux: String,
}

/// One invocation of `touchline-lab`.
#[derive(Debug, Deserialize)]
struct MeasuredPart {
    name: String,
    command: String,
    /// The day on which it ended, as `28 November 2026`.
    date: String,
    figures: Vec<RunFigure>,
}

#[derive(Debug, Clone, Deserialize)]
struct RunFigure {
    scenario: String,
    name: String,
    unit: String,
    must: Option<f64>,
    median: f64,
    low: f64,
    high: f64,
    /// For a ratio: the medians of the measured value and of its floor, in `parts_unit`.
    measured: Option<f64>,
    floor: Option<f64>,
    parts_unit: Option<String>,
    is_kept: Option<bool>,
}

impl FigureRun {
    pub(super) fn read() -> Self {
        let path = root().join("docs/figures/run.json");
        let text = std::fs::read_to_string(path).expect("./x bench --write writes it");
        serde_json::from_str(&text).expect("it is the JSON of a run")
    }

    /// The text for a placeholder: `PART: NAME`, `PART: SCENARIO: NAME`, `command: PART`, `date: PART`, `machine`,
    /// `commit` or `profile`. A name may be followed by ` @number` (without the unit), ` @range` (with the lowest and
    /// the highest run), ` @measured` or ` @floor`.
    ///
    /// # Errors
    /// If the run does not have it, or has it twice.
    pub(super) fn text(&self, placeholder: &str) -> Result<String, String> {
        match placeholder.split_once(": ") {
            None => self.about_run(placeholder),
            Some(("command", part)) => Ok(format!("`{}`", self.part(part)?.command)),
            Some(("date", part)) => Ok(self.part(part)?.date.clone()),
            Some((part, name)) => self.figure(part, name),
        }
    }

    fn about_run(&self, placeholder: &str) -> Result<String, String> {
        let RunMachine { processor, processors, memory_gib, linux } = &self.machine;
        match placeholder {
            "machine" => Ok(format!("{processor}, {processors} processors, {memory_gib} GiB of memory, Linux {linux}")),
            "commit" => Ok(format!("`{}`", self.commit)),
            "profile" => Ok(format!("`{}`", self.profile)),
            _ => Err(format!("{{{placeholder}}} is not a figure")),
        }
    }

    fn part(&self, name: &str) -> Result<&MeasuredPart, String> {
        self.parts.iter().find(|part| part.name == name).ok_or_else(|| format!("the run does not have the part {name}"))
    }

    fn figure(&self, part: &str, name: &str) -> Result<String, String> {
        let (name, form) = name.rsplit_once(" @").unwrap_or((name, ""));
        let is_it = |figure: &&RunFigure| figure.name == name || figure.full_name() == name;
        let mut found = self.part(part)?.figures.iter().filter(is_it);
        let figure = found.next().ok_or_else(|| format!("{part} does not have the figure {name}"))?;
        if found.next().is_some() {
            return Err(format!("{part} has several figures with the name {name}: add the scenario"));
        }
        figure.text(form).ok_or_else(|| format!("{part}: {name} does not have the form @{form}"))
    }

    /// The rows of a table with all figures of a part, or of one scenario of it.
    ///
    /// # Errors
    /// If the run does not have the part.
    pub(super) fn rows(&self, place: &str) -> Result<Vec<String>, String> {
        let (part, scenario) = place.split_once(": ").map_or((place, None), |(part, name)| (part, Some(name)));
        let figures = self.part(part)?.figures.iter();
        let rows: Vec<String> = figures
            .filter(|figure| scenario.is_none_or(|scenario| figure.scenario == scenario))
            .map(RunFigure::row)
            .collect();
        if rows.is_empty() { Err(format!("{part} does not have the scenario {scenario:?}")) } else { Ok(rows) }
    }
}

impl RunFigure {
    fn full_name(&self) -> String {
        format!("{}: {}", self.scenario, self.name)
    }

    fn text(&self, form: &str) -> Option<String> {
        let with_unit = |value: f64, unit: &str| format!("{} {unit}", number(value, unit)).trim_end().to_owned();
        let parts_unit = self.parts_unit.as_deref().unwrap_or_default();
        match form {
            "" => Some(with_unit(self.median, &self.unit)),
            "number" => Some(number(self.median, &self.unit)),
            "range" => Some(self.range()),
            "measured" => self.measured.map(|value| with_unit(value, parts_unit)),
            "floor" => self.floor.map(|value| with_unit(value, parts_unit)),
            _ => None,
        }
    }

    fn range(&self) -> String {
        let [median, low, high] = [self.median, self.low, self.high].map(|value| number(value, &self.unit));
        let unit = format!(" {}", self.unit);
        if low == high { median + unit.trim_end() } else { format!("{median} ({low}–{high}){}", unit.trim_end()) }
    }

    fn row(&self) -> String {
        let parts = match (self.measured, self.floor, &self.parts_unit) {
            (Some(measured), Some(floor), Some(unit)) => {
                format!("; {} and {} {unit}", number(measured, unit), number(floor, unit))
            }
            _ => String::new(),
        };
        let bound = match (self.must, self.is_kept) {
            (Some(must), Some(true)) => format!("{}, kept", number(must, &self.unit)),
            (Some(must), _) => format!("{}, **missed**", number(must, &self.unit)),
            (None, _) => String::new(),
        };
        format!("| {} | {}{parts} | {bound} |", self.name, self.range())
    }
}

/// Three significant digits, with separators of thousands. A count (a whole number without a unit) is exact.
fn number(value: f64, unit: &str) -> String {
    if value == 0.0 {
        return "0".into();
    }
    let magnitude = value.abs().log10().floor() as i32;
    let step = if unit.is_empty() && value.fract() == 0.0 { 1.0 } else { 10_f64.powi(magnitude - 2) };
    let decimals = if step < 1.0 { (2 - magnitude) as usize } else { 0 };
    let digits = format!("{:.decimals$}", (value / step).round() * step);
    let (whole, fraction) = digits.split_at(digits.find('.').unwrap_or(digits.len()));
    let mut text = String::new();
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text + fraction
}

/// A run with two scenarios, for tests.
#[cfg(test)]
pub(super) fn example() -> FigureRun {
    let text = r#"{"commit": "abc", "profile": "dist", "machine": {"processor": "P", "processors": 2, "memory_gib": 4,
        "linux": "6.18"}, "parts": [{"name": "steady", "command": "touchline-lab fanout", "date": "8 November 2026",
        "figures": [
        {"scenario": "a", "name": "cost", "unit": "µs", "median": 5.5, "low": 5.0, "high": 6.25, "must": 6.0,
         "is_kept": true},
        {"scenario": "a", "name": "rate", "unit": "/s", "median": 1534495.0, "low": 1.0, "high": 2.0},
        {"scenario": "b", "name": "rate", "unit": "/s", "median": 495.0, "low": 495.0, "high": 495.0, "runs": 1},
        {"scenario": "b", "name": "ratio", "unit": "×", "median": 0.9871, "low": 0.9, "high": 1.1, "runs": 3,
         "measured": 6.2, "floor": 6.3, "parts_unit": "µs", "must": 0.5, "is_kept": false}]}]}"#;
    serde_json::from_str(text).expect("it is the JSON of a run")
}

#[test]
fn numbers_have_three_digits_and_counts_are_exact() {
    let numbers = [0.0, 0.000_54, 0.994, 5.507, 51.21, 276.5, 4_032.0, 1_534_495.0].map(|value| number(value, "µs"));
    assert_eq!(numbers, ["0", "0.000540", "0.994", "5.51", "51.2", "277", "4,030", "1,530,000"]);
    assert_eq!([0.0, 11_250.0, 25.27].map(|value| number(value, "")), ["0", "11,250", "25.3"]);
}

#[test]
fn placeholders_become_the_figures_of_the_run() {
    let run = example();
    let text = |placeholder: &str| run.text(placeholder).expect("the run has it");
    assert_eq!(text("steady: cost"), "5.50 µs");
    assert_eq!(text("steady: cost @number"), "5.50");
    assert_eq!(text("steady: cost @range"), "5.50 (5.00–6.25) µs");
    assert_eq!(text("steady: a: rate"), "1,530,000 /s");
    assert_eq!(text("steady: b: rate @range"), "495 /s");
    assert_eq!(text("steady: ratio @floor"), "6.30 µs");
    assert_eq!([text("command: steady"), text("date: steady")], ["`touchline-lab fanout`", "8 November 2026"]);
    assert_eq!(text("machine"), "P, 2 processors, 4 GiB of memory, Linux 6.18");
    for wrong in ["steady: rate", "steady: costs", "fast: cost", "steady: cost @floor", "steady: cost @sum", "system"] {
        assert!(run.text(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn a_table_has_a_row_for_each_figure() {
    let run = example();
    assert_eq!(run.rows("steady").expect("it is there").len(), 4);
    assert_eq!(
        run.rows("steady: b").expect("it is there"),
        ["| rate | 495 /s |  |", "| ratio | 0.987 (0.900–1.10) ×; 6.20 and 6.30 µs | 0.500, **missed** |"]
    );
    assert!(run.rows("steady: c").is_err() && run.rows("fast").is_err());
}
