//! The regions of a page: a template in a comment, and what the run makes of it.

use super::run::FigureRun;

const BEGIN: &str = "<!-- figures";
const TEMPLATE_END: &str = "-->";
/// The end of a region.
pub(super) const END: &str = "<!-- end of figures -->";

/// The page with all regions made again.
///
/// # Errors
/// If a region is not complete, or names a figure that the run does not have.
pub(super) fn rendered(page: &str, run: &FigureRun) -> Result<String, String> {
    let mut fresh = Vec::new();
    let mut lines = page.lines().enumerate();
    while let Some((index, line)) = lines.next() {
        fresh.push(line.to_owned());
        if line != BEGIN {
            continue;
        }
        let incomplete = || format!("line {}: the region is not complete", index + 1);
        let mut has_end = false;
        let is_inner = |line: &&str| {
            has_end = *line == END;
            !has_end
        };
        let body: Vec<&str> = lines.by_ref().map(|(_, line)| line).take_while(is_inner).collect();
        let end = body.iter().position(|line| *line == TEMPLATE_END).filter(|_| has_end).ok_or_else(incomplete)?;
        let (template, old) = body.split_at(end);
        // A region without an end would take the text up to the end of the next one.
        let is_marker = |line: &&str| line.contains("<!--") || line.contains(TEMPLATE_END);
        if old[1..].iter().any(is_marker) || template.iter().any(is_marker) {
            return Err(incomplete());
        }
        fresh.extend(template.iter().map(|line| (*line).to_owned()));
        fresh.extend([TEMPLATE_END.to_owned(), String::new()]);
        for line in template.iter().copied() {
            fresh.extend(filled(line, run).map_err(|why| format!("line {}: {why}", index + 1))?);
        }
        fresh.extend([String::new(), END.to_owned()]);
    }
    Ok(fresh.join("\n") + "\n")
}

/// The lines that a line of a template becomes. `{rows: PART}` alone on a line becomes the rows of a table.
fn filled(line: &str, run: &FigureRun) -> Result<Vec<String>, String> {
    if let Some(place) = line.strip_prefix("{rows: ").and_then(|rest| rest.strip_suffix('}')) {
        return run.rows(place);
    }
    let (mut text, mut rest) = (String::new(), line);
    while let Some((before, behind)) = rest.split_once('{') {
        let (placeholder, after) = behind.split_once('}').ok_or_else(|| format!("an open brace in {line}"))?;
        text += before;
        text += &run.text(placeholder)?;
        rest = after;
    }
    Ok(vec![text + rest])
}

#[test]
fn a_region_is_made_from_its_template() {
    let run = super::run::example();
    let page = "# A\n\n<!-- figures\n| a | b |\n|---|---|\n{rows: steady: b}\n\nIt costs {steady: cost}.\n-->\nold\n\
                <!-- end of figures -->\n\nText.\n";
    let fresh = rendered(page, &run).expect("the run has all figures");
    assert!(fresh.contains("-->\n\n| a | b |\n|---|---|\n| rate | 495 /s |  |\n| ratio |"), "{fresh}");
    assert!(fresh.ends_with("It costs 5.50 µs.\n\n<!-- end of figures -->\n\nText.\n"), "{fresh}");
    assert!(!fresh.contains("old"), "{fresh}");
    assert_eq!(rendered(&fresh, &run).as_ref(), Ok(&fresh), "a second time changes nothing");
    let swallowing = format!("{BEGIN}\nx\n{TEMPLATE_END}\nText.\n{BEGIN}\ny\n{TEMPLATE_END}\n{END}\n");
    let unknown = format!("{BEGIN}\n{{steady: x}}\n{TEMPLATE_END}\n{END}\n");
    for wrong in [&swallowing, &unknown, "<!-- figures\nx\n-->\n", "<!-- figures\n"] {
        assert!(rendered(wrong, &run).is_err(), "{wrong}");
    }
}
