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
    fn committed_messages_take_effect_once_and_in_order_over_other_brokers_and_databases() {
        for (option, place, seconds) in [
            ("--broker", "rabbitmq", "10"),
            ("--broker", "redis-streams", "10"),
            ("--store", "sqlite", "7"),
            ("--store", "mariadb", "7"),
        ] {
            outbox_holds(&[option, place, "--seconds", seconds, "--seed", "1"]);
        }
    }

    #[test]
    fn scheduled_tasks_take_effect_once_and_in_time_on_each_database_under_kills_stops_and_cuts() {
        for store in ["postgres", "mariadb", "sqlite"] {
            let closing = holds(&["delay-table", "--store", store, "--seconds", "7", "--seed", "1"]);
            for seen in ["kills", "rolled_back", "cancelled_in_time", "deliveries_after_the_first", "dead_letters"] {
                assert!(closing[seen].as_u64() > Some(0), "{store}, {seen}: {closing}");
            }
        }
    }

    #[test]
    fn a_flaw_of_each_play_is_found() {
        for (arguments, flaw, finding) in [
            (&["delay", "--seconds", "2"][..], "takes-early", "Q2"),
            (&["delay-table", "--seconds", "4"], "schedules-outside", "T3"),
            (&["outbox", "--broker", "rabbitmq", "--seconds", "4"], "sends-backwards", "O4"),
            (&["outbox", "--seconds", "4"], "tells-nobody", "O6"),
        ] {
            violated(&[arguments, &["--seed", "1", "--weakness", flaw]].concat(), finding);
        }
    }
}

/// Minutes each: `cargo xtask soak chaos`, which `cargo xtask nightly` runs.
mod soak {
    use super::*;

    #[test]
    #[ignore = "takes minutes"]
    fn each_flaw_of_delivery_is_found_as_what_it_is() {
        for play in Play::ALL.iter().copied() {
            for flaw in DeliveryFlaw::of(play) {
                let arguments = [play.name(), "--seconds", "10", "--seed", "1", "--weakness", flaw.name()];
                let found = violated(&arguments, flaw.found().1);
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
                let found = violated(&[&arguments[..], &["--weakness", flaw.name()]].concat(), flaw.found().1);
                println!("{} by {broker} on {store}: {found:?}", flaw.name());
            }
        }
    }
}
