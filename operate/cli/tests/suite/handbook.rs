//! The commands of the guides `operating` and `command-line`, run on prepared incidents.
//!
//! A command of a guide that no incident runs fails a test.
mod capacity;
mod command_line;
mod erasure;
mod flows;
mod guide;
mod incident;
mod keys;
mod letters;
mod stores;

use std::collections::BTreeSet;

use self::guide::sections;
use self::incident::Incident;

const OPERATING: &str = include_str!("../../../../guides/operating.md");
const COMMAND_LINE: &str = include_str!("../../../../guides/command-line.md");

/// Defines a test for each section with commands, and a test that no such section is missing.
macro_rules! incidents {
    ($all:ident, $guide:expr, $($name:ident: $section:literal => $incident:path;)*) => {
        $(
            #[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                let mut incident = Incident::of($guide, $section);
                $incident(&mut incident).await;
                incident.end();
            }
        )*

        #[test]
        fn $all() {
            let with_commands = sections($guide).into_iter().filter(|section| !section.commands.is_empty());
            let titles: BTreeSet<_> = with_commands.map(|section| section.title).collect();
            assert_eq!(titles, BTreeSet::from([$($section.to_owned()),*]), "sections with commands, and incidents");
        }
    };
}

incidents! {
    each_section_of_operating_with_commands_has_an_incident, OPERATING,
    a_store_is_checked_before_production: "Before production" => stores::before_production;
    a_stuck_key_is_released: "A key is stuck" => keys::stuck;
    a_key_whose_lease_was_lost_runs_in_another_worker: "A lease is lost" => keys::lease_lost;
    a_poison_message_is_redriven_or_discarded: "A message is poison" => letters::poison;
    a_run_without_a_record_is_repeated: "An effect has no record" => keys::unrecorded;
    a_store_that_is_down_is_named: "The store is down or slow" => stores::down;
    a_full_redis_is_recognized: "Redis is full, or evicts keys" => stores::full;
    a_primary_without_enough_replicas_is_named: "A failover" => stores::failover;
    a_message_older_than_its_retention_is_recognized: "Many duplicates at once" => keys::repeated;
    an_expired_record_is_absent: "The retention is too short" => keys::forgotten_too_early;
    a_key_with_two_contents_shows_its_first_run: "One key has two contents" => keys::mismatch;
    a_held_stream_continues_after_its_blocker: "A stream waits" => flows::held_stream;
    an_outbox_sends_again: "The outbox does not send" => flows::outbox;
    late_messages_are_counted: "Delayed work is late" => flows::late;
    a_step_of_the_clock_is_shown: "The clock of the store steps" => stores::clock;
    an_unreadable_record_is_listed: "A record cannot be read" => keys::unreadable;
    old_tables_are_migrated: "An upgrade" => stores::upgrade;
    a_restored_store_lacks_the_records_after_its_backup: "A restore" => stores::restored;
    the_data_of_one_person_is_removed: "The data of one person" => erasure::person;
}

incidents! {
    each_section_of_the_command_line_with_commands_has_an_incident, COMMAND_LINE,
    the_first_listing_has_the_columns_of_the_guide: "" => command_line::first;
    keys_are_found: "Which key is stuck?" => command_line::searched;
    keys_are_forgotten: "Let a key run again" => command_line::forgotten;
    dead_letters_are_shown_and_changed: "Dead letters" => command_line::dead_letters;
    outboxes_and_delay_queues_are_shown_and_changed: "Outboxes and delayed messages" => command_line::outboxes_and_delays;
    waiting_streams_are_shown: "Streams that wait" => command_line::waiting_streams;
    a_store_is_checked: "Check a store" => command_line::checked;
    changes_are_listed: "The audit log" => command_line::audited;
    expired_records_are_removed: "Remove expired records" => command_line::purged;
    a_load_is_planned: "Plan the capacity" => command_line::planned;
    completions_and_the_manual_are_printed: "Scripts" => command_line::scripted;
}

#[test]
fn the_other_commands_of_console_blocks_install_the_program_or_name_a_url() {
    let features = include_str!("../../Cargo.toml");
    for command in [OPERATING, COMMAND_LINE].into_iter().flat_map(sections).flat_map(|section| section.others) {
        let is_known = match command.split_once(' ').unwrap() {
            ("export", setting) => {
                let (name, url) = setting.split_once('=').unwrap();
                ["IDEMPOTENT_STORE", "IDEMPOTENT_QUEUE", "IDEMPOTENT_OUTBOX"].contains(&name) && url.contains("://")
            }
            ("cargo", install) => {
                let named = install.split_once("--features ").map_or("", |(_, named)| named).split(',');
                let is_defined = |name: &str| features.contains(&format!("\n{name} = ["));
                install.starts_with("install --locked --path ") && named.filter(|name| !name.is_empty()).all(is_defined)
            }
            _ => false,
        };
        assert!(is_known, "{command}");
    }
}
