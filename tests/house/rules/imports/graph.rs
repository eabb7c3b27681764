//! The files of a crate, the arrows (imports) between them, and the circles that arrows make.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::parser::{ParsedFile, WrittenPath, parse};

/// The most imports of imports that the search follows.
const ALIAS_DEPTH_MAX: usize = 8;

/// A file that imports from another file of its crate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Arrow {
    /// The file that imports.
    pub(crate) from: PathBuf,
    /// The file that it imports from.
    pub(crate) to: PathBuf,
    /// The first line in `from` with the import, counted from 1.
    pub(crate) line: usize,
    /// The path as it is written there.
    pub(crate) written: String,
}

/// The files of a crate that its root reaches by `mod`, without files of tests.
pub(crate) struct FileGraph {
    /// The file of each module, by its path in the crate. The path of the root is empty.
    modules: BTreeMap<Vec<String>, PathBuf>,
    files: BTreeMap<PathBuf, (Vec<String>, ParsedFile)>,
    /// Declared modules whose file was not found.
    missing: Vec<String>,
}

impl FileGraph {
    /// Reads a crate, starting at its root file. `sources` contains the text of each file.
    pub(crate) fn read(root: &Path, sources: &BTreeMap<PathBuf, String>) -> Self {
        let mut graph = FileGraph { modules: BTreeMap::new(), files: BTreeMap::new(), missing: Vec::new() };
        graph.add(Vec::new(), root.to_owned(), sources);
        graph
    }

    fn add(&mut self, module: Vec<String>, file: PathBuf, sources: &BTreeMap<PathBuf, String>) {
        let Some(text) = sources.get(&file) else { return };
        let parsed = parse(text);
        let folder = folder_of(&file);
        for child in &parsed.modules {
            let place = child.iter().fold(folder.clone(), |place, name| place.join(name));
            let files = [place.with_extension("rs"), place.join("mod.rs")];
            match files.into_iter().find(|file| sources.contains_key(file)) {
                Some(found) => self.add([&module[..], child].concat(), found, sources),
                None => self.missing.push(format!("{}: mod {}", file.display(), child.join("::"))),
            }
        }
        for inline in &parsed.inline_modules {
            self.modules.insert([&module[..], inline].concat(), file.clone());
        }
        self.modules.insert(module.clone(), file.clone());
        self.files.insert(file, (module, parsed));
    }

    /// The declared modules whose file was not found, each with the file that declares it.
    pub(crate) fn missing(&self) -> &[String] {
        &self.missing
    }

    /// Each file with the path of its module.
    pub(crate) fn files(&self) -> impl Iterator<Item = (&Path, &[String])> {
        self.files.iter().map(|(file, (module, _))| (file.as_path(), &module[..]))
    }

    /// All arrows: one for each pair of files.
    pub(crate) fn arrows(&self) -> Vec<Arrow> {
        let mut arrows: BTreeMap<(PathBuf, PathBuf), Arrow> = BTreeMap::new();
        for (from, (module, parsed)) in &self.files {
            for path in &parsed.paths {
                for target in self.targets(module, parsed, path, 0) {
                    let to = self.file_of(&target);
                    if to != from {
                        let (line, written) = (path.line, path.parts.join("::"));
                        let arrow = Arrow { from: from.clone(), to: to.to_owned(), line, written };
                        arrows.entry((from.clone(), to.to_owned())).or_insert(arrow);
                    }
                }
            }
        }
        arrows.into_values().collect()
    }

    /// The file of the innermost module of a path.
    fn file_of(&self, path: &[String]) -> &Path {
        let lengths = (0..=path.len()).rev();
        lengths.filter_map(|length| self.modules.get(&path[..length])).next().map_or(Path::new(""), PathBuf::as_path)
    }

    /// The possible meanings of a path, as paths from the root. Empty for items of other crates.
    fn targets(&self, module: &[String], parsed: &ParsedFile, path: &WrittenPath, depth: usize) -> Vec<Vec<String>> {
        let mut base = [module, &path.inside[..]].concat();
        let mut parts = &path.parts[..];
        match parts.first().map(String::as_str) {
            Some("crate") => {
                base.clear();
                parts = &parts[1..];
            }
            Some("self" | "super") => {}
            Some(first) => return self.names(module, parsed, path, first, depth),
            None => return Vec::new(),
        }
        while let Some(part @ ("self" | "super")) = parts.first().map(String::as_str) {
            if part == "super" {
                base.pop();
            }
            parts = &parts[1..];
        }
        vec![[&base[..], parts].concat()]
    }

    /// The possible meanings of a path that begins with a name in scope: a child module or an import.
    fn names(
        &self,
        module: &[String],
        parsed: &ParsedFile,
        path: &WrittenPath,
        first: &str,
        depth: usize,
    ) -> Vec<Vec<String>> {
        let scope = [module, &path.inside[..]].concat();
        let child = [&scope[..], &path.parts].concat();
        if self.modules.contains_key(&child[..=scope.len()]) {
            return vec![child];
        }
        // In an import that is written as this path, the name is the name of another crate.
        let imports = parsed.paths.iter().filter(|import| {
            import.alias.as_deref() == Some(first)
                && import.inside == path.inside
                && *import != path
                && import.parts.first().is_some_and(|of_import| of_import != first)
        });
        let imports = imports.filter(|_| depth < ALIAS_DEPTH_MAX);
        let targets = imports.flat_map(|import| self.targets(module, parsed, import, depth + 1));
        targets.map(|target| [&target[..], &path.parts[1..]].concat()).collect()
    }

    /// The circles. Each circle consists of the arrows between files that all reach each other.
    pub(crate) fn circles(&self) -> Vec<Vec<Arrow>> {
        let arrows = self.arrows();
        let mut next: BTreeMap<&Path, Vec<&Path>> = BTreeMap::new();
        for arrow in &arrows {
            next.entry(&arrow.from).or_default().push(&arrow.to);
        }
        let reached: BTreeMap<&Path, BTreeSet<&Path>> =
            next.keys().map(|file| (*file, reached_from(file, &next))).collect();
        let reaches = |from: &Path, to: &Path| reached.get(from).is_some_and(|files| files.contains(to));
        let mut circles: BTreeMap<BTreeSet<&Path>, Vec<Arrow>> = BTreeMap::new();
        for arrow in arrows.iter().filter(|arrow| reaches(&arrow.to, &arrow.from)) {
            let members = reached[arrow.from.as_path()].iter().copied().filter(|file| reaches(file, &arrow.from));
            circles.entry(members.collect()).or_default().push(arrow.clone());
        }
        circles.into_values().collect()
    }
}

/// The files that a file reaches by arrows, directly or over other files.
fn reached_from<'a>(file: &'a Path, next: &BTreeMap<&'a Path, Vec<&'a Path>>) -> BTreeSet<&'a Path> {
    let mut reached = BTreeSet::new();
    let mut open = vec![file];
    while let Some(file) = open.pop() {
        for to in next.get(file).into_iter().flatten() {
            if reached.insert(*to) {
                open.push(to);
            }
        }
    }
    reached
}

/// The folder of a file's children.
fn folder_of(file: &Path) -> PathBuf {
    let has_own_name = !["mod.rs", "lib.rs", "main.rs"].iter().any(|name| file.ends_with(name));
    if has_own_name { file.with_extension("") } else { file.parent().unwrap_or(Path::new("")).to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(sources: &[(&str, &str)]) -> FileGraph {
        let sources = sources.iter().map(|(path, text)| (PathBuf::from(path), (*text).to_owned())).collect();
        FileGraph::read(Path::new("lib.rs"), &sources)
    }

    fn arrows(sources: &[(&str, &str)]) -> Vec<String> {
        let told = |arrow: &Arrow| format!("{} -> {}", arrow.from.display(), arrow.to.display());
        graph(sources).arrows().iter().map(told).collect()
    }

    /// The files of each circle.
    fn circles(sources: &[(&str, &str)]) -> Vec<Vec<String>> {
        let files = |circle: Vec<Arrow>| circle.iter().map(|arrow| arrow.from.display().to_string()).collect();
        graph(sources).circles().into_iter().map(files).collect()
    }

    #[test]
    fn a_tree_has_no_circle() {
        let tree = [
            ("lib.rs", "mod a; mod b; pub use a::A; pub fn f() { b::g() }"),
            ("a/mod.rs", "mod child; pub(crate) use child::C; pub struct A(child::C);"),
            ("a/child.rs", "use std::io; pub struct C(crate::b::B);"),
            ("b.rs", "pub struct B; pub fn g() {}"),
        ];
        assert_eq!(
            arrows(&tree),
            ["a/child.rs -> b.rs", "a/mod.rs -> a/child.rs", "lib.rs -> a/mod.rs", "lib.rs -> b.rs"]
        );
        assert!(circles(&tree).is_empty());
        // A child that uses its parent is not a circle if the parent only declares the child.
        assert!(circles(&[("lib.rs", "mod a; pub struct R;"), ("a.rs", "use crate::R;")]).is_empty());
    }

    #[test]
    fn two_files_that_import_each_other_are_a_circle() {
        let sources = [
            ("lib.rs", "mod a; mod b; use a::A;"),
            ("a.rs", "use crate::b::{self, B}; pub struct A(B);"),
            ("b.rs", "pub struct B; fn f() -> super::a::A { todo() }"),
        ];
        assert_eq!(circles(&sources), [["a.rs", "b.rs"]]);
        let found = graph(&sources).circles();
        assert_eq!((found[0][0].line, found[0][0].written.as_str()), (1, "crate::b"));
        assert_eq!(found[0][1].written, "super::a::A");
    }

    #[test]
    fn a_reexport_of_the_root_closes_a_circle() {
        let sources = [
            ("lib.rs", "mod a; mod b; pub use crate::a::A;"),
            ("a.rs", "pub struct A(crate::b::B);"),
            ("b.rs", "use crate::A; pub struct B;"),
        ];
        assert_eq!(circles(&sources), [["a.rs", "b.rs", "lib.rs"]]);
        let parent =
            [("lib.rs", "mod a;"), ("a/mod.rs", "mod b; pub use b::B; pub struct A;"), ("a/b.rs", "use super::A;")];
        assert_eq!(circles(&parent), [["a/b.rs", "a/mod.rs"]]);
        let glob = [("lib.rs", "mod a; pub use a::*;"), ("a.rs", "use super::*;")];
        assert_eq!(circles(&glob), [["a.rs", "lib.rs"]]);
    }

    #[test]
    fn a_path_without_an_import_closes_a_circle() {
        let bare = [("lib.rs", "mod a; fn f() { a::g() }"), ("a.rs", "pub fn g() { crate::f() }")];
        assert_eq!(circles(&bare), [["a.rs", "lib.rs"]]);
        // The path leads through an import of the module above.
        let imported = [
            ("lib.rs", "mod a; mod b;"),
            ("a/mod.rs", "pub mod c;"),
            ("a/c.rs", "use crate::b::g;"),
            ("b.rs", "use crate::a; pub fn g() { a::c::h() }"),
        ];
        assert_eq!(circles(&imported), [["a/c.rs", "b.rs"]]);
    }

    #[test]
    fn two_circles_are_two() {
        let sources = [
            ("lib.rs", "mod a; mod b; mod c; mod d;"),
            ("a.rs", "use crate::b::B; use crate::c::C;"),
            ("b.rs", "use crate::a::A;"),
            ("c.rs", "use crate::d::D;"),
            ("d.rs", "use crate::c::C;"),
        ];
        assert_eq!(circles(&sources), [["a.rs", "b.rs"], ["c.rs", "d.rs"]]);
    }

    #[test]
    fn tests_and_other_crates_are_left_out() {
        let sources = [
            ("lib.rs", "mod a; mod b; #[cfg(test)] mod tests;"),
            ("a.rs", "use crate::b::B; use serde::b; use ::b::C; fn f() { std::a::b() }"),
            ("b.rs", "pub struct B; #[cfg(test)] mod tests { use crate::a::A; }"),
            ("tests.rs", "use crate::a::A; pub struct T;"),
        ];
        assert_eq!(arrows(&sources), ["a.rs -> b.rs"]);
    }

    #[test]
    fn a_module_without_a_file_is_missing() {
        let missing = graph(&[("lib.rs", "mod a; mod b { mod c; mod d; }"), ("b/c.rs", "")]).missing().to_vec();
        assert_eq!(missing, ["lib.rs: mod a", "lib.rs: mod b::d"]);
    }

    #[test]
    fn modules_inside_a_file_are_that_file() {
        let sources = [
            ("lib.rs", "mod a; pub mod inner { pub struct I; use super::a::A; }"),
            ("a.rs", "use crate::inner::I; mod own { use super::super::inner::I; use super::A; } pub struct A;"),
        ];
        assert_eq!(circles(&sources), [["a.rs", "lib.rs"]]);
    }
}
