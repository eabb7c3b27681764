//! The files of the repository and the parts of its pages, for the tests of its rules. The test `house` of this package
//! has the rules that need no other crate; `reference` in `crates/cli` compares the documentation with the code.

pub mod files;
pub mod markdown;
