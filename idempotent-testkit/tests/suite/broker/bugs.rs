//! What an adapter can do wrong, and which laws are about it.

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
    AckForgotten: an_acknowledged_delivery_never_comes_again deliveries_are_settled_in_any_order;
    AckTakesAllBefore: deliveries_are_settled_in_any_order;
    LostAtCrash: an_unsettled_delivery_comes_again_once_its_consumer_is_gone;
    DroppedTagIsHeld: what_is_dropped_unsettled_comes_again;
    LostAtCut: what_was_held_comes_again_when_its_connection_is_cut;
    GoneAtCut: what_was_held_comes_again_when_its_connection_is_cut;
    StaleTagAcks: what_was_held_comes_again_when_its_connection_is_cut;
    BodyEndsAtNul: any_body_comes_as_it_was_sent;
    BodyCutOff: any_body_comes_as_it_was_sent;
    HeadersAsText: headers_come_as_they_were_sent;
    LastHeaderOfAName: repeated_headers_come_in_their_order;
    CopyWithOneHeaderOfAName: repeated_headers_come_in_their_order;
    DeadLetterWithOneHeaderOfAName: repeated_headers_come_in_their_order;
    LongCopyCutOff: any_body_comes_as_it_was_sent;
    RetryAcked: a_retry_comes_not_before_its_delay_and_then_does a_retry_leaves_attempt_and_first_seen;
    DelayIgnored: a_retry_comes_not_before_its_delay_and_then_does;
    AttemptNotLeft: a_retry_leaves_attempt_and_first_seen;
    AttemptInAByte: a_retry_leaves_attempt_and_first_seen;
    FirstSeenInSeconds: a_retry_leaves_attempt_and_first_seen;
    CopyWithoutHeaders: a_retry_keeps_id_body_and_headers_byte_for_byte;
    CopyWithHeadersTurned: a_retry_keeps_id_body_and_headers_byte_for_byte;
    CopyWithoutId: a_retry_keeps_id_body_and_headers_byte_for_byte;
    MarksShown: a_retry_keeps_id_body_and_headers_byte_for_byte;
    CopyAsText: a_retry_keeps_id_body_and_headers_byte_for_byte;
    RetryCounts: a_delivery_put_off_is_the_same_attempt;
    DeadLetterNotKept: a_dead_letter_keeps_id_body_and_headers_byte_for_byte;
    DeadLetterNotAcked: a_dead_letter_keeps_id_body_and_headers_byte_for_byte;
    DeadLetterWithoutHeaders: a_dead_letter_keeps_id_body_and_headers_byte_for_byte;
    DeadLetterWithoutReason: a_dead_letter_says_why_when_and_how_often;
    DeathsNotLeft: a_dead_letter_says_why_when_and_how_often;
    DeathsNotRead: a_dead_letter_put_back_is_a_first_attempt_that_has_died;
    DeathsForgottenByRetry: a_dead_letter_put_back_is_a_first_attempt_that_has_died;
    UnreadableFailsForEver: an_unreadable_message_is_dead_lettered_and_blocks_nothing;
    UnreadableHasNoReason: an_unreadable_message_is_dead_lettered_and_blocks_nothing;
    UnreadableIsAcked: an_unreadable_message_is_dead_lettered_and_blocks_nothing;
    AttemptOutlivesDeath: a_dead_letter_put_back_is_a_first_attempt_that_has_died;
    GiveBackCounts: a_delivery_given_back_comes_again_as_it_was a_consumer_that_stops_gives_back_what_waits;
    GiveBackAcks: a_delivery_given_back_comes_again_as_it_was a_consumer_that_stops_gives_back_what_waits;
    GiveBackWaits: a_delivery_given_back_comes_again_as_it_was;
    GiveBackBeginsAnew: what_a_retry_left_outlasts_giving_back;
    CloseKeepsStock: closing_hands_back_what_was_not_handed_over;
    CloseGivesAllBack: closing_hands_back_what_was_not_handed_over;
    DroppedReceiveLoses: a_receive_that_is_dropped_loses_nothing;
    RoomIgnored: a_receive_brings_at_most_its_room;
    TagOfTheLastCall: deliveries_are_settled_side_by_side;
    SecondRetryIsACopy: settling_twice_has_one_effect;
    SecondDeadLetterIsKept: settling_twice_has_one_effect;
    DoneBehindTheEnd: settling_behind_the_consumers_end_is_done_or_refused;
    KeepAliveDoesNothing: what_is_kept_alive_is_held_beyond_the_brokers_limit;
    IdOfTheDelivery: copies_of_one_message_run_once a_retry_keeps_id_body_and_headers_byte_for_byte;
    LastInFirstOut: messages_of_one_key_run_in_their_order;
}
