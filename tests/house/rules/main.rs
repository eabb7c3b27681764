//! The rules of the repository: licences, purity of crates, one direction of imports, sizes, names, prose, and the
//! documentation compared with the code. The error of a rule names the place.

mod costs;
mod dependencies;
mod directions;
mod figures;
mod imports;
mod licences;
mod links;
mod names;
mod prose;
mod purity;
mod seeds;
mod sizes;
mod waits;
mod words;
