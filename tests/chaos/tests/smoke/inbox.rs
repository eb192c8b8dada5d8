//! Runs whose effect and record are one transaction.
use idempotent_chaos::inbox::InboxFlaw;
use idempotent_testkit::history::{History, Kind};

use crate::command::{holds, violated};

mod extras {
    use super::*;

    #[test]
    fn a_claim_outside_of_the_transaction_is_found() {
        violated(&["postgres", "--seconds", "6", "--seed", "1", "--weakness", "claim-outside"], "I0");
    }

    #[test]
    fn handlers_that_end_their_transactions_lose_no_message_on_mariadb_and_behind_a_pooler() {
        for play in ["inbox-mariadb", "postgres-pgbouncer"] {
            let closing = holds(&[play, "--seconds", "20", "--seed", "5"]);
            assert_eq!(closing["name"].as_str(), Some(play));
            println!("{closing}");
        }
    }

    #[test]
    fn each_key_has_its_effect_once_under_kills_at_each_place_and_lost_commits() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("history.jsonl");
        let closing = holds(&["postgres", "--seconds", "60", "--seed", "5", "--history", file.to_str().unwrap()]);
        assert_eq!(closing["name"].as_str(), Some("postgres"));
        let history: History = std::fs::read_to_string(file).unwrap().parse().unwrap();
        let count = |kind| history.lines.iter().filter(|line| line.event == kind).count() as u64;
        assert_eq!(closing["kills"].as_u64(), Some(count(Kind::Crash)));
        assert_eq!(closing["keys"].as_u64(), Some(count(Kind::Produced)));
        println!("{closing}");
    }
}

/// Minutes each: `cargo xtask soak chaos`, which `cargo xtask nightly` runs.
mod soak {
    use super::*;

    #[test]
    #[ignore = "takes minutes"]
    fn each_flaw_of_an_inbox_is_found() {
        for flaw in InboxFlaw::ALL {
            for seed in ["1", "2"] {
                violated(&["postgres", "--seconds", "10", "--seed", seed, "--weakness", flaw.name()], "I0");
            }
        }
    }
}
