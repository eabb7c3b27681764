//! Tells the binary which target it is built for, and with which allocator.

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Cargo sets both for every build script.
    let target = env::var("TARGET").unwrap_or_else(|_| "unknown target".to_owned());
    let allocator = if env::var_os("CARGO_FEATURE_MIMALLOC").is_some() { "mimalloc" } else { "system allocator" };
    println!("cargo::rustc-env=TARGET_AND_ALLOCATOR={target}, {allocator}");
}
