use super::super::remaining::Accepted;
use super::super::statements::Written;
use super::*;

fn left() -> Left {
    let written = |version, poison, void| Written { aggregate: "a".into(), version, poison, void };
    let kept = |seq, status, sends| Kept { seq, status, sends };
    Left {
        written: [
            ("m1".into(), written(1, false, false)),
            ("m2".into(), written(2, false, false)),
            ("m3".into(), written(3, true, false)),
            ("m4".into(), written(4, false, true)),
        ]
        .into(),
        effects: vec!["m1".into(), "m2".into()],
        stubs: [
            ("m1".into(), kept(1, OutboxStatus::Confirmed, 1)),
            ("m2".into(), kept(2, OutboxStatus::Confirmed, 1)),
            ("m3".into(), kept(3, OutboxStatus::Dead, 1)),
            ("m4".into(), kept(4, OutboxStatus::Void, 0)),
        ]
        .into(),
        unwanted: vec!["u1".into()],
        unwanted_stubs: [("u1".into(), kept(7, OutboxStatus::Dead, MOST_SENDS))].into(),
        // Sent again, it dies again.
        letters: vec!["m3".into(), "m3".into()],
        tape: None,
    }
}

fn with(change: fn(&mut Left)) -> Left {
    let mut left = left();
    change(&mut left);
    left
}

fn sent(of: &[(&str, &str)]) -> Vec<(u32, Note)> {
    let began = |(id, member): &(&str, &str)| Note::Began { id: (*id).into(), member: Some((*member).into()) };
    of.iter().map(|sent| (1, began(sent))).chain([alarmed(7, MOST_SENDS)]).collect()
}

fn tape(ids: &[&str]) -> Option<Vec<Accepted>> {
    let accepted = |(number, id): (usize, &&str)| Accepted { id: (*id).into(), position: format!("{number:09}") };
    Some(ids.iter().enumerate().map(accepted).collect())
}

fn alarmed(seq: i64, sends: u32) -> (u32, Note) {
    (2, Note::Alarmed { outbox: UNWANTED.into(), seq, sends })
}

fn found(seen: &[(u32, Note)], left: &Left) -> Vec<String> {
    judge(seen, left).1.into_iter().map(|found| found[..2].to_owned()).collect()
}

#[test]
fn committed_messages_take_effect_once_in_order_or_are_reported() {
    // What is sent again is out of turn by nature.
    let mut seen = sent(&[("m2", "a3"), ("m1", "a2"), ("m1", "a4"), ("m3", "a5")]);
    // The relay dies after the alert and before it marks the message.
    seen.push(alarmed(7, MOST_SENDS));
    seen.extend(vec![(1, Note::Fails { id: "m3".into() }); 13]);
    assert_eq!(found(&seen, &left()), Vec::<String>::new());
    assert_eq!(judge(&seen, &left()).0.sent_again, 1);
    // A delay queue has merged the copy; m1 counts once.
    let merged = with(|left| left.stubs.values_mut().filter(|stub| stub.seq == 2).for_each(|stub| stub.sends = 2));
    assert_eq!(judge(&seen, &merged).0.sent_again, 2);
    let taped = |left: &mut Left| left.tape = tape(&["m1", "m2", "m1", "m3"]);
    assert_eq!(found(&sent(&[]), &with(taped)), Vec::<String>::new());
}

#[test]
fn each_violation_is_found_separately() {
    for (left, finding) in [
        (with(|left| _ = left.effects.pop()), "O1"),
        (with(|left| left.effects.push("m1".into())), "O2"),
        (with(|left| left.effects.push("m3".into())), "O2"),
        (with(|left| left.effects.push("m9".into())), "O3"),
        (with(|left| _ = left.stubs.insert("m9".into(), left.stubs["m1"])), "O3"),
        (with(|left| _ = left.unwanted_stubs.insert("u9".into(), left.stubs["m1"])), "O3"),
        (with(|left| left.tape = tape(&["m1", "m9"])), "O3"),
        (with(|left| left.stubs.values_mut().take(1).for_each(|stub| stub.status = OutboxStatus::Unconfirmed)), "O5"),
        (with(|left| _ = left.stubs.insert("m1".into(), left.stubs["m3"])), "O5"),
        (with(|left| _ = left.stubs.remove("m1")), "O5"),
        (with(|left| _ = left.stubs.insert("m3".into(), left.stubs["m1"])), "O5"),
        (with(|left| left.tape = tape(&["m2", "m1"])), "O4"),
        (with(|left| left.unwanted.push("u2".into())), "O6"),
        (with(|left| left.letters.clear()), "O8"),
        (with(|left| left.letters.push("m1".into())), "O8"),
        (with(|left| left.letters.push("m9".into())), "O8"),
    ] {
        assert_eq!(found(&sent(&[]), &left), [finding], "{left:?}");
    }
    assert_eq!(found(&sent(&[("m1", "a3"), ("m2", "a2")]), &left()), ["O4"]);
}

#[test]
fn only_messages_given_up_are_reported() {
    let told = |alarms: &[(u32, Note)]| found(alarms, &left());
    assert_eq!(told(&[]), ["O6"], "nobody was told");
    let right = alarmed(7, MOST_SENDS);
    assert_eq!(told(&[right.clone(), alarmed(8, MOST_SENDS)]), ["O6"], "of another one");
    assert_eq!(told(&[right.clone(), alarmed(7, MOST_SENDS - 1)]), ["O6"], "too early");
    let other = Note::Alarmed { outbox: "idempotent_outbox".into(), seq: 3, sends: MOST_SENDS };
    assert_eq!(told(&[right.clone(), (1, other)]), ["O6"], "it was its consumer that put it aside");
    let stub = |status, sends| Kept { seq: 7, status, sends };
    for stub in [
        stub(OutboxStatus::Dead, MOST_SENDS + 1),
        stub(OutboxStatus::Unconfirmed, MOST_SENDS),
        stub(OutboxStatus::Confirmed, 1),
    ] {
        let mut left = left();
        left.unwanted_stubs.insert("u1".into(), stub);
        assert!(found(std::slice::from_ref(&right), &left).iter().all(|found| found == "O6"), "{stub:?}");
        assert!(!found(std::slice::from_ref(&right), &left).is_empty(), "{stub:?}");
    }
    let often = vec![(1, Note::Fails { id: "m3".into() }); 14];
    assert_eq!(told(&[&often[..], &[right]].concat()), ["O8"]);
}
