//! RabbitMQ through the facade: the example `rabbitmq_orders` from outside, and an outbox.
use idempotent_testkit::servers::RabbitServer;

use crate::example::Running;

mod outbox;

#[test]
fn each_order_is_paid_once_and_sigterm_ends_what_runs() {
    let server = RabbitServer::start();
    let mut running = Running::start("rabbitmq_orders", &["--url", &server.url(), "--queue", "orders"]);
    let early = running.says(4);
    for line in ["order-1: paid 500 cents", "order-2: paid 500 cents", "early: not there yet, comes again"] {
        assert_eq!(early.iter().filter(|seen| *seen == line).count(), 1, "{early:?}");
    }
    assert_eq!(early[3], "early: paid 500 cents");
    let put_aside = || server.queues("/", "messages_ready").get("orders.dead") == Some(&1);
    crate::wait::until("the odd one is a dead letter", put_aside);
    running.signal("-TERM");
    let rest = running.ends();
    assert_eq!(rest[0], "stopping: what runs may end");
    assert!(rest[1].contains("1 put aside in orders.dead"), "{rest:?}");
}
