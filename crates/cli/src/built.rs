//! The version and the target of this binary.

/// The version, the target, the allocator of Rust's memory and whether this is a quick build, as `touchline
/// --version` prints them after the name.
pub(crate) const BUILT: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("TARGET_AND_ALLOCATOR"), ")");
