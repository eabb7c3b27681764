//! The roles of users of the console.

use serde::Serialize;

/// What a signed-in user of the console may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ConsoleRole {
    /// May do everything.
    Operator,
    /// May only look: operations that change nothing, without payloads.
    Viewer,
}

impl ConsoleRole {
    /// Returns the character of the role in a signed text.
    pub(crate) fn letter(self) -> u8 {
        match self {
            ConsoleRole::Operator => b'o',
            ConsoleRole::Viewer => b'v',
        }
    }

    /// Returns the role of a character; None = it stands for no role.
    pub(crate) fn of_letter(letter: u8) -> Option<ConsoleRole> {
        [ConsoleRole::Operator, ConsoleRole::Viewer].into_iter().find(|role| role.letter() == letter)
    }
}
