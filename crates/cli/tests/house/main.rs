//! The rules of the repository: licences, purity of crates, one direction of imports, sizes, names, prose, and the
//! documentation compared with the code. The error of a rule names the place.

mod costs;
mod dependencies;
mod directions;
mod figures;
mod files;
mod imports;
mod licences;
mod names;
mod prose;
mod purity;
mod reference;
mod seeds;
mod sizes;
mod waits;
mod words;
