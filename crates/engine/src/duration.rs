//! Durations of the configuration: `"25s"`, `"1h30m"`, `"500ms"`, as Go and Centrifugo write them. A bare number means
//! seconds.
//!
//! It is written by hand because `humantime` and `jiff` also read what Go does not (`1 hour`), and do not read a bare
//! number.

use std::time::Duration;

/// The greatest number of digits that a number may have before its point, without leading zeros. The greatest such
/// number of days still fits into a [`Duration`].
pub const WHOLE_DIGITS: usize = 14;

/// Whole milliseconds of a duration; `u64::MAX` if they do not fit. Add them to a time with `saturating_add`.
pub fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Parses a sequence of decimal numbers with units (`d h m s ms us`), or a bare number of seconds. `None` = the text is
/// neither, or a number in it has more than [`WHOLE_DIGITS`] digits. A sum that is too large becomes [`Duration::MAX`].
pub fn parse(text: &str) -> Option<Duration> {
    if let Ok(seconds) = text.parse::<u32>() {
        return Some(Duration::from_secs(seconds.into()));
    }
    let mut rest = text;
    let mut total = Duration::ZERO;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let number = &rest[..digits];
        let whole = number.split_once('.').map_or(number, |(whole, _)| whole).trim_start_matches('0');
        if whole.len() > WHOLE_DIGITS {
            return None;
        }
        let number: f64 = number.parse().ok()?;
        rest = &rest[digits..];
        let letters = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
        let unit_seconds = match &rest[..letters] {
            "d" => 86_400.0,
            "h" => 3_600.0,
            "m" => 60.0,
            "s" => 1.0,
            "ms" => 1e-3,
            "us" | "µs" => 1e-6,
            _ => return None,
        };
        rest = &rest[letters..];
        total = total.saturating_add(Duration::try_from_secs_f64(number * unit_seconds).ok()?);
    }
    (!text.is_empty()).then_some(total)
}

/// Writes a duration in the largest unit of which it is a whole number greater than one.
pub fn show(duration: Duration) -> String {
    let micros = duration.as_micros();
    let units = [(3_600_000_000, "h"), (60_000_000, "m"), (1_000_000, "s"), (1_000, "ms")];
    let whole = |(size, unit): &(u128, &str)| micros.is_multiple_of(*size) && (micros > *size || *unit == "s");
    match units.into_iter().filter(|_| micros > 0).find(whole) {
        Some((size, unit)) => format!("{}{unit}", micros / size),
        None if micros == 0 => "0s".to_owned(),
        None => format!("{micros}us"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_without_end_stays_one() {
        assert_eq!(
            [millis(Duration::ZERO), millis(Duration::from_secs(2)), millis(Duration::MAX)],
            [0, 2_000, u64::MAX]
        );
    }

    #[test]
    fn durations_are_read_as_go_writes_them() {
        let cases = [
            ("25s", Some(Duration::from_secs(25))),
            ("1h30m", Some(Duration::from_secs(5_400))),
            ("500ms", Some(Duration::from_millis(500))),
            ("2d", Some(Duration::from_secs(172_800))),
            ("5us", Some(Duration::from_micros(5))),
            ("5µs", Some(Duration::from_micros(5))),
            ("0.5s", Some(Duration::from_millis(500))),
            ("720h0m0s", Some(Duration::from_secs(720 * 3_600))),
            ("0", Some(Duration::ZERO)),
            ("10", Some(Duration::from_secs(10))),
            ("10000000000000d", Some(Duration::from_secs(10_000_000_000_000 * 86_400))),
            ("0010000000000000d", Some(Duration::from_secs(10_000_000_000_000 * 86_400))),
            ("100000000000000us", None),
            ("99999999999999d99999999999999d99999999999999d", Some(Duration::MAX)),
            ("1h.5m", Some(Duration::from_secs(3_630))),
            ("1h.", None),
            ("", None),
            ("s", None),
            ("5 apples", None),
            ("-1s", None),
        ];
        for (text, expected) in cases {
            assert_eq!(parse(text), expected, "{text:?}");
        }
    }

    #[test]
    fn a_duration_is_written_as_it_is_read() {
        for text in ["0s", "5us", "500ms", "1500ms", "60s", "75s", "5m", "168h", "720h"] {
            assert_eq!(parse(text).map(show).as_deref(), Some(text));
        }
    }
}
