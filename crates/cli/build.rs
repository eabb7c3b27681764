//! Passes the target and the allocator of this build to the binary.

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Cargo sets both variables for every build script.
    let target = env::var("TARGET").unwrap_or_else(|_| "unknown target".to_owned());
    let allocator = if env::var_os("CARGO_FEATURE_MIMALLOC").is_some() { "mimalloc" } else { "system allocator" };
    // The profiles that inherit `dev` are quick to build and slow to run.
    let quick = if env::var("PROFILE").is_ok_and(|profile| profile == "debug") { ", quick build" } else { "" };
    println!("cargo::rustc-env=TARGET_AND_ALLOCATOR={target}, {allocator}{quick}");
}
