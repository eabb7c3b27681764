//! A dependency that adds many crates has a reason in the decisions.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use touchline_house::files::{metadata, report, root};

/// The number of crates that a dependency may add without a reason.
const FREE: usize = 10;
const PAGE: &str = "docs/adr/0014-large-dependencies.md";

/// The graph of crates: each crate with the crates that it is linked with or built by.
type Graph<'m> = BTreeMap<&'m str, Vec<&'m str>>;

fn graph(metadata: &Value) -> Graph<'_> {
    let nodes = metadata["resolve"]["nodes"].as_array().expect("a list");
    nodes
        .iter()
        .map(|node| {
            let others = node["deps"].as_array().expect("a list").iter().filter(|other| {
                let kinds = other["dep_kinds"].as_array().expect("a list");
                kinds.iter().any(|kind| kind["kind"] != "dev")
            });
            (node["id"].as_str().expect("a text"), others.filter_map(|other| other["pkg"].as_str()).collect())
        })
        .collect()
}

/// All crates that one crate adds, without the crate itself.
fn brought<'m>(graph: &Graph<'m>, id: &'m str) -> BTreeSet<&'m str> {
    let (mut found, mut open) = (BTreeSet::new(), vec![id]);
    while let Some(next) = open.pop() {
        for other in graph.get(next).into_iter().flatten() {
            if found.insert(*other) {
                open.push(other);
            }
        }
    }
    found
}

#[test]
fn a_crate_that_brings_many_others_has_a_reason() {
    let metadata = metadata();
    let graph = graph(&metadata);
    let packages = metadata["packages"].as_array().expect("a list");
    let names: BTreeMap<&str, &str> =
        packages.iter().filter_map(|package| Some((package["id"].as_str()?, package["name"].as_str()?))).collect();
    let members: BTreeSet<&str> =
        metadata["workspace_members"].as_array().expect("a list").iter().filter_map(Value::as_str).collect();
    let direct = members.iter().flat_map(|member| &graph[member]).filter(|id| !members.contains(**id));
    let large: BTreeSet<&str> = direct.filter(|id| brought(&graph, id).len() > FREE).map(|id| names[id]).collect();
    assert!(large.contains("tokio"), "the graph is read");

    let page = std::fs::read_to_string(root().join(PAGE)).expect("the page is there");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let rows: BTreeSet<&str> = rows.collect();
    let mut broken: Vec<String> = large.difference(&rows).map(|name| format!("{name} has no row in {PAGE}")).collect();
    broken.extend(rows.difference(&large).map(|name| format!("{PAGE} has a row for {name}, which is not large")));
    report("crates that bring more than ten others", &broken);
}
