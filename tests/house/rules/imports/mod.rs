//! The arrows between the files of a crate. The parser reads `use`, `mod` and paths in expressions. Each path is an
//! arrow to the file of the innermost module that it names. An item that a module re-exports counts as the module's
//! own: a file that imports the item from there depends on that module.

pub(crate) mod graph;
mod lexer;
mod parser;

pub(crate) use parser::parse;
