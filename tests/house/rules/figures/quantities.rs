//! Numbers with a unit in a text.

use std::sync::LazyLock;

use regex::Regex;

/// A number with a unit, in the base unit of its kind. Equal quantities are equal whatever their units: 1 s = 1,000 ms.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Quantity {
    kind: QuantityKind,
    /// Nine significant digits of the value, for comparisons.
    value: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum QuantityKind {
    /// A time, in seconds.
    Time,
    /// A size, in bytes.
    Size,
    /// A rate: how often in a second.
    Rate,
    /// A ratio of a measured value to another one.
    Ratio,
    /// A part, in hundredths.
    Percent,
}

/// The units, with their kinds and their sizes in the base unit.
const UNITS: [(&str, QuantityKind, f64); 26] = [
    ("milliseconds", QuantityKind::Time, 1e-3),
    ("microseconds", QuantityKind::Time, 1e-6),
    ("percent", QuantityKind::Percent, 1.0),
    ("seconds", QuantityKind::Time, 1.0),
    ("second", QuantityKind::Time, 1.0),
    ("minutes", QuantityKind::Time, 60.0),
    ("minute", QuantityKind::Time, 60.0),
    ("hours", QuantityKind::Time, 3_600.0),
    ("hour", QuantityKind::Time, 3_600.0),
    ("bytes", QuantityKind::Size, 1.0),
    ("byte", QuantityKind::Size, 1.0),
    ("min", QuantityKind::Time, 60.0),
    ("KiB", QuantityKind::Size, 1_024.0),
    ("MiB", QuantityKind::Size, 1_048_576.0),
    ("GiB", QuantityKind::Size, 1_073_741_824.0),
    ("ns", QuantityKind::Time, 1e-9),
    ("µs", QuantityKind::Time, 1e-6),
    ("ms", QuantityKind::Time, 1e-3),
    ("KB", QuantityKind::Size, 1e3),
    ("MB", QuantityKind::Size, 1e6),
    ("GB", QuantityKind::Size, 1e9),
    ("/s", QuantityKind::Rate, 1.0),
    ("s", QuantityKind::Time, 1.0),
    ("h", QuantityKind::Time, 3_600.0),
    ("B", QuantityKind::Size, 1.0),
    ("%", QuantityKind::Percent, 1.0),
];

const NUMBER: &str = r"\d+(?:,\d{3})*(?:\.\d+)?";

/// A number, perhaps with the other end of its range before it, and a unit.
static WITH_UNIT: LazyLock<Regex> = LazyLock::new(|| {
    let units: Vec<&str> = UNITS.iter().map(|(unit, ..)| *unit).collect();
    let units = units.join("|");
    Regex::new(&format!(r"(?:^|[^\w.`-])(?:({NUMBER})(?:–|-| to | and |, | or ))?({NUMBER})\s?({units})(?:\W|$)"))
        .expect("it is a valid expression")
});

/// A number of something in each second.
static A_SECOND: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(&format!(r"(?:^|[^\w.`-])({NUMBER}) (?:[a-z]+ ){{0,4}}(?:a|per|each) second"))
        .expect("it is a valid expression")
});

/// How many times a value is another one: a number and a sign that does not stand between two factors.
static TIMES: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(&format!(
        r"(?:^|[^\w.`-])({NUMBER})(?: \({NUMBER}–{NUMBER}\))? ×(?: floor\b|\W{{0,3}}$|\W{{0,3}}[a-z(|])"
    ))
    .expect("it is a valid expression")
});

/// A number, whatever follows.
static BARE: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(&format!(r"(?:^|[^\w.-])({NUMBER})(?:\W|$)")).expect("it is a valid expression"));

fn parsed(number: &str) -> f64 {
    number.replace(',', "").parse().expect("the expression matches numbers only")
}

fn quantity(kind: QuantityKind, value: f64) -> Quantity {
    Quantity { kind, value: format!("{value:.8e}") }
}

/// The quantities of a line or of a page, each with its words.
pub(super) fn quantities(text: &str) -> Vec<(String, Quantity)> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(captures) = WITH_UNIT.captures_at(text, at) {
        let unit = captures.get(3).expect("a unit matched");
        let (_, kind, size) = UNITS.iter().find(|(name, ..)| *name == unit.as_str()).expect("it is one of the units");
        for number in [captures.get(1), captures.get(2)].into_iter().flatten() {
            let words = format!("{} {}", number.as_str(), unit.as_str());
            found.push((words, quantity(*kind, parsed(number.as_str()) * size)));
        }
        // The character behind the unit may begin the next match.
        at = unit.end();
    }
    for captures in A_SECOND.captures_iter(text) {
        found.push((captures[0].trim().to_owned(), quantity(QuantityKind::Rate, parsed(&captures[1]))));
    }
    for captures in TIMES.captures_iter(text) {
        found.push((format!("{} ×", &captures[1]), quantity(QuantityKind::Ratio, parsed(&captures[1]))));
    }
    found
}

/// The numbers of a text, each as a size in bytes and as a rate.
pub(super) fn bare_numbers(text: &str) -> Vec<Quantity> {
    let numbers = BARE.captures_iter(text).map(|captures| parsed(&captures[1]));
    numbers.flat_map(|value| [QuantityKind::Size, QuantityKind::Rate].map(|kind| quantity(kind, value))).collect()
}

#[test]
fn numbers_with_a_unit_are_found() {
    let words = |text: &str| quantities(text).into_iter().map(|(words, _)| words).collect::<Vec<_>>();
    assert_eq!(words("p99 was 5.2 ms, 1,320 B and 10 s."), ["5.2 ms", "1,320 B", "10 s"]);
    assert_eq!(words("1,000, or 256 KiB"), ["256 KiB"]);
    assert_eq!(words("6-13 ms, 4 microseconds"), ["6 ms", "13 ms", "4 microseconds"]);
    assert_eq!(words("6–13 ms (17.2 to 13.6 µs)"), ["6 ms", "13 ms", "17.2 µs", "13.6 µs"]);
    assert_eq!(words("| 495 B | 83,000 /s | 25s"), ["495 B", "83,000 /s", "25 s"]);
    assert_eq!(words("It registers 83,000 names a second"), ["83,000 names a second"]);
    assert_eq!(words("1.06 × floor, 0.98 (0.90–1.17) × |"), ["1.06 ×", "0.98 ×"]);
    assert_eq!(words("5,000 subscribers × 60 events, code 3500, version 1.5, 10 nodes, `5 s`"), [""; 0]);
}

#[test]
fn equal_quantities_are_equal_in_all_units() {
    let one = |text: &str| quantities(text).remove(0).1;
    assert_eq!(one("1 s"), one("1,000 ms"));
    assert_eq!(one("64 KiB"), one("65,536 bytes"));
    assert_ne!(one("64 KiB"), one("64 KB"));
    assert_ne!(one("1 s"), one("1 /s"));
    assert_eq!(bare_numbers("or 65,536 of"), [one("64 KiB"), one("65536 /s")]);
}
