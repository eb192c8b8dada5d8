//! Reading and writing.
use idempotent_testkit::history::{History, Kind};

const WON: &str = r#"{"t":2,"t0":1,"worker":3,"key":"k","event":"claim_won","token":"000000000000000000000000000000ff","fence":7,"lease_ms":30000,"fp":"ab"}"#;
const CRASH: &str = r#"{"t":5,"t0":5,"worker":"w-3","event":"crash"}"#;
const TRUTH: &str =
    r#"{"t":9,"t0":9,"worker":0,"key":"k","event":"effect_truth","tokens":["000000000000000000000000000000ff"]}"#;

#[test]
fn a_history_is_written_back_byte_for_byte() {
    let text = format!("{WON}\n{CRASH}\n{TRUTH}\n");
    let history: History = text.parse().unwrap();
    assert_eq!(history.to_text(), text);
    assert_eq!(history.lines[0].fence, Some(7));
    assert_eq!(history.lines[2].tokens.as_ref().map(Vec::len), Some(1));
}

#[test]
fn lines_come_in_the_order_their_calls_ended() {
    let history: History = format!("{TRUTH}\n\n{WON}\n{CRASH}\n").parse().unwrap();
    let order: Vec<_> = history.lines.iter().map(|line| line.event).collect();
    assert_eq!(order, [Kind::ClaimWon, Kind::Crash, Kind::EffectTruth]);
}

#[test]
fn reading_the_last_records_needs_no_time_of_its_own() {
    let truth = r#"{"key":"k","event":"effect_truth","tokens":[]}"#;
    let history: History = format!("{WON}\n{truth}\n").parse().unwrap();
    assert_eq!((history.lines[1].t0, history.lines[1].t), (2, 2));
}

#[test]
fn fields_that_are_not_in_the_format_are_ignored() {
    let history: History = CRASH.replace('}', r#","pid":17}"#).parse().unwrap();
    assert_eq!(history.to_text().trim(), CRASH);
}

#[test]
fn every_event_has_a_name_of_its_own_and_is_read_by_it() {
    for kind in Kind::ALL {
        let text = format!(
            r#"{{"t":1,"t0":1,"worker":1,"key":"k","event":"{kind}","token":"{:032x}","fence":1,"tokens":[]}}"#,
            1
        );
        assert_eq!(text.parse::<History>().unwrap().lines[0].event, *kind);
    }
}

#[test]
fn a_bad_line_is_named_with_its_number_the_rule_and_what_to_do() {
    for (bad, words) in [
        ("nonsense", ["line 2", "one JSON object", "expected"]),
        (r#"{"t":1,"t0":1,"worker":1,"key":"k"}"#, ["line 2", "`event` is missing", "names its event"]),
        (r#"{"t":1,"t0":1,"worker":1,"key":"k","event":"claim_wan"}"#, ["line 2", "claim_wan", "claim_won"]),
        (r#"{"t0":1,"worker":1,"key":"k","event":"ack"}"#, ["line 2", "no `t`", "in ns"]),
        (r#"{"t":1,"worker":1,"key":"k","event":"mismatch"}"#, ["line 2", "no `t0`", "in ns"]),
        (r#"{"t":1,"t0":2,"worker":1,"key":"k","event":"ack"}"#, ["line 2", "is after", "one clock"]),
        (r#"{"t":1,"t0":1,"key":"k","event":"ack"}"#, ["line 2", "no `worker`", "incarnation"]),
        (r#"{"t":1,"t0":1,"worker":1,"event":"ack"}"#, ["line 2", "no `key`", "only crash"]),
        (r#"{"t":1,"t0":1,"worker":1,"key":"k","event":"renew_ok"}"#, ["line 2", "no `token`", "owner token"]),
        (&WON.replace("ff\"", "f\""), ["line 2", "32 hex digits", "032x"]),
        (&WON.replace("00ff\"", "00fg\""), ["line 2", "32 hex digits", "032x"]),
        (&WON.replace("\"fence\":7,", ""), ["line 2", "no `fence`", "granted"]),
        (&TRUTH.replace("tokens", "token_list"), ["line 2", "no `tokens`", "[]"]),
    ] {
        let error = format!("{CRASH}\n{bad}\n").parse::<History>().unwrap_err();
        let text = error.to_string();
        assert!(words.iter().all(|word| text.contains(word)), "{text}");
        assert_eq!(error.number(), 2);
    }
}
