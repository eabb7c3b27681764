//! The rules of the house: licences, what pure crates may not know, one direction of imports, sizes, names, prose, and
//! the documentation against the code. A rule that is broken names the place.

mod costs;
mod dependencies;
mod directions;
mod files;
mod imports;
mod licences;
mod names;
mod prose;
mod purity;
mod reference;
mod seeds;
mod sizes;
