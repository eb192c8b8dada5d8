//! The code of the section on Kafka in `guides/brokers.md`, which the guide cannot compile without the client.
#![allow(dead_code, reason = "the code is compiled, and not called")]

mod consumer;
mod send;

#[test]
fn the_code_of_the_guide_is_the_compiled_code() {
    let guide = include_str!("../../../../guides/brokers.md");
    for source in [include_str!("guide/consumer.rs"), include_str!("guide/send.rs")] {
        let (_, code) = source.split_once('\n').unwrap();
        assert!(guide.contains(&format!("```rust,ignore\n{code}```\n")), "the guide differs from\n{code}");
    }
    assert_eq!(guide.matches("```rust,ignore").count(), 2, "code that is not compiled");
}
