//! Producers and time.
use idempotent_chaos::delivery::{DeliveryFlaw, Play};

use crate::command::{holds, violated};

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
fn what_was_committed_takes_effect_once_and_in_order_whatever_is_killed_stopped_and_cut() {
    let closing = holds(&["outbox", "--seconds", "7", "--seed", "1"]);
    for seen in ["kills", "messages_rolled_back", "dead_stubs", "pairs_in_order"] {
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

/// By `cargo xtask soak chaos`.
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

/// By `cargo xtask soak chaos`.
#[test]
#[ignore = "takes minutes"]
fn a_minute_of_each_play_of_delivery_breaks_nothing() {
    for play in Play::ALL {
        println!("{}: {}", play.name(), holds(&[play.name(), "--seed", "11"]));
    }
    println!("ordering over SQLite: {}", holds(&["ordering", "--store", "sqlite", "--seed", "11"]));
}
