//! The examples `rocketmq_orders` and `consume`, from outside, on a private server; and an outbox.
use crate::example;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use idempotent_testkit::servers::RocketServer;

mod consume;
mod outbox;

#[test]
fn each_order_is_paid_once_and_sigterm_ends_what_runs() {
    let server = RocketServer::start();
    let mut child = Command::new(example::binary("rocketmq_orders"))
        .args(["--name-server", &server.name_server()])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let early: Vec<_> = lines.by_ref().take(4).collect();
    let paid = ["order-1", "order-2", "early"].map(|order| format!("{order}: paid 500 cents"));
    for line in paid.iter().map(String::as_str).chain(["early: not there yet, comes again"]) {
        assert_eq!(early.iter().filter(|seen| *seen == line).count(), 1, "{early:?}");
    }
    // On a busy machine an order may take longer than the other's delay; each of them is once in its order.
    let place = |line: &str| early.iter().position(|seen| seen == line);
    assert!(place("early: not there yet, comes again") < place(&paid[2]), "{early:?}");
    // Nobody consumes the dead letters: all there are stay.
    let put_aside = || server.backlog("index12306-order-dead", "nobody") == 1;
    assert!((0..600).any(|_| put_aside() || pause()), "the odd one is no dead letter");
    assert!(Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap().success());
    let rest: Vec<_> = lines.collect();
    assert!(child.wait().unwrap().success(), "{rest:?}");
    assert_eq!(rest[0], "stopping: what runs may end");
    assert!(rest[1].contains("1 put aside in index12306-order-dead"), "{rest:?}");
}

/// Between two looks.
fn pause() -> bool {
    std::thread::sleep(std::time::Duration::from_millis(100));
    false
}
