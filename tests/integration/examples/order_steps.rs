//! `examples/order_steps.rs`, run as it is: six workers die in six steps, and stock is locked once.
use crate::example;

use std::process::Command;

#[test]
fn s2_16_an_order_whose_worker_dies_in_every_step_locks_stock_exactly_once() {
    let run = Command::new(example::binary("order_steps")).output().unwrap();
    let (said, complained) = (String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    assert!(run.status.success(), "{said}\n{complained}");
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
