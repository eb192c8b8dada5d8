//! RabbitMQ through the facade: the example `rabbitmq_orders` from outside, and an outbox.
use crate::example;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use idempotent_testkit::servers::RabbitServer;

mod outbox;

#[test]
fn each_order_is_paid_once_and_sigterm_ends_what_runs() {
    let server = RabbitServer::start();
    let mut child = Command::new(example::binary("rabbitmq_orders"))
        .args(["--url", &server.url(), "--queue", "orders"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let early: Vec<_> = lines.by_ref().take(4).collect();
    for line in ["order-1: paid 500 cents", "order-2: paid 500 cents", "early: not there yet, comes again"] {
        assert_eq!(early.iter().filter(|seen| *seen == line).count(), 1, "{early:?}");
    }
    assert_eq!(early[3], "early: paid 500 cents");
    let put_aside = || server.queues("/", "messages_ready").get("orders.dead") == Some(&1);
    crate::consume::support::until("the odd one is a dead letter", put_aside);
    assert!(Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap().success());
    let rest: Vec<_> = lines.collect();
    assert!(child.wait().unwrap().success(), "{rest:?}");
    assert_eq!(rest[0], "stopping: what runs may end");
    assert!(rest[1].contains("1 put aside in orders.dead"), "{rest:?}");
}
