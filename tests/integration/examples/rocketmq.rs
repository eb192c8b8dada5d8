//! The example `orders` and the application `consume`, from outside, on a private server; and an outbox.
use idempotent_harness::servers::{MariaDbServer, PostgresServer, RocketServer};

use crate::example::Running;
use crate::payment_callback::Deployment;

mod consume;
mod outbox;

#[test]
fn each_order_is_paid_once_and_sigterm_ends_what_runs() {
    let server = RocketServer::start();
    let mut running = Running::start("orders", &["--broker", "rocketmq", "--url", &server.url()]);
    let early = running.says(4);
    let paid = ["order-1", "order-2", "early"].map(|order| format!("{order}: paid 500 cents"));
    for line in paid.iter().map(String::as_str).chain(["early: does not exist yet, retry"]) {
        assert_eq!(early.iter().filter(|seen| *seen == line).count(), 1, "{early:?}");
    }
    // On a busy machine an order may take longer than the other's delay; each of them is once in its order.
    let place = |line: &str| early.iter().position(|seen| seen == line);
    assert!(place("early: does not exist yet, retry") < place(&paid[2]), "{early:?}");
    // The dead letters have no consumer, so all of them stay.
    let put_aside = || server.backlog("pay_results-dead", "nobody") == 1;
    crate::wait::until("the odd one is a dead letter", put_aside);
    running.signal("-TERM");
    let rest = running.ends();
    assert_eq!(rest[0], "stopping: running handlers may finish");
    assert!(rest[1].contains("1 dead-lettered"), "{rest:?}");
}

#[test]
fn a_worker_that_is_killed_at_any_place_leaves_one_effect_on_rocketmq_and_postgresql() {
    let database = PostgresServer::start();
    on_rocketmq(database.url());
}

#[test]
fn a_worker_that_is_killed_at_any_place_leaves_one_effect_on_rocketmq_and_mariadb() {
    let database = MariaDbServer::start();
    on_rocketmq(database.url());
}

fn on_rocketmq(database: String) {
    let server = RocketServer::start();
    let broker = server.url();
    let waiting = || server.backlog("payment_callbacks", "payment_callbacks");
    Deployment::new(broker, database).suffers(waiting, || server.backlog("payment_callbacks-dead", "nobody"));
}
