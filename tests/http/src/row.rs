//! The rows of the table, and their check.
use std::net::SocketAddr;

use idempotent_tower::IdempotencyLayer;
use tokio::task::JoinHandle;

use crate::{Answer, Ask, Client, Shop, until};

/// A decision: the settings of a layer, and the requests that show it.
#[derive(Debug)]
pub struct Row {
    /// The decision, as a statement.
    pub name: &'static str,
    /// The layer.
    pub layer: IdempotencyLayer,
    /// The requests in order.
    pub steps: Vec<Step>,
    /// The number of runs of the handler after all steps.
    pub runs: u32,
}

/// A step of a row.
#[derive(Debug)]
pub enum Step {
    /// Sends a request and checks its response.
    Send(Ask, Expected),
    /// Sends a request whose handler waits, and continues when it has begun.
    Begin(Ask),
    /// Sends a request that waits for a run, without reading its response.
    Follow(Ask, Expected),
    /// Lets the waiting handlers continue, and checks the responses of the begun requests and their followers.
    Open(Expected),
}

/// The expected response.
#[derive(Clone, Debug)]
pub enum Expected {
    /// The response of the n-th run.
    Ran(u32),
    /// A replay of the n-th run.
    Replayed(u32),
    /// A problem with this status and code.
    Problem(u16, &'static str),
    /// A response with this status and this body.
    Body(u16, &'static [u8]),
    /// One of the above, with a header of this value.
    Header(Box<Expected>, &'static str, &'static str),
    /// One of the above, without this header.
    Without(Box<Expected>, &'static str),
}

impl Expected {
    /// Expects a header in addition.
    #[must_use]
    pub fn with(self, name: &'static str, value: &'static str) -> Self {
        Self::Header(Box::new(self), name, value)
    }

    /// Expects that a header is missing.
    #[must_use]
    pub fn without(self, name: &'static str) -> Self {
        Self::Without(Box::new(self), name)
    }

    fn check(&self, answer: &Answer) -> Result<(), String> {
        let holds = |is_so: bool| if is_so { Ok(()) } else { Err(format!("not {self:?}: {answer}")) };
        let of_run = |run: &u32| answer.body.starts_with(format!("{run}:").as_bytes()) || answer.status == 204;
        match self {
            Self::Ran(run) => holds(of_run(run) && !answer.is_replay()),
            Self::Replayed(run) => holds(of_run(run) && answer.is_replay()),
            Self::Body(status, body) => holds(answer.status == *status && answer.body == *body),
            Self::Problem(status, code) => problem(answer, *status, code),
            Self::Header(other, name, value) => {
                other.check(answer)?;
                holds(answer.headers.iter().any(|(known, line)| known == name && line == value))
            }
            Self::Without(other, name) => {
                other.check(answer)?;
                holds(answer.header(name).is_none())
            }
        }
    }
}

/// Checks for a problem in the form of RFC 9457.
fn problem(answer: &Answer, status: u16, code: &str) -> Result<(), String> {
    let body: serde_json::Value =
        serde_json::from_slice(&answer.body).map_err(|_| format!("no problem {code}: {answer}"))?;
    let retries = ["in-flight", "not-due", "draining", "interrupted", "store-unavailable"];
    let about_key = ["missing-key", "invalid-key", "key-reused"];
    let retry_after = answer.header("retry-after");
    let rules = [
        ("the status", answer.status == status && body["status"] == status),
        ("the code", body["code"] == code && body["type"].as_str().is_some_and(|uri| uri.ends_with(code))),
        ("the media type", answer.header("content-type") == Some("application/problem+json")),
        ("no-store", answer.header("cache-control") == Some("no-store")),
        ("no replay", !answer.is_replay()),
        ("a title", body["title"].as_str().is_some_and(|text| !text.is_empty())),
        ("a detail", body["detail"].as_str().is_some_and(|text| !text.is_empty())),
        ("retryable", body["retryable"].is_boolean()),
        ("Retry-After if a retry helps", !retries.contains(&code) || retry_after.is_some()),
        (
            "a Retry-After of at least 1 s",
            retry_after.is_none_or(|after| after.parse().is_ok_and(|after: u64| after > 0)),
        ),
        ("Link exactly for problems of the key", answer.header("link").is_some() == about_key.contains(&code)),
    ];
    match rules.iter().find(|(_, holds)| !holds) {
        None => Ok(()),
        Some((rule, _)) => Err(format!("problem {code}: {rule} does not hold: {answer}")),
    }
}

impl Row {
    /// Sends the requests to a server of the shop with the layer of this row.
    ///
    /// # Panics
    /// If a response or the number of runs differs from the row.
    pub async fn check(&self, address: SocketAddr, shop: &Shop) {
        let mut waiting: Vec<JoinHandle<Answer>> = Vec::new();
        let mut followers: Vec<(JoinHandle<Answer>, &Expected)> = Vec::new();
        for (number, step) in (1..).zip(&self.steps) {
            let checked = match step {
                Step::Send(ask, expected) => expected.check(&send(address, ask.clone()).await),
                Step::Begin(ask) => {
                    let before = shop.runs();
                    waiting.push(tokio::spawn(send(address, ask.clone())));
                    until("a run", async || shop.runs() > before).await;
                    Ok(())
                }
                Step::Follow(ask, expected) => {
                    followers.push((tokio::spawn(send(address, ask.clone())), expected));
                    Ok(())
                }
                Step::Open(expected) => {
                    shop.open();
                    let mut checked = Ok(());
                    for task in waiting.drain(..) {
                        checked = checked.and(expected.check(&task.await.unwrap()));
                    }
                    for (task, expected) in followers.drain(..) {
                        checked = checked.and(expected.check(&task.await.unwrap()));
                    }
                    checked
                }
            };
            if let Err(why) = checked {
                panic!("{}, step {number}: {why}", self.name);
            }
        }
        assert_eq!(shop.runs(), self.runs, "{}: the number of runs", self.name);
    }
}

/// Sends a request on its own connection. A server may refuse a body that is still being sent.
async fn send(address: SocketAddr, ask: Ask) -> Answer {
    let mut client = Client::connect(address).await;
    client.try_send(&ask.bytes()).await;
    client.answer().await
}
