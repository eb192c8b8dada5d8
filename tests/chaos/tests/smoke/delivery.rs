//! Producers and time.
use idempotent_chaos::delivery::{DeliveryFlaw, Play};

use crate::command::{holds, violated};

#[test]
fn committed_messages_take_effect_once_and_in_order_under_kills_stops_and_cuts() {
    outbox_holds(&["--seconds", "7", "--seed", "1"]);
}

fn outbox_holds(arguments: &[&str]) {
    let closing = holds(&[&["outbox"], arguments].concat());
    for seen in ["kills", "messages_rolled_back", "dead_stubs", "pairs_in_order", "given_up", "alarms"] {
        assert!(closing[seen].as_u64() > Some(0), "{seen}: {closing}");
    }
}

#[test]
fn chains_take_effect_in_their_order_whatever_is_killed_stopped_and_cut() {
    let closing = holds(&["ordering", "--store", "sqlite", "--seconds", "7", "--seed", "1"]);
    for seen in
        ["kills", "pairs_in_order", "put_off", "numbers_in_order", "dead_letters", "predecessors_that_were_dead"]
    {
        assert!(closing[seen].as_u64() > Some(0), "{seen}: {closing}");
    }
}

mod extras {
    use super::*;

    #[test]
    fn no_message_of_a_delay_queue_is_lost_early_or_done_twice_whatever_is_killed_stopped_and_cut() {
        let closing = holds(&["delay", "--seconds", "7", "--seed", "5"]);
        for seen in ["kills", "crashes_of_Redis", "dead_letters", "called_off_in_time", "sent_again"] {
            assert!(closing[seen].as_u64() > Some(0), "{seen}: {closing}");
        }
    }

    #[test]
    fn a_delay_queue_that_hands_out_early_is_found() {
        let found = violated(&["delay", "--seconds", "2", "--seed", "1", "--weakness", "takes-early"]);
        assert!(found.contains("Q2"), "{found:?}");
    }

    #[test]
    fn committed_messages_take_effect_once_and_in_order_over_rabbitmq_under_kills_stops_and_cuts() {
        outbox_holds(&["--broker", "rabbitmq", "--seconds", "10", "--seed", "1"]);
    }

    #[test]
    fn messages_committed_to_a_file_take_effect_once_and_in_order_under_kills_stops_and_cuts() {
        outbox_holds(&["--store", "sqlite", "--seconds", "7", "--seed", "1"]);
    }

    #[test]
    fn messages_committed_to_mariadb_take_effect_once_and_in_order_under_kills_stops_and_cuts() {
        outbox_holds(&["--store", "mariadb", "--seconds", "7", "--seed", "1"]);
    }

    #[test]
    fn committed_messages_take_effect_once_and_in_order_over_redis_streams_under_kills_stops_and_cuts() {
        outbox_holds(&["--broker", "redis-streams", "--seconds", "10", "--seed", "1"]);
    }

    #[test]
    fn scheduled_tasks_take_effect_once_and_in_time_on_postgres_under_kills_stops_and_cuts() {
        delay_table_holds("postgres");
    }

    #[test]
    fn scheduled_tasks_take_effect_once_and_in_time_on_mariadb_under_kills_stops_and_cuts() {
        delay_table_holds("mariadb");
    }

    #[test]
    fn scheduled_tasks_take_effect_once_and_in_time_on_sqlite_under_kills_and_stops() {
        delay_table_holds("sqlite");
    }

    fn delay_table_holds(store: &str) {
        let closing = holds(&["delay-table", "--store", store, "--seconds", "7", "--seed", "1"]);
        for seen in ["kills", "rolled_back", "cancelled_in_time", "deliveries_after_the_first", "dead_letters"] {
            assert!(closing[seen].as_u64() > Some(0), "{seen}: {closing}");
        }
    }

    #[test]
    fn a_task_of_a_rolled_back_transaction_is_found() {
        let arguments = ["delay-table", "--seconds", "4", "--seed", "1", "--weakness", "schedules-outside"];
        let found = violated(&arguments);
        assert!(found.contains("T3"), "{found:?}");
    }

    #[test]
    fn messages_sent_to_rabbitmq_in_another_order_are_found() {
        let arguments = ["outbox", "--broker", "rabbitmq", "--seconds", "4", "--seed", "1"];
        let found = violated(&[&arguments[..], &["--weakness", "sends-backwards"]].concat());
        assert!(found.contains("O4"), "{found:?}");
    }

    #[test]
    fn a_message_given_up_without_an_alert_is_found() {
        let found = violated(&["outbox", "--seconds", "4", "--seed", "1", "--weakness", "tells-nobody"]);
        assert!(found.contains("O6"), "{found:?}");
    }
}

/// Minutes each: `cargo xtask soak chaos`, which `cargo xtask nightly` runs.
mod soak {
    use super::*;

    #[test]
    #[ignore = "takes minutes"]
    fn each_flaw_of_delivery_is_found_as_what_it_is() {
        for play in Play::ALL {
            for flaw in DeliveryFlaw::of(play) {
                let found = violated(&[play.name(), "--seconds", "10", "--seed", "1", "--weakness", flaw.name()]);
                assert!(found.contains(flaw.found_as()), "{}: {found:?}", flaw.name());
                println!("{} in {}: {found:?}", flaw.name(), play.name());
            }
        }
    }

    #[test]
    #[ignore = "takes minutes"]
    fn each_flaw_around_an_outbox_is_found_on_each_broker_and_store_as_what_it_is() {
        for (store, broker) in [("sqlite", "delay"), ("postgres", "rabbitmq"), ("mariadb", "redis-streams")] {
            for flaw in DeliveryFlaw::of(Play::Outbox) {
                let arguments = ["outbox", "--store", store, "--broker", broker, "--seconds", "10", "--seed", "1"];
                let found = violated(&[&arguments[..], &["--weakness", flaw.name()]].concat());
                assert!(found.contains(flaw.found_as()), "{} by {broker} on {store}: {found:?}", flaw.name());
                println!("{} by {broker} on {store}: {found:?}", flaw.name());
            }
        }
    }
}
