//! What this binary was built as.

/// The version, the target, and the allocator of Rust's memory: what `touchline --version` prints behind the name.
pub(crate) const BUILT: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("TARGET_AND_ALLOCATOR"), ")");
