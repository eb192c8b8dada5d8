//! A run of this program under callgrind, and the counts in its output.
use std::collections::BTreeMap;
use std::process::{Command, Stdio};

use crate::ONE;
use crate::cases::Case;

/// The parts, each with the texts that its functions contain. The text that occurs first in the name of a function decides, so
/// that `drop_in_place::<idempotent_mq::…>` belongs to the consumer.
const PARTS: [(&str, &[&str]); 10] = [
    ("SHA-256", &["sha2::"]),
    ("queue in memory", &["idempotent_mq::memory_queue::"]),
    ("consumer", &["idempotent_mq::"]),
    ("store in memory", &["idempotent_core::store::memory"]),
    ("executor", &["idempotent_core::", "idempotent_tower::"]),
    ("store on Redis", &["idempotent_redis::"]),
    ("client of Redis", &["redis::"]),
    ("runtime", &["tokio::"]),
    ("router", &["axum::", "axum_core::", "tower::", "hyper::", "http::"]),
    ("allocator", &["malloc", "free", "calloc", "realloc", "unlink_chunk", "__rust_alloc", "__rust_dealloc"]),
];

/// Runs a case under callgrind, and returns the instructions of each part, without SHA-256.
pub fn count(case: &Case) -> BTreeMap<&'static str, u64> {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("callgrind");
    let valgrind = Command::new("valgrind")
        .args(["--tool=callgrind", "--quiet", "--collect-atstart=no", "--toggle-collect=*cases::measured*"])
        .arg(format!("--callgrind-out-file={}", output.display()))
        .arg(std::env::current_exe().unwrap())
        .arg(format!("{ONE}{}", case.title()))
        .stdout(Stdio::null())
        .status();
    match valgrind {
        Ok(status) => assert!(status.success(), "{} under callgrind: {status}", case.title()),
        Err(error) => {
            panic!("cannot run valgrind: {error}; install it, for example by `apt install valgrind`")
        }
    }
    read(&std::fs::read_to_string(output).unwrap())
}

/// Reads the output of callgrind: a line `fn=` before the costs of a function itself, and a line `calls=` before the cost of a
/// call.
fn read(output: &str) -> BTreeMap<&'static str, u64> {
    let mut names = BTreeMap::new();
    let mut name = |text: &str| {
        // The first mention of an id has the name.
        let (id, rest) = text.split_once(')').unwrap();
        names.entry(id.to_owned()).or_insert_with(|| rest.trim_start().to_owned()).clone()
    };
    let mut parts = BTreeMap::new();
    let (mut part, mut of_call) = ("", false);
    for line in output.lines() {
        if let Some(function) = line.strip_prefix("fn=") {
            part = part_of(&name(function));
        } else if let Some(function) = line.strip_prefix("cfn=") {
            name(function);
        } else if line.starts_with("calls=") {
            of_call = true;
        } else if line.starts_with(|first: char| first.is_ascii_digit() || "+-*".contains(first)) {
            let cost: u64 = line.split(' ').nth(1).map_or(0, |cost| cost.parse().unwrap());
            if !std::mem::take(&mut of_call) && part != "SHA-256" {
                *parts.entry(part).or_default() += cost;
            }
        }
    }
    parts
}

fn part_of(function: &str) -> &'static str {
    let at = |texts: &[&str]| texts.iter().filter_map(|text| function.find(text)).min();
    PARTS
        .iter()
        .filter_map(|(part, texts)| Some((at(texts)?, *part)))
        .min_by_key(|(at, _)| *at)
        .map_or("rest", |it| it.1)
}
