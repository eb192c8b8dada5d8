//! The application `payment_callback` from outside: its worker is killed at each place of the handler, on real servers.
use idempotent_harness::servers::{MariaDbServer, PostgresServer, RabbitServer};

use crate::example::{self, Running};

const APP: &str = "payment_callback";

/// The places at which a worker is killed, as an argument and as printed, with the least requests that each service receives:
/// the next worker repeats the calls of the killed one.
const PLACES: [(&str, &str, [u32; 2]); 6] = [
    ("received", "Received", [1, 1]),
    ("claimed", "Claimed", [1, 1]),
    ("paid", "Paid", [1, 1]),
    ("ticketed", "Ticketed", [2, 1]),
    ("credited", "Credited", [2, 2]),
    ("committed", "Committed", [1, 1]),
];

#[test]
fn a_worker_that_is_killed_at_any_place_leaves_one_effect_on_rabbitmq_and_postgresql() {
    let (server, database) = (RabbitServer::start(), PostgresServer::start());
    on_rabbitmq(&server, database.url());
}

#[test]
fn a_worker_that_is_killed_at_any_place_leaves_one_effect_on_rabbitmq_and_mariadb() {
    let (server, database) = (RabbitServer::start(), MariaDbServer::start());
    on_rabbitmq(&server, database.url());
}

fn on_rabbitmq(server: &RabbitServer, database: String) {
    let count = || server.queues("/", "messages");
    let dead = || count().get("payment_callbacks.dead").copied().unwrap_or_default();
    let waiting = || count().values().sum::<u64>() - dead();
    Deployment::new(server.url(), database).suffers(waiting, dead);
}

/// The services, a broker and a database.
pub(crate) struct Deployment {
    broker: String,
    database: String,
    services: String,
    _serving: Running,
}

impl Deployment {
    pub(crate) fn new(broker: String, database: String) -> Self {
        let mut serving = Running::start(APP, &["services", "--listen", "127.0.0.1:0"]);
        let address = serving.says(1).remove(0);
        let services = address.strip_prefix("listening on ").unwrap().to_owned();
        Self { broker, database, services, _serving: serving }
    }

    /// Kills a worker at each place. Then each order has one payment, one ticket and one credit of points, and keeps them
    /// after another callback. A callback with another amount is dead-lettered.
    pub(crate) fn suffers(&self, waiting: impl Fn() -> u64, dead: impl Fn() -> u64) {
        for (place, printed, requests) in PLACES {
            let order = format!("order-{place}");
            self.place(&order);
            self.pay(&order, 500);
            let mut worker = self.worker(&["--stop-at", place]);
            worker.says_at_last(&format!("{order}: stopped at {printed}"));
            let undone = if place == "committed" { "paid, payments: 1" } else { "unpaid, payments: 0" };
            assert_eq!(self.status(&order).0, format!("order: {undone}"), "{place}");
            // SIGKILL.
            drop(worker);
            let worker = self.worker(&[]);
            crate::wait::until("the callback is handled", || self.status(&order).0 == "order: paid, payments: 1");
            self.pay(&order, 500);
            crate::wait::until("all copies are acknowledged", || waiting() == 0);
            drop(worker);
            let (status, services) = self.status(&order);
            assert_eq!(status, "order: paid, payments: 1", "{place}");
            for ((received, effects), least) in services.into_iter().zip(requests) {
                assert!(received >= least, "{place}: {received} requests");
                assert_eq!(effects, 1, "{place}");
            }
        }
        assert_eq!(dead(), 0);
        let worker = self.worker(&[]);
        self.pay("order-paid", 600);
        crate::wait::until("another amount is a dead letter", || dead() == 2);
        worker.signal("-TERM");
        // A broker's count of messages may be late, so this worker may also acknowledge copies for the order before.
        let counts = worker.ends().pop().unwrap();
        assert!(counts.ends_with(" acknowledged, 0 retried, 2 dead-lettered"), "{counts}");
        assert_eq!(self.status("order-paid").0, "order: paid, payments: 1");
    }

    fn worker(&self, more: &[&str]) -> Running {
        let args = ["work", "--broker", &self.broker, "--database", &self.database, "--services", &self.services];
        Running::start(APP, &[&args[..], more].concat())
    }

    fn place(&self, order: &str) {
        example::run(APP, &["place", order, "--database", &self.database]);
    }

    fn pay(&self, order: &str, cents: u32) {
        example::run(APP, &["pay", order, &cents.to_string(), "--broker", &self.broker]);
    }

    /// Returns the line of the order, and the requests and effects of each service.
    fn status(&self, order: &str) -> (String, [(u32, u32); 2]) {
        let said = example::run(APP, &["status", order, "--database", &self.database, "--services", &self.services]);
        let mut lines = said.lines();
        let status = lines.next().unwrap().to_owned();
        let counts = ["tickets", "points"].map(|service| {
            let counts = lines.next().unwrap().strip_prefix(&format!("{service}: ")).unwrap();
            let (requests, effects) = counts.strip_suffix(" effects").unwrap().split_once(" requests, ").unwrap();
            (requests.parse().unwrap(), effects.parse().unwrap())
        });
        (status, counts)
    }
}
