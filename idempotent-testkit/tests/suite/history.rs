//! Histories are read and written to the letter, and judged by what no order of overlapping calls explains.
mod explained;
mod format;
mod refused;

use idempotent_testkit::history::check::{Judge, Report};
use idempotent_testkit::history::{History, Kind, Line, Token};

/// A line from one ms to another, of key "k", by the worker of its token: 10 s of lease, 60 s of retention.
fn says(from: u64, to: u64, event: &str, token: u32, fence: u64) -> Line {
    let event = *Kind::ALL.iter().find(|kind| kind.name() == event).unwrap();
    let mut line = Line::new(to * 1_000_000, token, event);
    line.t0 = from * 1_000_000;
    line.key = (!event.is_of_a_worker()).then(|| "k".to_owned());
    line.token = (token > 0).then(|| Token(token.into()));
    line.fence = (fence > 0).then_some(fence);
    line.lease_ms = matches!(event, Kind::ClaimWon | Kind::RenewOk).then_some(10_000);
    line.retain_ms = matches!(event, Kind::CompleteOk | Kind::CompleteUnknown).then_some(60_000);
    line
}

/// Owner n is granted n at that ms.
fn gets(at: u64, owner: u32) -> Line {
    says(at, at + 1, "claim_won", owner, owner.into())
}

fn completes(at: u64, owner: u32, result: &str) -> Line {
    Line { result: Some(result.to_owned()), ..says(at, at + 1, "complete_ok", owner, owner.into()) }
}

fn works(at: u64, owner: u32) -> Line {
    says(at, at, "effect", owner, owner.into())
}

/// Creates a judge with all facts of a simulator, and without a margin.
fn knowing() -> Judge {
    let second = std::time::Duration::from_secs(1);
    Judge::new()
        .margin(second / 1_000)
        .drift(0)
        .nothing_hidden()
        .never_busy()
        .never_forced()
        .retain_failures(second * 3_600)
}

fn judged(judge: &Judge, lines: impl IntoIterator<Item = Line>) -> Report {
    judge.check(&History::new(lines.into_iter().collect()))
}

fn names(report: &Report) -> Vec<String> {
    report.violated().map(|invariant| invariant.to_string()).collect()
}

#[track_caller]
fn only(name: &str, judge: &Judge, lines: impl IntoIterator<Item = Line>) {
    let report = judged(judge, lines);
    assert_eq!(names(&report), [name], "{:#?}", report.findings);
}

#[track_caller]
fn fine(judge: &Judge, lines: impl IntoIterator<Item = Line>) {
    let report = judged(judge, lines);
    assert!(report.held(), "{:#?}", report.findings);
}
