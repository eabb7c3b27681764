//! Computes the audience of a channel over time from rows for each minute and part. The module is pure.

use crate::sketch::Sketch;

/// A row of an audience: one minute, as one part of the cluster counted it.
#[derive(Debug, Clone)]
pub(super) struct Seen {
    pub(super) minute: u64,
    pub(super) current: u64,
    pub(super) peak: u64,
    pub(super) users: Sketch,
}

/// The audience of a channel over time.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Curve {
    /// The steps with at least one row, in order of time.
    pub points: Vec<Point>,
    /// The maximum number of simultaneous subscribers.
    pub peak: u64,
    /// The number of different users in the whole time.
    pub users: u64,
}

/// The audience within one step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Point {
    /// When the step begins, Unix seconds.
    pub time_s: u64,
    /// The number of subscribers at the end of the step's last minute.
    pub current: u64,
    /// The maximum number of simultaneous subscribers. With several nodes it is the sum of their maxima, which may be
    /// of different moments.
    pub peak: u64,
    /// The number of different users.
    pub users: u64,
}

/// Computes the curve. The rows must be in the order of their minutes.
pub(super) fn draw(rows: impl IntoIterator<Item = Seen>, step_s: u64) -> Curve {
    let mut curve = Curve::default();
    let (mut all, mut of_step) = (Sketch::default(), Sketch::default());
    let (mut of_minute, mut last_minute) = (0, u64::MAX);
    for row in rows {
        let time_s = row.minute * 60 / step_s * step_s;
        if curve.points.last().is_none_or(|point| point.time_s != time_s) {
            of_step = Sketch::default();
            curve.points.push(Point { time_s, current: 0, peak: 0, users: 0 });
        }
        let Some(point) = curve.points.last_mut() else { continue };
        if last_minute != row.minute {
            (point.current, of_minute, last_minute) = (0, 0, row.minute);
        }
        of_step.unite(&row.users);
        all.unite(&row.users);
        of_minute += row.peak;
        point.current += row.current;
        point.peak = point.peak.max(of_minute);
        point.users = of_step.count();
        curve.peak = curve.peak.max(point.peak);
    }
    curve.users = all.count();
    curve
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sketch::hash;

    fn seen(minute: u64, current: u64, peak: u64, users: &[&str]) -> Seen {
        let mut sketch = Sketch::default();
        users.iter().for_each(|user| sketch.add(hash(user.as_bytes())));
        Seen { minute, current, peak, users: sketch }
    }

    fn point((time_s, current, peak, users): (u64, u64, u64, u64)) -> Point {
        Point { time_s, current, peak, users }
    }

    #[test]
    fn parts_of_a_minute_are_added_and_minutes_of_a_step_are_not() {
        let rows =
            [seen(10, 2, 3, &["a", "b"]), seen(10, 1, 1, &["b"]), seen(11, 5, 6, &["c"]), seen(13, 0, 1, &["a"])];
        let by_minute = draw(rows.clone(), 60);
        assert_eq!(by_minute.points, [(600, 3, 4, 2), (660, 5, 6, 1), (780, 0, 1, 1)].map(point));
        assert_eq!((by_minute.peak, by_minute.users), (6, 3));
        let by_two = draw(rows.clone(), 120);
        assert_eq!(by_two.points, [(600, 5, 6, 3), (720, 0, 1, 1)].map(point));
        assert_eq!(draw(rows, 3_600).points, [(0, 0, 6, 3)].map(point));
        assert_eq!(draw([], 60), Curve::default());
    }
}
