//! The command `audit`.
use std::fs;

use crate::sqlite::file;
use crate::support::{key, run_without_store as run};

#[tokio::test]
async fn the_changes_of_a_file_are_printed_and_an_intent_without_a_result_is_unknown() {
    let (_folder, url) = file().await;
    let log = tempfile::NamedTempFile::new().unwrap();
    let path = log.path().to_str().unwrap();
    for (command, order, by) in [("forget", "poison", "ann"), ("release", "held", "bob")] {
        let options = ["--store", &url, "--yes", "--reason", "stock corrected", "--audit", path, "--by", by];
        run(&[&[command, &key(order)], &options[..]].concat()).fails(0, "done");
    }
    let audit = |more: &[&str]| run(&[&["audit", "--audit", path], more].concat());
    let subjects = |more: &[&str]| {
        let lines = audit(more).lines();
        lines
            .iter()
            .map(|line| (line["subject"].as_str().unwrap().to_owned(), line["outcome"].clone()))
            .collect::<Vec<_>>()
    };
    let [poison, held] = ["poison", "held"].map(|order| (key(order), serde_json::Value::from("done")));
    assert_eq!(subjects(&[]), vec![poison.clone(), held.clone()]);
    assert_eq!(subjects(&["--by", "bob"]), vec![held.clone()]);
    assert_eq!(subjects(&["--action", "forget", "--since", "1h"]), vec![poison.clone()]);
    assert_eq!(subjects(&["--since", "2200-01-01T00:00:00Z"]), []);
    assert_eq!(subjects(&["--unknown"]), []);

    // The process was killed before the last result.
    let text = fs::read_to_string(path).unwrap();
    let cut = text.trim_end().rfind('\n').unwrap();
    fs::write(path, &text[..=cut]).unwrap();
    assert_eq!(subjects(&["--unknown"]), vec![(key("held"), serde_json::Value::from("unknown"))]);
    let table = audit(&["-o", "table"]);
    assert!(
        table.out.contains("  release  bob  ") && table.out.contains("  unknown  (stock corrected)\n"),
        "{table:?}"
    );
    assert_eq!(audit(&["-o", "key", "--unknown"]).out, format!("{}\n", key("held")));

    fs::write(path, format!("{}{{\"id\"", &text)).unwrap();
    let torn = audit(&["--action", "release"]);
    torn.fails(5, "1 lines of `");
    assert!(torn.err.contains("such as line 5") && torn.out.contains(&key("held")), "{torn:?}");
}

#[test]
fn a_file_that_is_missing_and_a_time_that_is_none_are_named() {
    run(&["audit"]).fails(2, "--audit <FILE>");
    run(&["audit", "--audit", "/no/such/file"]).fails(4, "the audit file `/no/such/file` does not exist");
    run(&["audit", "--audit", "x", "--since", "yesterday"]).fails(2, "or a duration, such as `24h`");
    let help = run(&["audit", "--help"]);
    assert!(help.code == 0 && help.out.contains("  idempotent audit --audit "), "{help:?}");
}
