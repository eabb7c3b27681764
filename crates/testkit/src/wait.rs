//! Waits for conditions. A test reads counters, lists and logs only by these functions: the server may be slower than
//! the test.

use std::fmt::{Debug, Display};
use std::time::{Duration, Instant};

/// The longest time of one step of any test. It is longer than any pause of a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// The time between two checks of a condition.
const INTERVAL: Duration = Duration::from_millis(5);

/// Waits until a condition is true.
#[track_caller]
pub fn until(what: impl Display, condition: impl FnMut() -> bool) {
    assert!(comes(PATIENCE, condition), "waited too long until {what}");
}

/// Waits until a function returns a value.
#[track_caller]
pub fn until_some<T>(what: impl Display, mut value: impl FnMut() -> Option<T>) -> T {
    let mut found = None;
    until(what, || {
        found = value();
        found.is_some()
    });
    found.expect("the condition is true")
}

/// Waits until a function returns the expected value.
#[track_caller]
pub fn until_eq<T: PartialEq + Debug>(expected: T, mut value: impl FnMut() -> T) {
    let mut last = value();
    let is_equal = comes(PATIENCE, || {
        let is_equal = last == expected;
        if !is_equal {
            last = value();
        }
        is_equal
    });
    assert!(is_equal, "waited too long for {expected:?}: the last value is {last:?}");
}

/// Waits for a condition for at most some time. Returns whether it became true.
pub fn comes(within: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + within;
    while !condition() {
        if Instant::now() > end {
            return false;
        }
        // waits: between two checks of a condition.
        std::thread::sleep(INTERVAL);
    }
    true
}
