//! Mutants of the outbox's statements. Without any condition or value of a statement, a test on SQLite must fail.
//!
//! Each mutant is a process with this program, whose environment selects the missing part.
#![allow(clippy::print_stdout, reason = "which test notices what is the result")]
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;
use std::{env, thread};

use idempotent_sqlx::Outbox;

use crate::outbox::mutant::{NAME, all};

/// Mutants that change nothing: the statement, what they are called, and why.
const EQUIVALENT: &[(&str, &str, &str)] = &[
    ("digests", "`id IN (?,?)` always holds", "answers more than is asked; what was not asked is not looked at"),
    ("known", "`id IN (?,?)` always holds", "answers more than is asked; what was not asked is not looked at"),
    ("settle", "`id IN (?,?)` always holds", "a nonce is the one of its message alone"),
    ("plan", "`t.due_at<=", "they come last, and `take` asks again"),
    ("plan", "`AND p.seq<t.seq` is `AND p.seq<=t.seq`, at 388", "it is not due later than itself"),
    ("take", "`seq IN (?,?)` always holds", "what was not planned is given back at once"),
    ("free", "`lease_by=?` always holds", "where the lease is over before it is given back, a minute later"),
    ("seen", "always holds", "answers more than is asked, and each row says what it is of"),
    ("consumed", "`kind=?` always holds", "no row of another kind has a digest as its id"),
    ("consumed", "`id IN (?,?)` always holds", "answers more than is asked; what was not asked is not looked at"),
    ("log", "`>` is `>=`", "the same place"),
    ("counts", "`status IN (0,3)` always holds", "each count has a condition of its own"),
];

struct Mutant {
    statement: &'static str,
    number: usize,
    what: String,
}

impl Mutant {
    /// The tests on SQLite, with it in their statements; the first that fails.
    fn noticed(&self) -> Option<String> {
        let mut tests = Command::new(env::current_exe().unwrap());
        // Those that look at plans, at large amounts, at outages and at Redis see nothing that the others do not.
        let tests = tests.args([
            "outbox::sqlite::",
            "--skip",
            "plans::",
            "--skip",
            "more_than_a_statement",
            "--skip",
            "what_cannot_be",
            "--skip",
            "outages::",
            "--skip",
            "lost_keys::",
        ]);
        let tests = tests.env(NAME, format!("{}:{}", self.statement, self.number));
        let mut running = tests.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let lines = BufReader::new(running.stdout.take().unwrap()).lines().map(Result::unwrap);
        // libtest reports a test that does not end after a minute.
        let failed = lines.into_iter().find(|line| line.ends_with(" ... FAILED") || line.contains("running for over"));
        // Others may wait for what never comes.
        let _ = running.kill();
        running.wait().unwrap();
        failed
    }
}

async fn mutants() -> Vec<Mutant> {
    let pool = sqlx::SqlitePool::connect("sqlite::memory:").await.unwrap();
    let outbox = Outbox::builder(pool).create(true).open().await.unwrap();
    let of = |(statement, text): (&'static str, String)| {
        let all = all(&text).into_iter().enumerate();
        all.map(move |(number, (what, _))| Mutant { statement, number, what })
    };
    outbox.__statements().into_iter().flat_map(of).collect()
}

#[tokio::test]
async fn every_twentieth_condition_taken_out_of_a_statement_is_noticed() {
    are_noticed(20).await;
}

mod extras {
    #[tokio::test]
    async fn each_condition_taken_out_of_a_statement_is_noticed() {
        super::are_noticed(1).await;
    }
}

/// Takes out one condition of every `nth`.
async fn are_noticed(nth: usize) {
    let all = mutants().await;
    let is = |mutant: &Mutant, (statement, what, _): &(&str, &str, &str)| {
        mutant.statement == *statement && mutant.what.contains(what)
    };
    let gone: Vec<_> = EQUIVALENT.iter().filter(|one| !all.iter().any(|mutant| is(mutant, one))).collect();
    assert!(gone.is_empty(), "explained, and not in the statements any more: {gone:#?}");
    let whole = Mutant { statement: "none", number: 0, what: "nothing".to_owned() };
    assert_eq!(whole.noticed(), None, "without any of them no test fails");
    let (same, mutants): (Vec<_>, Vec<_>) =
        all.iter().partition(|mutant| EQUIVALENT.iter().any(|same| is(mutant, same)));
    let mutants: Vec<_> = mutants.into_iter().step_by(nth).collect();
    let (next, missed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        while let Some(mutant) = mutants.get(next.fetch_add(1, Ordering::SeqCst)) {
            let began = Instant::now();
            let name = format!("{}: {}", mutant.statement, mutant.what);
            match mutant.noticed() {
                Some(test) => println!("{:?} {name}: {test}", began.elapsed()),
                None => missed.lock().unwrap().push(name),
            }
        }
    };
    thread::scope(|scope| {
        // They wait for most of the time.
        (0..4).for_each(|_| drop(scope.spawn(work)));
    });
    let missed = missed.into_inner().unwrap();
    let noticed = mutants.len() - missed.len();
    println!("{noticed} of {} are noticed; of {} in all {} change nothing", mutants.len(), all.len(), same.len());
    assert!(missed.is_empty(), "neither noticed nor explained: {missed:#?}");
}
