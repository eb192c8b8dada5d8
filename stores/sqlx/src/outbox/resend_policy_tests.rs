//! Tests of the resend policy: all combinations of its inputs, and the limits.
use super::*;

const NOW: Timestamp = Timestamp(1_750_000_000_000_000);

fn before(time: Duration) -> Timestamp {
    Timestamp(NOW.0 - u64::try_from(time.as_micros()).expect("short"))
}

fn resends() -> ResendPolicy {
    ResendPolicy::new().max_sends(3).log_age(Duration::from_secs(60)).quiet(Duration::from_secs(3_600))
}

/// Returns a message that was sent twice, to offset 7, and is lost.
fn lost() -> (OutboxRecord, ConsumerProgress) {
    let record = OutboxRecord {
        seq: 1,
        status: OutboxStatus::Unconfirmed,
        sends: 2,
        failures: 0,
        queue: Some("orders#1".into()),
        place: Some(QueueOffset::of(7)),
        due_at: Some(NOW),
        created_at: before(Duration::from_secs(1_000)),
        sent_at: Some(before(Duration::from_secs(600))),
        last_error: None,
    };
    (record, ConsumerProgress { logged_at: None, reached: Some(QueueOffset::of(8)) })
}

#[test]
fn only_the_one_of_all_32_combinations_with_all_five_conditions_is_sent() {
    let mut sent = Vec::new();
    for row in 0..32u32 {
        let holds = |condition: u32| row >> condition & 1 == 1;
        let (mut record, mut seen) = lost();
        if !holds(0) {
            record.status = OutboxStatus::Confirmed;
        }
        if !holds(1) {
            record.sends = 3;
        }
        if !holds(2) {
            record.due_at = Some(Timestamp(NOW.0 + 1));
        }
        if !holds(3) {
            seen.reached = Some(QueueOffset::of(7));
        }
        if !holds(4) {
            seen.logged_at = Some(before(Duration::from_secs(1)));
        }
        let verdict = resends().decide(&record, &seen, NOW);
        if verdict == ResendDecision::Send {
            sent.push(row);
        }
        // All but the count: one alert, no sending.
        assert_eq!(verdict == ResendDecision::GiveUp, row == 0b11101, "{row:b}");
    }
    assert_eq!(sent, [0b11111]);
}

#[test]
fn next_send_is_when_its_time_has_come_and_not_before() {
    let (mut record, seen) = lost();
    assert_eq!(resends().decide(&record, &seen, NOW), ResendDecision::Send, "due now");
    record.due_at = Some(Timestamp(NOW.0 + 1));
    assert_eq!(resends().decide(&record, &seen, NOW), ResendDecision::Wait(DeferReason::NotDue));
    record.due_at = None;
    assert_ne!(resends().decide(&record, &seen, NOW), ResendDecision::Send);
}

#[test]
fn neither_void_nor_dead_nor_confirmed_is_ever_sent() {
    for status in [OutboxStatus::Confirmed, OutboxStatus::Void, OutboxStatus::Dead] {
        let (record, seen) = lost();
        assert_eq!(resends().decide(&OutboxRecord { status, ..record }, &seen, NOW), ResendDecision::Leave);
    }
    assert_eq!(OutboxStatus::of(99), OutboxStatus::Void, "of a later version");
}

#[test]
fn the_last_sending_is_allowed_and_the_next_one_gives_up() {
    let (record, seen) = lost();
    let verdicts = [2, 3, 4].map(|sends| resends().decide(&OutboxRecord { sends, ..record.clone() }, &seen, NOW));
    assert_eq!(verdicts, [ResendDecision::Send, ResendDecision::GiveUp, ResendDecision::GiveUp]);
    assert_eq!(ResendPolicy::new().max_sends(0), ResendPolicy::new().max_sends(1));
}

#[test]
fn a_log_row_past_its_age_blocks_no_more_and_shows_that_a_consumer_had_it() {
    let (record, _) = lost();
    let seen = |age: u64| ConsumerProgress {
        logged_at: Some(before(Duration::from_secs(age))),
        reached: Some(QueueOffset::of(7)),
    };
    assert_eq!(resends().decide(&record, &seen(59), NOW), ResendDecision::Wait(DeferReason::BeingConsumed));
    // The message was the last of its queue: no consumer has passed its offset, and none will.
    assert_eq!(resends().decide(&record, &seen(60), NOW), ResendDecision::Send);
    // Logged by a clock that is ahead: being consumed.
    let ahead = ConsumerProgress { logged_at: Some(Timestamp(NOW.0 + 5)), reached: None };
    assert_eq!(resends().decide(&record, &ahead, NOW), ResendDecision::Wait(DeferReason::BeingConsumed));
}

#[test]
fn without_a_place_time_alone_decides_and_without_a_consumer_it_is_queued() {
    let (record, _) = lost();
    let nobody = ConsumerProgress::default();
    assert_eq!(resends().decide(&record, &nobody, NOW), ResendDecision::Wait(DeferReason::Queued));
    assert_eq!(resends().decide(&OutboxRecord { place: None, ..record.clone() }, &nobody, NOW), ResendDecision::Send);
    let old = OutboxRecord { sent_at: Some(before(Duration::from_secs(3_600))), ..record.clone() };
    assert_eq!(resends().decide(&old, &nobody, NOW), ResendDecision::Send, "quiet for too long");
    let never = OutboxRecord { sends: 0, sent_at: None, place: None, ..record };
    assert_eq!(resends().decide(&never, &nobody, NOW), ResendDecision::Send);
}

#[test]
fn the_next_time_grows_with_each_sending_and_has_the_backlog_on_top() {
    let second = Duration::from_secs(1);
    let resends = ResendPolicy::new().backoff(10 * second, 40 * second).backlog(5 * second);
    assert_eq!([1, 2, 3, 4, 50].map(|sends| resends.next(sends).as_secs()), [15, 25, 45, 45, 45]);
}

#[test]
fn a_message_that_is_not_lost_is_checked_again_after_the_set_time() {
    let policy = |after| ResendPolicy::new().look_again(after).look_again;
    assert_eq!(policy(Duration::from_secs(7)), Duration::from_secs(7));
    assert_eq!(policy(Duration::ZERO), Duration::from_millis(1));
}
