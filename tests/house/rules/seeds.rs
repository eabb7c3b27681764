//! The same seed gives the same run. In pure code a hash map takes its hasher as an argument, and only tests use a
//! known seed.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::directions::graphs;
use crate::names::product_lines;
use touchline_house::files::{report, root, sources};

/// Folders and files in which nothing may depend on the process: the pure crates, and the parts of `cluster` that the
/// simulators run.
const PURE: &[&str] = &[
    "protocol/src",
    "registry/src",
    "engine/src",
    "cluster/src/incarnation.rs",
    "cluster/src/marks.rs",
    "cluster/src/members.rs",
    "cluster/src/pieces.rs",
    "cluster/src/reading.rs",
    "cluster/src/storing.rs",
    "cluster/src/tests",
];
/// Hash maps, and the number of types before the type of the hasher.
const MAPS: &[(&str, usize)] = &[("HashMap", 2), ("IndexMap", 2), ("HashSet", 1), ("IndexSet", 1)];
/// Hashers that differ from process to process. The seed must be an argument instead.
const RANDOM: &[&str] = &["RandomState", "DefaultHashBuilder"];
/// The file that makes seeds.
const MAKER: &str = "registry/src/hash_seed.rs";
/// The files that may make a seed from random numbers.
const SEEDERS: &[&str] = &["server/src/runtime/random.rs", "lab/src/registry_node.rs"];
/// Functions that make known seeds.
const KNOWN: &[&str] = &[
    "HashSeed::repeatable",
    // With another name for the type, the rule would not find the argument.
    "HashSeed as",
    "<HashSeed>",
    "BuildHasherDefault",
    "DefaultHasher",
    "FixedState",
    "SharedSeed",
    "SeedableRandomState",
    "SipHasher",
    "SipHasher13",
    "SipHasher24",
];

/// The code of a text, without comments.
fn code_of<'a>(lines: impl Iterator<Item = &'a str>) -> String {
    lines.map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n")
}

/// The places of a word in a text, as a whole word.
fn places<'t>(code: &'t str, word: &'t str) -> impl Iterator<Item = usize> + 't {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    code.match_indices(word)
        .map(|(at, _)| at)
        .filter(move |at| !code[..*at].ends_with(is_part) && !code[at + word.len()..].starts_with(is_part))
}

/// The parts between an opening bracket, which begins the text, and its closing bracket. Commas separate the parts.
fn arguments(text: &str) -> Vec<&str> {
    let (mut depth, mut start, mut parts) = (0, 1, Vec::new());
    for (at, c) in text.char_indices() {
        match c {
            '(' | '[' | '{' | '<' => depth += 1,
            // The `>` of an arrow closes nothing.
            '>' if text[..at].ends_with(['-', '=']) => {}
            ')' | ']' | '}' | '>' => depth -= 1,
            ',' if depth == 1 => {
                parts.push(text[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
        if depth == 0 {
            parts.push(text[start.min(at)..at].trim());
            break;
        }
    }
    parts.retain(|part| !part.is_empty());
    parts
}

/// The parts of pure code that depend on the process.
fn unseeded(code: &str) -> Vec<String> {
    let mut broken: Vec<String> =
        RANDOM.iter().filter(|word| places(code, word).next().is_some()).map(|word| (*word).to_owned()).collect();
    for (map, types) in MAPS {
        for at in places(code, map) {
            let rest = &code[at + map.len()..];
            let call = rest.strip_prefix("::");
            let generics = call.unwrap_or(rest);
            let is_seeded = match generics.strip_prefix('<') {
                // An inferred hasher can be any hasher.
                Some(_) => arguments(generics).get(*types).is_some_and(|hasher| *hasher != "_"),
                None => call.is_none_or(|call| {
                    call.starts_with("with_hasher(") || call.starts_with("with_capacity_and_hasher(")
                }),
            };
            // Another name would hide the type.
            if !is_seeded || rest.starts_with(" as ") {
                broken.push(format!("{map}{}", rest.lines().next().unwrap_or_default()));
            }
        }
    }
    broken
}

/// The parts of product code that use a seed that others may know.
fn known_seeds(code: &str) -> Vec<String> {
    let mut broken: Vec<String> =
        KNOWN.iter().filter(|word| places(code, word).next().is_some()).map(|word| (*word).to_owned()).collect();
    for at in places(code, "HashSeed::new") {
        let call = &code[at + "HashSeed::new".len()..];
        if !call.starts_with('(') {
            broken.push("HashSeed::new, given to another function".to_owned());
            continue;
        }
        let taken = arguments(call);
        let mut words = taken.iter().flat_map(|text| text.split(|c: char| !c.is_alphanumeric() && c != '_'));
        // The argument is a number or the name of a constant.
        let is_constant = |word: &str| {
            word.starts_with(|c: char| c.is_ascii_digit())
                || word.len() > 1 && word.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')
        };
        broken.extend(words.find(|word| is_constant(word)).map(|word| format!("HashSeed::new of {word}")));
    }
    broken
}

#[test]
fn a_hash_map_of_pure_code_takes_its_hasher() {
    let mut broken = Vec::new();
    let crates = root().join("crates");
    PURE.iter().for_each(|place| assert!(crates.join(place).exists(), "{place} is not there"));
    for (path, text) in sources() {
        if PURE.iter().any(|place| path.starts_with(crates.join(place))) {
            broken
                .extend(unseeded(&code_of(text.lines())).into_iter().map(|what| format!("{}: {what}", path.display())));
        }
    }
    report("depends on the process", &broken);
}

#[test]
fn no_node_has_a_seed_that_is_known() {
    let graphs = graphs();
    let product: BTreeSet<&Path> = graphs.iter().flat_map(|(_, graph)| graph.files().map(|(file, _)| file)).collect();
    let maker: PathBuf = root().join("crates").join(MAKER);
    assert!(product.contains(maker.as_path()) && product.len() > 200, "the files are found: {}", product.len());
    let mut broken = Vec::new();
    for (path, text) in sources() {
        if product.contains(path.as_path()) && path != maker {
            let code = code_of(product_lines(&text));
            let is_seeder = SEEDERS.iter().any(|seeder| path.ends_with(seeder));
            if !is_seeder && places(&code, "HashSeed::new").next().is_some() {
                broken.push(format!("{}: makes a seed", path.display()));
            }
            let found = known_seeds(&code);
            broken.extend(found.into_iter().map(|what| format!("{}: {what}", path.display())));
        }
    }
    report("a known seed", &broken);
}

#[test]
fn maps_without_a_hasher_are_found() {
    let refused = [
        "let map = HashMap::new();",
        "let map: HashMap<u32, Vec<(u8, u8)>> = names.collect();",
        "struct Table { by_name: IndexMap<Box<str>, fn(u8, u8) -> u8> }",
        "let set = HashSet::from([1, 2]);",
        "let set: IndexSet<\n    (u8, u8),\n> = seen;",
        "let map = HashMap::<u8, u8>::default();",
        "let map = HashMap::with_capacity(8);",
        "let map: HashMap<u8, u8, _> = [(1, 2)].into();",
        "use std::collections::HashMap as Map;",
        "let state = RandomState::new();",
        "use hashbrown::{DefaultHashBuilder, HashTable};",
    ];
    for text in refused {
        assert_eq!(unseeded(&code_of(text.lines())).len(), 1, "{text}");
    }
    let allowed = [
        "use hashbrown::{HashMap, HashTable};",
        "let map = HashMap::with_hasher(seed.fold());",
        "let map = IndexMap::with_capacity_and_hasher(8, hasher);",
        "results: HashMap<Arc<Keyed>, Option<(u8, u8)>, FoldState>,",
        "let set: HashSet<(u8, u8), SipState> = new(seed);",
        "let mut map = BTreeMap::new(); // A HashMap::new() would not do.",
        "struct MyHashMapper; MyHashMapper::new();",
    ];
    for text in allowed {
        assert_eq!(unseeded(&code_of(text.lines())), Vec::<String>::new(), "{text}");
    }
}

#[test]
fn seeds_that_are_known_are_found() {
    let refused = [
        "let seed = HashSeed::repeatable(random);",
        "let seed = HashSeed::new([1, 2, 3, 4]);",
        "let seed = HashSeed::new([0; 4]);",
        "let seed = HashSeed::new(\n    SEED_OF_ALL,\n);",
        "let seed = [[7; 4]].map(HashSeed::new);",
        "use touchline_registry::HashSeed as Seed;",
        "let map: HashMap<u8, u8, BuildHasherDefault<Fast>> = HashMap::default();",
        "let state = FixedState::with_seed(random);",
        "let hasher = SipHasher13::new_with_keys(0, 0);",
    ];
    for text in refused {
        let code = code_of(product_lines(text));
        assert_eq!(known_seeds(&code).len(), 1, "{text}");
    }
    let allowed = [
        "let seed = HashSeed::new(numbers.map(u64::from_ne_bytes));",
        "let seed = HashSeed::new(std::array::from_fn(|number| random.hash_one(number)));",
        "// HashSeed::repeatable(7) is for tests.",
        "fn product() {}\n#[cfg(test)]\nmod tests {\n    const SEED: HashSeed = HashSeed::repeatable(7);\n}",
    ];
    for text in allowed {
        assert_eq!(known_seeds(&code_of(product_lines(text))), Vec::<String>::new(), "{text}");
    }
}
