//! The version and the target of this binary.

/// The version, the target and the allocator of Rust's memory, as `touchline --version` prints them after the name.
pub(crate) const BUILT: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("TARGET_AND_ALLOCATOR"), ")");
