//! Stores that fail, errors of the setup, and the form of problems.
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::Response;
use idempotent_core::{
    Claim, ClaimHandle, ClaimRequest, Completion, DuplicateMessages, Executor, Key, Record, Release, Settled, Store,
    StoreCapabilities, StoreError, StoreErrorKind,
};
use idempotent_tower::{IdempotencyLayer, Problem as LayerProblem, ProblemKind};

use super::{by_user, layer, order, row};
use crate::Expected::{Body, Problem, Ran};
use crate::{Ask, Row, Step};

const MISSING: crate::Expected = Problem(400, "missing-key");

/// A store whose server is down.
#[derive(Debug)]
struct StoppedStore;

fn down<T>() -> Result<T, StoreError> {
    Err(StoreError::new(StoreErrorKind::NotApplied).because("the server is down"))
}

#[async_trait]
impl Store for StoppedStore {
    async fn claim(&self, _: &ClaimRequest) -> Result<Claim, StoreError> {
        down()
    }
    async fn renew(&self, _: &ClaimHandle, _: Duration) -> Result<Settled, StoreError> {
        down()
    }
    async fn complete(&self, _: &ClaimHandle, _: &Completion) -> Result<Settled, StoreError> {
        down()
    }
    async fn release(&self, _: &ClaimHandle, _: &Release) -> Result<Settled, StoreError> {
        down()
    }
    async fn peek(&self, _: &Key) -> Result<Option<Record>, StoreError> {
        down()
    }
    fn capabilities(&self) -> StoreCapabilities<'_> {
        StoreCapabilities::none()
    }
}

fn stopped() -> IdempotencyLayer {
    IdempotencyLayer::new(Executor::new(StoppedStore), by_user())
}

fn own_form(problem: LayerProblem) -> Response<Bytes> {
    match problem.kind() {
        ProblemKind::MissingKey => problem.detail("no key").to_response(),
        kind => Response::builder().status(418).header("x-code", kind.code()).body("own form".into()).unwrap(),
    }
}

pub(super) fn rows() -> Vec<Row> {
    let invalid = layer().lease(Duration::from_secs(10)).heartbeat(Duration::from_secs(9));
    let localized = layer().message(DuplicateMessages::english_and_chinese());
    let in_language = |language: &str| order("a").header("accept-language", language);
    vec![
        row(
            "nothing runs while the store is unavailable",
            stopped(),
            0,
            vec![(order("a"), Problem(503, "store-unavailable").with("retry-after", "1"))],
        ),
        row(
            "handlers can run without protection during an outage",
            stopped().fail_open(true),
            2,
            vec![(order("a"), Ran(1)), (order("a"), Ran(2))],
        ),
        row(
            "invalid settings are an error of the server",
            invalid,
            1,
            vec![(order("a"), Problem(500, "misconfigured")), (Ask::get("/orders"), Ran(1))],
        ),
        row(
            "a layer without methods rejects all requests",
            layer().methods([]),
            0,
            vec![(order("a"), Problem(500, "misconfigured")), (Ask::get("/orders"), Problem(500, "misconfigured"))],
        ),
        row(
            "problems have configurable links",
            layer().docs_link("/docs/keys"),
            0,
            vec![(Ask::post("/orders"), MISSING.with("link", "</docs/keys>; rel=\"describedby\""))],
        ),
        row(
            "a function creates the responses of problems",
            layer().problem_response(own_form),
            0,
            vec![(Ask::post("/orders"), MISSING), (order("a,b"), Body(418, b"own form").with("x-code", "invalid-key"))],
        ),
        Row {
            name: "the text for a duplicate has the language of its request",
            layer: localized,
            steps: vec![
                Step::Begin(order("a").hold(1)),
                Step::Send(in_language("zh-Hans, en;q=0.5"), Problem(409, "in-flight").with("content-language", "zh")),
                Step::Send(in_language("en, zh;q=0.5"), Problem(409, "in-flight").with("content-language", "en")),
                Step::Open(Ran(1)),
            ],
            runs: 1,
        },
    ]
}
