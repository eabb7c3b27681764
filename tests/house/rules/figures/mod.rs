//! The figures of the documentation: each one comes from the named run, is a value of the generated reference, or says
//! how and when it was measured.
//!
//! A *region* of a page is made from the run in `docs/figures/run.json`, which `./x bench --write` measures:
//!
//! ```text
//! <!-- figures
//! A delivery takes {steady: CPU per delivery}.
//! -->
//!
//! A delivery takes 6.89 µs.
//!
//! <!-- end of figures -->
//! ```

mod marks;
mod quantities;
mod regions;
mod run;

use std::collections::BTreeSet;

use self::marks::unaccounted;
use self::quantities::{Quantity, bare_numbers, quantities};
use self::regions::rendered;
use self::run::FigureRun;
use touchline_house::files::{pages, report, root};

/// Set it to write the regions of all pages again.
const WRITE_DOCS: &str = "TOUCHLINE_WRITE_DOCS";

/// The pages that are made from tables of the code: their values are settings and limits.
const GENERATED: [&str; 7] = [
    "docs/reference/api.md",
    "docs/reference/command-line.md",
    "docs/reference/configuration.md",
    "docs/reference/errors.md",
    "docs/reference/limits.md",
    "docs/reference/metrics.md",
    "docs/reference/server-api.md",
];

/// The pages whose figures must be accounted for, with their paths from the root of the repository.
fn judged_pages() -> Vec<(String, String)> {
    let of_root = |(path, text): (std::path::PathBuf, String)| {
        let name = path.strip_prefix(root()).expect("the page is in the repository").display().to_string();
        (name, text)
    };
    let is_judged = |name: &str| name == "README.md" || name.starts_with("docs/") && !GENERATED.contains(&name);
    pages().into_iter().map(of_root).filter(|(name, _)| is_judged(name)).collect()
}

/// All values of the generated pages. Their numbers without a unit are sizes in bytes or rates.
fn settings() -> BTreeSet<Quantity> {
    let read = |name: &&str| std::fs::read_to_string(root().join(name)).expect("the page is there");
    let of_page = |text: String| {
        let text = text.replace(['`', '"'], " ");
        let with_unit = quantities(&text).into_iter().map(|(_, quantity)| quantity);
        with_unit.chain(bare_numbers(&text)).collect::<Vec<_>>()
    };
    GENERATED.iter().map(read).flat_map(of_page).collect()
}

#[test]
fn the_regions_of_all_pages_have_the_figures_of_the_run() {
    let (run, mut broken) = (FigureRun::read(), Vec::new());
    for (name, text) in judged_pages() {
        match rendered(&text, &run) {
            Ok(fresh) if fresh == text => {}
            Ok(fresh) if std::env::var_os(WRITE_DOCS).is_some() => {
                std::fs::write(root().join(&name), fresh).expect("the page can be written");
            }
            Ok(_) => broken.push(format!("{name}: run `{WRITE_DOCS}=1 cargo test --workspace --test house regions`")),
            Err(why) => broken.push(format!("{name}: {why}")),
        }
    }
    report("regions without the figures of docs/figures/run.json", &broken);
}

#[test]
fn every_figure_is_of_the_run_or_says_how_it_was_measured() {
    let settings = settings();
    let broken: Vec<String> = judged_pages()
        .iter()
        .flat_map(|(name, text)| {
            let is_readme = name == "README.md";
            unaccounted(text, &settings, !is_readme).into_iter().map(move |found| format!("{name}:{found}"))
        })
        .collect();
    report("figures that are neither in docs/figures/run.json nor marked with a command and a date", &broken);
}

#[test]
fn the_files_of_marks_are_there() {
    let missing: Vec<String> = judged_pages()
        .iter()
        .flat_map(|(name, text)| marks::files(text).into_iter().map(move |file| format!("{name}: {file}")))
        .filter(|place| !root().join(place.split_once(": ").expect("a page and a file").1).is_file())
        .collect();
    report("marks that name a file that does not exist", &missing);
}
