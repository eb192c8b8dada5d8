//! Tests of the program of `cargo xtask sim`.
use std::fs;
use std::path::PathBuf;
use std::process::Command;

struct Said {
    code: i32,
    out: String,
    err: String,
}

impl Said {
    /// Returns the JSON object on the last line.
    fn closing(&self) -> serde_json::Value {
        let last = self.out.lines().last().unwrap_or_else(|| panic!("nothing on stdout: {}", self.err));
        serde_json::from_str(last).unwrap()
    }
}

fn sim(arguments: &[&str]) -> Said {
    let output = Command::new(env!("CARGO_BIN_EXE_idempotent-sim")).args(arguments).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Said { code: output.status.code().unwrap(), out: text(output.stdout), err: text(output.stderr) }
}

/// Returns the path of a file in the temporary folder of cargo.
fn file(name: &str) -> String {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name).to_str().unwrap().to_owned()
}

#[test]
fn a_campaign_ends_with_one_object() {
    let said = sim(&["--seeds", "40", "--first", "7"]);
    assert_eq!(said.code, 0, "{}", said.err);
    assert_eq!(said.out.lines().count(), 1);
    let closing = said.closing();
    for name in ["kills", "takeovers", "unknowns"] {
        assert!(closing[name].as_u64().unwrap() > 0, "{closing}");
    }
    assert_eq!((&closing["name"], &closing["seed"], &closing["violations"]), (&"sim".into(), &7.into(), &0.into()));
    assert!(closing["failing_seed"].is_null() && closing["seconds"].is_number() && closing["met"].is_boolean());
}

#[test]
fn a_campaign_in_which_nothing_happens_is_vacuous() {
    let quiet = (0..).find(|seed| sim(&["--seeds", "1", "--first", &seed.to_string()]).code != 0).unwrap();
    let said = sim(&["--seeds", "1", "--first", &quiet.to_string()]);
    assert_eq!(said.code, 2);
    assert!(said.err.contains("never happened"), "{}", said.err);
}

#[test]
fn a_seed_is_replayed_byte_for_byte_and_its_history_can_be_judged() {
    let (one, two) = (file("one.jsonl"), file("two.jsonl"));
    for path in [&one, &two] {
        let said = sim(&["--seed", "5", "--history", path]);
        assert_eq!((said.code, said.out.lines().count()), (0, 1), "{}", said.err);
    }
    let history = fs::read_to_string(&one).unwrap();
    assert!(history.lines().count() > 10);
    assert_eq!(history, fs::read_to_string(&two).unwrap());
    let shown = sim(&["--seed", "5"]);
    assert!(shown.out.starts_with(&history), "on stdout the history comes first");
    let judged = sim(&["--check", &one]);
    assert_eq!((judged.code, &judged.closing()["violations"]), (0, &0.into()), "{}", judged.err);
}

#[test]
fn a_history_that_breaks_an_invariant_is_refused_and_an_empty_one_vacuous() {
    let (bad, empty, broken) = (file("bad.jsonl"), file("empty.jsonl"), file("broken.jsonl"));
    let won = |t: u64, token: u64| {
        let t1 = t + 1;
        format!(
            r#"{{"t":{t1},"t0":{t},"worker":{token},"key":"k","event":"claim_won","token":"{token:032x}","fence":{token},"lease_ms":1000}}"#
        )
    };
    fs::write(&bad, format!("{}\n{}\n", won(1, 1), won(5, 2))).unwrap();
    fs::write(&empty, "").unwrap();
    fs::write(&broken, "{}\n").unwrap();
    let said = sim(&["--check", &bad]);
    assert_eq!((said.code, &said.closing()["violations"]), (1, &1.into()));
    assert!(said.err.contains("I1: ") && said.err.contains("lines 1, 2"), "{}", said.err);
    assert_eq!(sim(&["--check", &empty]).code, 2);
    let said = sim(&["--check", &broken]);
    assert!(said.code == 2 && said.err.contains("line 1: `event` is missing"), "{}", said.err);
}

#[test]
fn a_plan_is_played_from_a_file() {
    let path = file("plan.json");
    fs::write(&path, serde_json::to_string(&idempotent_simulator::Plan::of(5)).unwrap()).unwrap();
    let [by_plan, by_seed] = [sim(&["--plan", &path]), sim(&["--seed", "5"])].map(|said| {
        let history: Vec<_> = said.out.lines().map(str::to_owned).collect();
        history[..history.len() - 1].to_vec()
    });
    assert_eq!(by_plan, by_seed);
}

#[test]
fn bad_arguments_are_named_with_the_rule_and_the_remedy() {
    for (arguments, words) in [
        (&["--seds", "5"][..], ["`--seds`", "those below"]),
        (&["--seeds", "many"], ["\"many\"", "digits"]),
        (&["--seeds", "-1"], ["\"-1\"", "from 0 on"]),
        (&["--seeds", "0"], ["plays nothing", "1 or more"]),
        (&["--seed"], ["has no value", "after it"]),
        (&["--seed", "1", "--check", "x"], ["`--check`", "one of"]),
        (&["--history", "x"], ["`--history`", "--seed or --plan"]),
        (&["--seed", "1", "--level", "L2"], ["`--level`", "--check"]),
        (&["--check", "x", "--level", "L4"], ["L4", "L1, L2"]),
        (&["--check", "/no/such/file"], ["/no/such/file", "JSON lines"]),
        (&["--plan", "/no/such/file"], ["/no/such/file", "a plan as JSON"]),
        (&["--seed", "1", "--history", "/no/such/folder/x"], ["/no/such/folder/x", "can be written"]),
    ] {
        let said = sim(arguments);
        assert!(said.code == 2 && said.out.is_empty(), "{arguments:?}: {} {}", said.code, said.out);
        assert!(words.iter().all(|word| said.err.contains(word)), "{arguments:?}: {}", said.err);
    }
}
