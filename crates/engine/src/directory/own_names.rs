//! The names of a scope that belong to one user, because a pattern of the configuration gives them to the user.

use super::scope::{Scopes, USER_VARIABLE, fits};
use crate::wildcard;

/// Names of one scope that a pattern gives to one user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnNames {
    /// The name of the scope.
    pub scope: Box<str>,
    /// The pattern, one of `allow_register`.
    pattern: Box<str>,
    user: Box<str>,
    /// Whether no pattern gives these names to another user.
    is_certain: bool,
}

impl OwnNames {
    /// The only such name, if no pattern gives it to another user; `None` = other users may have such names too.
    pub fn certain(&self) -> Option<String> {
        self.is_certain.then(|| self.pattern.replace(USER_VARIABLE, &self.user))
    }

    /// The common prefix of the names; empty = they have none.
    pub fn prefix(&self) -> String {
        self.pattern.split('*').next().unwrap_or_default().replace(USER_VARIABLE, &self.user)
    }

    /// Whether a name of the scope is one of these names.
    pub fn has(&self, name: &str) -> bool {
        fits(&self.pattern, name, &self.user)
    }
}

/// Whether a pattern can give names to one user only. With `*` next to `{user}` it cannot: `4*` also matches `42`.
fn is_for_one_user(pattern: &str) -> bool {
    let touches = |first: &str, second: &str| pattern.contains(&[first, second].concat());
    pattern.contains(USER_VARIABLE) && !touches(USER_VARIABLE, "*") && !touches("*", USER_VARIABLE)
}

/// Whether a name that a pattern gives to a user cannot also belong to another user. `index`: the index of that
/// pattern. A user id may contain anything: `{user}-*` gives `ann-marie-phone` to `ann` and to `ann-marie`.
fn is_certain(patterns: &[String], index: usize, user: &str) -> bool {
    let pattern = &patterns[index];
    let name = pattern.replace(USER_VARIABLE, user);
    let mut others = patterns.iter().enumerate().filter(|(other, text)| *other != index && *text != pattern);
    // Without `*`, a pattern gives a name to at most one user.
    !pattern.contains('*') && !others.any(|(_, other)| wildcard::matches(&other.replace(USER_VARIABLE, "*"), &name))
}

impl Scopes {
    /// The names that patterns give to a user, in every scope that keeps messages for names, in the order of the
    /// configuration. `user` must not be empty.
    pub fn own_names(&self, user: &str) -> Vec<OwnNames> {
        let keeping = self.0.iter().map(|(options, _)| options).filter(|options| options.inbox_size > 0);
        let own = keeping.flat_map(|options| {
            let patterns = &options.allow_register;
            let own = patterns.iter().enumerate().filter(|(_, pattern)| is_for_one_user(pattern));
            own.map(|(index, pattern)| OwnNames {
                scope: options.name.as_str().into(),
                pattern: pattern.as_str().into(),
                user: user.into(),
                is_certain: is_certain(patterns, index, user),
            })
        });
        own.collect()
    }
}

#[cfg(test)]
mod tests {
    use touchline_registry::HashSeed;

    use super::super::ScopeOptions;
    use super::super::state::Directory;
    use super::*;

    fn own(patterns: &[&str], inbox_size: usize, user: &str) -> Vec<OwnNames> {
        let allow_register = patterns.iter().map(|pattern| (*pattern).to_owned()).collect();
        let options = ScopeOptions { name: "devices".into(), allow_register, inbox_size, ..ScopeOptions::default() };
        let timing = touchline_registry::ReplicaTiming::default();
        let directory = Directory::<()>::new("here", &[options], &timing, 7, HashSeed::repeatable(7), false, 1_000);
        directory.scopes().own_names(user)
    }

    #[test]
    fn only_patterns_that_name_one_user_give_names_to_a_user() {
        let patterns = ["bike-{user}", "{user}/*", "{user}*", "*{user}", "shared", "a*/{user}/b*"];
        let all = own(&patterns, 10, "42");
        let told: Vec<_> = all.iter().map(|names| (names.certain(), names.prefix())).collect();
        // `*{user}` gives `bike-42` to user `-42`.
        assert_eq!(told, [(None, "bike-42".into()), (None, "42/".into()), (None, "a".into())], "{all:?}");
        assert!(all[1].has("42/phone") && !all[1].has("421/phone") && !all[1].has("4/phone"));
        assert!(all[2].has("ab/42/bc") && !all[2].has("ab/4/bc"));
        assert_eq!(&*all[0].scope, "devices");
    }

    #[test]
    fn a_name_is_certain_if_no_pattern_gives_it_to_another_user() {
        let certain = |patterns: &[&str], user: &str| own(patterns, 10, user)[0].certain();
        assert_eq!(certain(&["of-{user}"], "ann"), Some("of-ann".into()));
        assert_eq!(certain(&["of-{user}", "{user}/*", "shared", "of-{user}"], "ann"), Some("of-ann".into()));
        assert_eq!(certain(&["{user}"], "ann"), Some("ann".into()));
        assert_eq!(certain(&["{user}-*"], "ann"), None, "ann-marie-phone is of ann-marie");
        assert_eq!(certain(&["{user}/*"], "ann"), None, "ann/b/x is of ann/b");
        assert_eq!(certain(&["of-{user}", "{user}"], "ann"), None, "of-ann is a user too");
        assert_eq!(certain(&["of-{user}", "{user}/*"], "a/b"), None, "of-a/b is of user of-a");
        assert_eq!(certain(&["of-{user}", "*"], "ann"), None, "anybody may have it");
        assert_eq!(certain(&["of-{user}", "of-ann"], "ann"), None, "anybody may have it");
    }

    #[test]
    fn a_scope_without_an_inbox_keeps_nothing_of_a_user() {
        assert_eq!(own(&["{user}/*"], 0, "42"), []);
    }

    #[test]
    fn a_user_is_text_whatever_it_holds() {
        let all = own(&["{user}/*", "of-{user}"], 1, "*");
        assert!(all[0].has("*/a") && !all[0].has("x/a"));
        assert_eq!((all[0].prefix(), all[1].certain()), ("*/".to_owned(), Some("of-*".to_owned())));
    }
}
