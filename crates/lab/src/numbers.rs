//! Numbers of the command line that a measurement can work with.

/// Minimum rate per second. At a lower rate even a short run would take days.
const RATE_MIN: f64 = 0.001;
/// The highest rate, a second.
const RATE_MAX: f64 = 1e9;
/// Maximum value of a count.
const COUNT_MAX: usize = 1_000_000_000;

/// Parses a rate per second. 0 stands for "as fast as possible" where the option says so.
///
/// # Errors
/// When it is not a number, negative, or out of range.
pub(crate) fn rate(text: &str) -> Result<f64, String> {
    let rate: f64 = text.parse().map_err(|_| "it is not a number".to_owned())?;
    if rate == 0.0 || (RATE_MIN..=RATE_MAX).contains(&rate) {
        return Ok(rate.abs());
    }
    Err(format!("expected 0, or a number from {RATE_MIN} to {RATE_MAX}"))
}

/// A count above zero.
///
/// # Errors
/// When it is not a number, or out of range.
pub(crate) fn at_least_one(text: &str) -> Result<usize, String> {
    let count: usize = text.parse().map_err(|_| "it is not a whole number".to_owned())?;
    if (1..=COUNT_MAX).contains(&count) { Ok(count) } else { Err(format!("expected a number from 1 to {COUNT_MAX}")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nothing_can_be_measured_with_is_refused() {
        for text in ["nan", "inf", "-inf", "-1", "1e-300", "1e300", "", "fast"] {
            assert!(rate(text).is_err(), "{text}");
        }
        assert_eq!((rate("0"), rate("0.5"), rate("1e6")), (Ok(0.0), Ok(0.5), Ok(1e6)));
        for text in ["0", "-1", "1.5", "99999999999", ""] {
            assert!(at_least_one(text).is_err(), "{text}");
        }
        assert_eq!(at_least_one("60"), Ok(60));
    }
}
