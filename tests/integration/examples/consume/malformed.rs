//! Lines that cannot be consumed, and lines that look so and can.
use crate::consume::support::Job;

/// Each bad line between two good ones: reported with its number, kept to the byte, and the rest goes on.
#[track_caller]
fn refused(arguments: &[&str], line: &[u8], reason: &str) {
    let input =
        [b"{\"delivery_id\":\"a\",\"a\":{\"b\":1}}\n\n", line, b"\n{\"delivery_id\":\"b\",\"a\":{\"b\":2}}\n"].concat();
    let job = Job::over(&input);
    let ended = job.run(&[&["--json"], arguments].concat()).exits(1);
    let counts = ended.counts(["deliveries", "distinct_keys", "executed", "malformed"]);
    assert_eq!(counts, [3, 2, 2, 1], "{reason}");
    assert_eq!(job.dead_letters(), [line, b"\n"].concat());
    let told = format!("line 3 is malformed: {reason}");
    assert!(ended.stderr.contains(&told), "{told} in {}", ended.stderr);
}

#[test]
fn lines_that_are_no_objects() {
    for (line, reason) in [
        (&b"nonsense"[..], "not JSON: "),
        (b"{\"delivery_id\":\"x\"", "not JSON: "),
        (b"{\"delivery_id\":\"x\"} {}", "not JSON: "),
        (b"{\"delivery_id\":\"x\",\"y\":01}", "not JSON: "),
        (b"{'delivery_id':'x'}", "not JSON: "),
        (b"\xef\xbb\xbf{\"delivery_id\":\"x\"}", "not JSON: "),
        (b"{\"delivery_id\":\"\xff\xfe\"}", "not UTF-8: "),
        (b"{\"delivery_id\":\"x\",\"y\":\"\x80\"}", "not UTF-8: "),
        (b"[{\"delivery_id\":\"x\"}]", "not a JSON object but an array"),
        (b"\"delivery_id\"", "not a JSON object but a string"),
        (b"7", "not a JSON object but a number"),
        (b"null", "not a JSON object but null"),
        (b"true", "not a JSON object but a boolean"),
    ] {
        refused(&[], line, reason);
    }
}

#[test]
fn objects_without_a_usable_key() {
    let long = format!("{{\"delivery_id\":\"{}\"}}", "k".repeat(1025));
    let wide = format!("{{\"delivery_id\":\"{}\"}}", "\u{e9}".repeat(513));
    let digits = format!("{{\"delivery_id\":{}}}", "1".repeat(1025));
    for (line, reason) in [
        (&b"{}"[..], "no `delivery_id`"),
        (b"{\"Delivery_id\":\"x\"}", "no `delivery_id`"),
        (b"{\"x\":{\"delivery_id\":\"x\"}}", "no `delivery_id`"),
        (b"{\"delivery_id\":\"\"}", "`delivery_id` is empty"),
        (long.as_bytes(), "`delivery_id` has 1025 bytes, more than 1024"),
        (wide.as_bytes(), "`delivery_id` has 1026 bytes, more than 1024"),
        (digits.as_bytes(), "`delivery_id` has 1025 bytes, more than 1024"),
        (b"{\"delivery_id\":true}", "`delivery_id` is a boolean, neither string nor number"),
        (b"{\"delivery_id\":null}", "`delivery_id` is null, neither string nor number"),
        (b"{\"delivery_id\":[\"x\"]}", "`delivery_id` is an array, neither string nor number"),
        (b"{\"delivery_id\":{\"x\":1}}", "`delivery_id` is an object, neither string nor number"),
        (b"{\"delivery_id\":\"\\ud800\"}", "`delivery_id` is no text: "),
        (b"  {\"delivery_id\":\"\"}\r", "`delivery_id` is empty"),
    ] {
        refused(&[], line, reason);
    }
}

#[test]
fn a_path_that_leads_nowhere() {
    for (line, reason) in [
        (&b"{\"a\":{}}"[..], "no `a.b`"),
        (b"{\"b\":1}", "no `a.b`"),
        (b"{\"a.b\":1}", "no `a.b`"),
        (b"{\"a\":[{\"b\":1}]}", "no `a.b`: what should hold `b` is an array"),
        (b"{\"a\":null}", "no `a.b`: what should hold `b` is null"),
        (b"{\"a\":{\"b\":false}}", "`a.b` is a boolean"),
    ] {
        refused(&["--key", "a.b"], line, reason);
    }
}

#[test]
fn a_well_formed_line_is_read_as_written() {
    let longest = "k".repeat(1024);
    let deep = "[".repeat(5_000) + &"]".repeat(5_000);
    let lines = [
        "{\"delivery_id\":1}".to_owned(),
        // The same key: producers disagree on which to send.
        " {\"delivery_id\":\"1\"} \r".to_owned(),
        "{\"delivery_id\":1.0}".to_owned(),
        "{\"delivery_id\":123456789012345678901234567890}".to_owned(),
        "{\"delivery_id\":123456789012345678901234567891}".to_owned(),
        format!("{{\"delivery_id\":\"{longest}\"}}"),
        "{\"delivery_id\":\"\\u0041\\n\"}".to_owned(),
        "{\"delivery_id\":\" \"}".to_owned(),
        "{\"delivery_id\":\"first\",\"delivery_id\":\"last\"}".to_owned(),
        format!("{{\"deep\":{deep},\"delivery_id\":\"deep\"}}"),
    ];
    let job = Job::over(lines.join("\n").as_bytes());
    let ended = job.run(&["--json"]).exits(0);
    assert_eq!(ended.counts(["deliveries", "distinct_keys", "executed", "replayed"]), [10, 9, 9, 1]);
    let effects = job.effects();
    for key in [
        "1",
        "1.0",
        "123456789012345678901234567890",
        "123456789012345678901234567891",
        &longest,
        "A\n",
        " ",
        "last",
        "deep",
    ] {
        assert_eq!(effects.get(key), Some(&1), "{key}");
    }
}

#[test]
fn the_key_may_lie_deeper() {
    let ended = Job::new().run(&["--json", "--key", "payload.repository.id"]);
    // Some webhooks are about no repository.
    let [deliveries, executed, replayed, malformed] = ended.counts(["deliveries", "executed", "replayed", "malformed"]);
    assert_eq!((deliveries, executed + replayed + malformed), (494, 494));
    let keys = std::fs::read_to_string(crate::consume::support::webhooks()).unwrap();
    let keys = keys.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let ids: Vec<_> = keys.filter_map(|line| line["payload"]["repository"]["id"].as_u64()).collect();
    assert_eq!(malformed, 494 - ids.len() as u64);
    assert_eq!(executed, ids.iter().collect::<std::collections::HashSet<_>>().len() as u64);
    ended.exits(1);
}

#[test]
fn a_line_that_is_too_long_is_dead_lettered_without_being_buffered() {
    let mut input = b"{\"delivery_id\":\"a\",\"fill\":\"".to_vec();
    input.extend(b"x".repeat(40 << 20));
    input.extend(b"\"}\n");
    let long = input.clone();
    input.extend(b"{\"delivery_id\":\"b\"}\n");
    let job = Job::over(&input);
    let ended = job.run(&["--json"]).exits(1);
    assert_eq!(ended.counts(["deliveries", "executed", "malformed"]), [2, 1, 1]);
    assert!(ended.stderr.contains("line 1 is malformed: longer than 16777216 bytes"), "{}", ended.stderr);
    assert!(job.dead_letters() == long);
}

#[test]
fn a_last_line_without_an_end_is_kept_so() {
    let job = Job::over(b"one\r\ntwo\n\nthree");
    job.run(&["--json"]).exits(1);
    assert_eq!(job.dead_letters(), b"one\r\ntwo\nthree");
    // The file is emptied at each start.
    job.run(&["--json"]).exits(1);
    assert_eq!(job.dead_letters(), b"one\r\ntwo\nthree");
}

#[test]
fn each_malformed_line_is_reported_with_its_number_and_then_by_common_cause() {
    let line = b"{\"id\":1,\"event\":\"push\",\"a\\nb\":null}\n";
    let ended = Job::over(&line.repeat(13)).run(&["--json"]).exits(1);
    for number in 1..=13 {
        let told = format!("line {number} is malformed: no `delivery_id`");
        assert!(ended.stderr.contains(&told), "{}", ended.stderr);
    }
    let fields = "no line has `delivery_id`; the first one has `id`, `event`, `a\\nb`: name the key's with --key\n";
    assert!(ended.stderr.ends_with(fields), "{}", ended.stderr);
}

#[test]
fn fields_are_listed_only_where_no_line_has_the_key() {
    for other in [&b"{\"delivery_id\":1}\n"[..], b"{\"delivery_id\":\"\"}\n", b"no\n"] {
        let ended = Job::over(&[b"{\"id\":1}\n", other].concat()).run(&["--json"]).exits(1);
        assert!(!ended.stderr.contains("no line has"), "{}", ended.stderr);
    }
    let many: Vec<_> = (0..30).map(|number| format!("\"f{number}\":{number}")).collect();
    let ended = Job::over(format!("{{{}}}", many.join(",")).as_bytes()).run(&["--json"]).exits(1);
    assert!(ended.stderr.contains("`f18`, `f19`, \u{2026}: name"), "{}", ended.stderr);
    let ended = Job::over(b"{}\n").run(&["--json"]).exits(1);
    assert!(ended.stderr.contains("the first one has no fields"), "{}", ended.stderr);
}
