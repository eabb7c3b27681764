//! The names of metrics in the documentation.

use std::collections::BTreeSet;

use touchline_server::MetricDescription;

use super::{Mention, Page, judge, made_up, page, present_pages};
use touchline_house::files::{report, root};
use touchline_house::markdown::{parts, rows, words};

/// Names that look like metrics but are not, and former names of metrics.
const EXCEPTIONS: &[(&str, &str)] = &[
    ("touchline_publish", "a function of PostgreSQL"),
    ("touchline_token", "a function of an example"),
    ("touchline_0", "the beginning of the name of the package for Debian"),
    ("touchline_store_commit_microseconds_total", "a former name, in the changelog"),
    ("touchline_publish_seconds", "a former name, in the changelog"),
    ("touchline_store_commits_total", "a former name, in the changelog"),
    ("touchline_store_commit_seconds_total", "a former name, in the changelog"),
    ("touchline_store_letters_total", "a former name, in the changelog"),
    ("touchline_store_letters_expired_total", "a former name, in the changelog"),
    ("touchline_half_open", "a former name, in the changelog"),
    ("touchline_half_open_closed_total", "a former name, in the changelog"),
];

/// The names of a page that are written like metrics.
fn mentions(page: &Page) -> Vec<Mention> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut found = Vec::new();
    for part in parts(&page.text) {
        let names = words(&part.text, is_part).filter(|word| word.starts_with("touchline_"));
        found.extend(names.map(|name| Mention::new(page, &part, name)));
    }
    found
}

/// Whether a metric has this name, or exports a value under this name.
fn is_known(metrics: &[MetricDescription], name: &str) -> bool {
    let of_histogram = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
    let is_histogram = |metric: &MetricDescription| metric.kind == "histogram" && of_histogram == Some(&metric.name);
    metrics.iter().any(|metric| metric.name == name || is_histogram(metric))
}

/// Whether this is the Rust name of a crate.
fn is_crate(name: &str) -> bool {
    name.strip_prefix("touchline_").is_some_and(|name| root().join("crates").join(name).is_dir())
}

#[test]
fn every_metric_in_the_documentation_exists() {
    let metrics = touchline_server::metrics();
    let mentions: Vec<Mention> = present_pages().iter().flat_map(mentions).collect();
    assert!(mentions.len() > 80, "metrics are found: {}", mentions.len());
    judge("metrics that do not exist", &mentions, |name| is_known(&metrics, name) || is_crate(name), EXCEPTIONS);
}

#[test]
fn a_metric_that_does_not_exist_is_found() {
    let metrics = touchline_server::metrics();
    let unknown = |text: &str| mentions(&made_up(text)).iter().any(|mention| !is_known(&metrics, &mention.name));
    for text in [
        "`touchline_letters_total`",
        "```\ntouchline_connects 3\n```",
        "`touchline_errors_total{code}`, `touchline_errors{code}`",
        "`touchline_connections_bucket`",
    ] {
        assert!(unknown(text), "{text}");
    }
    for text in ["`touchline_errors_total{code}`", "`touchline_delivery_seconds_bucket`", "touchline-server"] {
        assert!(!unknown(text), "{text}");
    }
}

/// The rows of the tables of metrics: name, type, labels.
fn told(page: &Page) -> BTreeSet<[String; 3]> {
    let bare = |cell: Option<&str>| cell.unwrap_or_default().replace(['`', ' '], "");
    let rows = rows(&page.text);
    let of_metrics = rows.iter().filter(|row| row.head[0] == "metric");
    of_metrics.map(|row| [bare(row.cell("metric")), bare(row.cell("type")), bare(row.cell("labels"))]).collect()
}

#[test]
fn the_page_of_the_metrics_has_every_metric_and_no_other() {
    let metrics = touchline_server::metrics();
    let to_tell = metrics.into_iter().map(|metric| [metric.name, metric.kind, metric.labels.join(",")]).collect();
    let told = told(&page("docs/reference/metrics.md"));
    let differing = told.symmetric_difference(&to_tell);
    report("docs/reference/metrics.md against the code", &differing.map(|row| row.join(" ")).collect::<Vec<_>>());
}

#[test]
fn a_row_is_read_with_its_type_and_its_labels() {
    let page = made_up("| metric | type | labels | meaning |\n|---|---|---|---|\n| `a_b` | gauge | `c`, `d` | x |\n");
    assert_eq!(told(&page), BTreeSet::from([["a_b", "gauge", "c,d"].map(str::to_owned)]));
}
