//! The copy of the program in the guide. Cargo builds the program together with this test, for the tests that run it.

#[test]
fn the_guide_contains_the_program() {
    let guide = include_str!("../../../docs/guides/embedding.md");
    assert!(guide.contains(&format!("```rust\n{}```\n", include_str!("../src/main.rs"))));
}
