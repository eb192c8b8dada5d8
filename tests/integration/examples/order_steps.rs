//! `examples/order_steps.rs`, run as it is: six workers die in six steps, and stock is locked once.
use crate::example;

#[test]
fn an_order_whose_worker_dies_in_every_step_locks_stock_exactly_once() {
    let said = example::run("order_steps", &[]);
    for step in ["check_stock", "lock_stock", "insert_order", "charge", "set_status", "close_order"] {
        assert!(said.contains(&format!("a worker died in {step}: true")), "{said}");
    }
    // The first step is asked again by the next worker alone: those after it replay it.
    for line in [
        "check/o-1: 2 requests",
        "lock/o-1: 2 requests, 1 effects",
        "charge/o-1: 2 requests, 1 effects",
        "unlock/refused: 1 requests, 1 effects",
        "stock of o-1 was locked 1 time",
    ] {
        assert!(said.contains(line), "no line `{line}` in:\n{said}");
    }
}
