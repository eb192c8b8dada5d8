//! Bugs of adapters, and the laws that find them.

macro_rules! bugs {
    ($($bug:ident: $($law:ident)+;)+) => {
        #[derive(Clone, Copy, Debug, Eq, PartialEq)]
        pub enum Bug {
            $($bug,)+
        }

        impl Bug {
            pub const ALL: &'static [Self] = &[$(Self::$bug,)+];
        }

        pub fn laws_about(bug: Bug) -> &'static [&'static str] {
            match bug {
                $(Bug::$bug => &[$(stringify!($law)),+],)+
            }
        }
    };
}

bugs! {
    AckForgotten: an_acknowledged_delivery_is_never_redelivered deliveries_are_settled_in_any_order;
    AckTakesAllBefore: deliveries_are_settled_in_any_order;
    LostAtCrash: an_unsettled_delivery_is_redelivered_after_the_end_of_its_consumer;
    DroppedTagIsHeld: a_delivery_dropped_unsettled_is_redelivered;
    LostAtCut: deliveries_of_a_cut_connection_are_redelivered;
    GoneAtCut: deliveries_of_a_cut_connection_are_redelivered;
    EndsAtCut: a_consumer_continues_after_its_connections_were_cut a_run_that_ends_during_an_outage_is_not_repeated;
    StaleTagAcks: deliveries_of_a_cut_connection_are_redelivered a_late_settlement_brings_no_message_back;
    BodyEndsAtNul: a_body_arrives_unchanged;
    BodyCutOff: a_body_arrives_unchanged;
    HeadersAsText: headers_arrive_unchanged;
    LastHeaderOfAName: repeated_headers_arrive_in_order;
    CopyWithOneHeaderOfAName: repeated_headers_arrive_in_order;
    DeadLetterWithOneHeaderOfAName: repeated_headers_arrive_in_order;
    LongCopyCutOff: a_body_arrives_unchanged;
    RetryAcked: a_retry_is_delivered_after_its_delay_and_never_before a_retry_leaves_attempt_and_first_seen
        a_duplicate_in_flight_is_deferred_and_acknowledged_after_the_run a_message_that_always_fails_is_dead_lettered_after_its_attempts;
    DelayIgnored: a_retry_is_delivered_after_its_delay_and_never_before;
    AttemptNotLeft: a_retry_leaves_attempt_and_first_seen;
    AttemptInAByte: a_retry_leaves_attempt_and_first_seen;
    FirstSeenInSeconds: a_retry_leaves_attempt_and_first_seen;
    CopyWithoutHeaders: a_retry_keeps_id_body_and_headers_byte_for_byte;
    CopyWithHeadersTurned: a_retry_keeps_id_body_and_headers_byte_for_byte;
    CopyWithoutId: a_retry_keeps_id_body_and_headers_byte_for_byte;
    MarksShown: a_retry_keeps_id_body_and_headers_byte_for_byte;
    CopyAsText: a_retry_keeps_id_body_and_headers_byte_for_byte;
    RetryCounts: a_postponed_delivery_is_the_same_attempt;
    DeadLetterNotKept: a_dead_letter_keeps_id_body_and_headers_byte_for_byte an_undecodable_body_is_dead_lettered_unchanged_without_a_run;
    DeadLetterNotAcked: a_dead_letter_keeps_id_body_and_headers_byte_for_byte;
    DeadLetterWithoutHeaders: a_dead_letter_keeps_id_body_and_headers_byte_for_byte;
    DeadLetterWithoutReason: a_dead_letter_states_reason_time_and_attempts;
    DeathsNotLeft: a_dead_letter_states_reason_time_and_attempts;
    DeathsNotRead: a_redriven_dead_letter_is_a_first_attempt_with_its_history;
    DeathsForgottenByRetry: a_redriven_dead_letter_is_a_first_attempt_with_its_history;
    UnreadableFailsForEver: an_unreadable_message_is_dead_lettered_and_blocks_nothing;
    UnreadableHasNoReason: an_unreadable_message_is_dead_lettered_and_blocks_nothing;
    UnreadableIsAcked: an_unreadable_message_is_dead_lettered_and_blocks_nothing;
    AttemptOutlivesDeath: a_redriven_dead_letter_is_a_first_attempt_with_its_history;
    DiscardDoesNothing: a_discarded_dead_letter_never_returns;
    DiscardTakesAllBefore: a_discarded_dead_letter_never_returns;
    DiscardPutsBack: a_discarded_dead_letter_never_returns;
    GoneLetterPutBack: two_redrives_at_once_put_each_letter_back_once;
    ReadLettersStayHidden: letters_that_were_read_are_there_after_their_handle_is_closed;
    GiveBackCounts: a_returned_delivery_is_redelivered_unchanged a_stopping_consumer_returns_waiting_deliveries;
    GiveBackAcks: a_returned_delivery_is_redelivered_unchanged a_stopping_consumer_returns_waiting_deliveries;
    GiveBackWaits: a_returned_delivery_is_redelivered_unchanged;
    GiveBackBeginsAnew: the_attempts_of_a_retry_survive_a_return;
    CloseKeepsStock: closing_returns_undelivered_messages;
    CloseGivesAllBack: closing_returns_undelivered_messages;
    DroppedReceiveLoses: a_dropped_receive_loses_no_delivery;
    RoomIgnored: a_receive_returns_at_most_the_requested_number;
    TagOfTheLastCall: deliveries_are_settled_concurrently;
    SecondRetryIsACopy: settling_twice_has_one_effect;
    SecondDeadLetterIsKept: settling_twice_has_one_effect;
    DoneBehindTheEnd: settling_after_the_end_of_the_consumer_is_done_or_refused;
    KeepAliveDoesNothing: an_extended_delivery_is_held_beyond_the_brokers_limit;
    IdOfTheDelivery: copies_of_one_message_run_once a_retry_keeps_id_body_and_headers_byte_for_byte
        a_run_that_ends_during_an_outage_is_not_repeated a_drain_during_an_outage_ends_and_each_message_runs_once;
    ForgedAttemptBelieved: what_a_producer_wrote_decides_neither_the_attempt_nor_the_queue_of_its_message;
    ForgedQueueBelieved: what_a_producer_wrote_decides_neither_the_attempt_nor_the_queue_of_its_message;
    LastInFirstOut: messages_of_one_key_run_in_order;
}
