//! Each type has its own name, and each word of the glossary has its own type.

use std::collections::BTreeMap;

use touchline_house::files::{report, root, sources};

#[test]
fn a_type_name_means_one_thing() {
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (path, text) in sources() {
        let is_test = path.components().any(|part| part.as_os_str() == "tests") || path.ends_with("tests.rs");
        for name in product_lines(&text).filter(|_| !is_test).filter_map(defined_type) {
            places.entry(name.to_owned()).or_default().push(path.display().to_string());
        }
    }
    assert!(places.len() > 500, "types are found");
    let many = places.iter().filter(|(_, paths)| paths.len() > 1);
    report(
        "one name, several types",
        &many.map(|(name, paths)| format!("{name}: {}", paths.join(", "))).collect::<Vec<_>>(),
    );
}

/// The lines of a file before its module of tests.
pub(crate) fn product_lines(text: &str) -> impl Iterator<Item = &str> {
    let mut is_test_attribute = false;
    text.lines().take_while(move |line| {
        let is_module = is_test_attribute && line.starts_with("mod ") && line.ends_with('{');
        is_test_attribute = *line == "#[cfg(test)]";
        !is_module
    })
}

/// The type that a line of a file defines at its top level.
fn defined_type(line: &str) -> Option<&str> {
    let line = if line.starts_with("    pub struct ") { line.trim_start() } else { line };
    let rest = match line.strip_prefix("pub") {
        Some(rest) => rest.trim_start_matches("(crate)").trim_start_matches("(super)").trim_start(),
        None => line.trim_start_matches("unsafe "),
    };
    let rest = ["struct ", "enum ", "trait ", "type ", "union "].iter().find_map(|word| rest.strip_prefix(word))?;
    rest.split(|c: char| !c.is_alphanumeric() && c != '_').next()
}

#[test]
fn every_word_of_the_glossary_has_its_type() {
    let glossary = std::fs::read_to_string(root().join("docs/GLOSSARY.md")).expect("the glossary is there");
    let rows: Vec<Vec<&str>> = glossary
        .lines()
        .filter(|line| line.starts_with("| ") && line.contains('`'))
        .map(|line| line.split('|').map(|cell| cell.trim().trim_matches('`')).collect())
        .collect();
    assert!(rows.len() > 30, "rows are found");
    let mut broken = Vec::new();
    for row in rows {
        let [_, word, _, name, file, _] = row[..] else { panic!("{row:?}") };
        match std::fs::read_to_string(root().join("crates").join(file)) {
            Err(error) => broken.push(format!("{word}: {file}: {error}")),
            // A macro makes the types of names. There the name is alone on its line.
            Ok(text) if text.lines().all(|line| defined_type(line) != Some(name) && line.trim() != name) => {
                broken.push(format!("{word}: {file} does not define {name}"));
            }
            Ok(_) => {}
        }
    }
    report("the glossary", &broken);
}
