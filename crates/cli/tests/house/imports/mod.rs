//! The arrows between the files of a crate. `use`, `mod` and paths in expressions are read; each path is an arrow to
//! the file of the innermost module that it names. What a module re-exports counts as the module's own: a file that
//! imports it from there depends on that module.

pub(crate) mod graph;
mod lexer;
mod parser;

pub(crate) use parser::parse;
