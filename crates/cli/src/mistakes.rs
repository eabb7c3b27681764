//! Tips about words that the command line does not have.

use clap::error::{ContextKind, ContextValue};

/// Adds what was probably meant, if clap cannot know it.
pub(crate) fn with_tip(mut error: clap::Error) -> clap::Error {
    if let Some(tip) = tip(&error) {
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
        error.remove(ContextKind::SuggestedArg);
    }
    error
}

/// What was probably meant by a word that the command line does not have. `None` = clap's own suggestion stays.
fn tip(error: &clap::Error) -> Option<String> {
    let found = [ContextKind::InvalidArg, ContextKind::InvalidSubcommand].into_iter().find_map(|kind| error.get(kind));
    let Some(ContextValue::String(word)) = found else { return None };
    if [".toml", ".yaml", ".yml", ".json"].iter().any(|extension| word.ends_with(extension)) {
        return Some(format!("name the file with --config {word}"));
    }
    let field = word.strip_prefix("--").filter(|_| std::env::args().nth(1).is_some_and(|command| command == "api"))?;
    let is_field = touchline_server::operations().any(|operation| (operation.request_fields)().contains(&field));
    is_field.then(|| format!("fields have no hyphens: {field}=VALUE"))
}
