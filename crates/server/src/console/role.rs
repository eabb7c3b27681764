//! Who uses the console.

use serde::Serialize;

/// What somebody who has signed in may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ConsoleRole {
    /// Everything.
    Operator,
    /// Look: operations that change nothing, without payloads.
    Viewer,
}

impl ConsoleRole {
    /// The letter that stands for it in a signed text.
    pub(crate) fn letter(self) -> u8 {
        match self {
            ConsoleRole::Operator => b'o',
            ConsoleRole::Viewer => b'v',
        }
    }

    /// The role of a letter.
    pub(crate) fn of_letter(letter: u8) -> Option<ConsoleRole> {
        [ConsoleRole::Operator, ConsoleRole::Viewer].into_iter().find(|role| role.letter() == letter)
    }
}
