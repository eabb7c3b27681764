//! Converts OpenMetrics to the text format 0.0.4 of Prometheus, for scrapers that do not accept the newer format. There
//! the `HELP` and `TYPE` lines of a counter also have its `_total`, and units and the end mark are left out.

/// Returns the same metrics in the older format.
pub(crate) fn text_format(open_metrics: &str) -> String {
    let mut text = String::with_capacity(open_metrics.len());
    // The help of a metric comes before its type, and the type decides the metric's name in this format.
    let mut help = None;
    for line in open_metrics.lines() {
        if let Some(about) = line.strip_prefix("# HELP ") {
            help = about.split_once(' ');
        } else if let Some((family, kind)) = line.strip_prefix("# TYPE ").and_then(|about| about.split_once(' ')) {
            let total = if kind == "counter" { "_total" } else { "" };
            let kind = if kind == "unknown" { "untyped" } else { kind };
            if let Some((_, meaning)) = help.take() {
                text.push_str(&format!("# HELP {family}{total} {meaning}\n"));
            }
            text.push_str(&format!("# TYPE {family}{total} {kind}\n"));
        } else if !line.starts_with('#') {
            text.push_str(line);
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_named_in_full_and_nothing_else_changes() {
        let open = "# HELP x_seconds Time \\\"of\\\" x.\n# TYPE x_seconds histogram\n# UNIT x_seconds seconds\n\
                    x_seconds_sum 1.5\nx_seconds_count 2\nx_seconds_bucket{le=\"+Inf\"} 2\n\
                    # HELP y What y is.\n# TYPE y counter\n\
                    y_total{a=\"b\"} 3\n# TYPE z unknown\nz 1\n# EOF\n";
        let text = "# HELP x_seconds Time \\\"of\\\" x.\n# TYPE x_seconds histogram\nx_seconds_sum 1.5\n\
                    x_seconds_count 2\n\
                    x_seconds_bucket{le=\"+Inf\"} 2\n# HELP y_total What y is.\n# TYPE y_total counter\n\
                    y_total{a=\"b\"} 3\n# TYPE z untyped\nz 1\n";
        assert_eq!(text_format(open), text);
    }
}
