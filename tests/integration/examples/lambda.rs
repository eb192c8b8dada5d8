//! The examples `lambda_sqs`, `lambda_streams` and `lambda_http`, from outside: the tests serve the interface of Lambda's runtime.
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use axum::Router;
use axum::extract::{Path, State};
use axum::response::IntoResponse;
use axum::routing::{get, post};
use idempotent_harness::servers::MotoServer;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::{Mutex, mpsc};

use crate::example::{Running, binary};

/// The interface that a function asks for events, and the function.
struct Lambda {
    events: mpsc::Sender<Event>,
    responses: mpsc::Receiver<Value>,
    function: Running,
}

struct Event {
    payload: Value,
    left: Duration,
}

type Interface = Arc<(Mutex<mpsc::Receiver<Event>>, mpsc::Sender<Value>)>;

async fn next(State(interface): State<Interface>) -> impl IntoResponse {
    let event = interface.0.lock().await.recv().await.unwrap();
    let deadline = (SystemTime::now() + event.left).duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let headers = [
        ("lambda-runtime-aws-request-id", "1".to_owned()),
        ("lambda-runtime-deadline-ms", deadline.as_millis().to_string()),
        ("lambda-runtime-invoked-function-arn", "arn:aws:lambda:eu-west-1:1:function:charge".to_owned()),
    ];
    (headers, event.payload.to_string())
}

async fn respond(State(interface): State<Interface>, Path((_, kind)): Path<(String, String)>, body: String) {
    // The test shows the text of an error.
    let answer = if kind == "response" { serde_json::from_str(&body).unwrap() } else { json!({ kind: body }) };
    interface.1.send(answer).await.unwrap();
}

impl Lambda {
    async fn start(example: &str, handler: &str, table: &MotoServer) -> Self {
        let ((events, received), (answer, responses)) = (mpsc::channel(1), mpsc::channel(1));
        let app = Router::new()
            .route("/2018-06-01/runtime/invocation/next", get(next))
            .route("/2018-06-01/runtime/invocation/{id}/{kind}", post(respond))
            .with_state(Arc::new((Mutex::new(received), answer)));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut function = Command::new(binary(example));
        function
            .env("AWS_LAMBDA_RUNTIME_API", listener.local_addr().unwrap().to_string())
            .env("AWS_LAMBDA_FUNCTION_NAME", "charge")
            .env("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "128")
            .env("AWS_LAMBDA_FUNCTION_VERSION", "1")
            .env("_HANDLER", handler)
            .env("AWS_REGION", "eu-west-1")
            .env("AWS_ACCESS_KEY_ID", "test")
            .env("AWS_SECRET_ACCESS_KEY", "test")
            .env("AWS_ENDPOINT_URL_DYNAMODB", format!("http://{}", table.address()));
        tokio::spawn(async move { axum::serve(listener, app).await });
        Self { events, responses, function: Running::spawn(&mut function) }
    }

    async fn send(&self, payload: Value, left: Duration) {
        assert!(self.events.send(Event { payload, left }).await.is_ok());
    }

    async fn invoke(&mut self, payload: Value) -> Value {
        self.send(payload, Duration::from_secs(60)).await;
        self.responses.recv().await.unwrap()
    }

    /// Sends these bodies with the ids `0`, `1`, … and returns the ids that are to be delivered again.
    async fn failures(&mut self, bodies: &[Value]) -> Vec<String> {
        reported(self.invoke(queue(bodies)).await)
    }
}

/// Returns an event of SQS.
fn queue(bodies: &[Value]) -> Value {
    let record = |(id, body): (usize, &Value)| json!({"messageId": id.to_string(), "body": body.to_string()});
    json!({"Records": bodies.iter().enumerate().map(record).collect::<Vec<_>>()})
}

fn reported(response: Value) -> Vec<String> {
    let items = response["batchItemFailures"].as_array().unwrap().iter();
    items.map(|item| item["itemIdentifier"].as_str().unwrap().to_owned()).collect()
}

fn order(number: u32, cents: u32) -> Value {
    json!({"number": number, "cents": cents})
}

#[tokio::test(flavor = "multi_thread")]
async fn exactly_the_failed_messages_of_a_batch_are_reported() {
    let table = MotoServer::start();
    let mut lambda = Lambda::start("lambda_sqs", "unused", &table).await;
    assert_eq!(lambda.failures(&[order(1, 500), order(2, 0), json!("what?"), order(3, 100)]).await, ["1", "2"]);
    // The orders that are done are acknowledged, and not charged again.
    assert_eq!(lambda.failures(&[order(1, 500), order(2, 300), order(3, 100)]).await, [""; 0]);
    let mut said = lambda.function.says(6);
    said.sort();
    let charged = [(1, 500), (2, 300), (3, 100)];
    let lines = charged
        .map(|(number, cents)| [format!("order {number}: charged {cents} cents"), format!("order {number}: charging")]);
    assert_eq!(said, lines.concat());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_the_deadline_ends_is_reported_and_its_key_is_free_after_the_lease() {
    let table = MotoServer::start();
    let mut lambda = Lambda::start("lambda_sqs", "unused", &table).await;
    let slow = json!({"number": 1, "cents": 500, "seconds": 600});
    lambda.send(queue(&[slow, order(2, 300)]), Duration::from_secs(10)).await;
    assert_eq!(reported(lambda.responses.recv().await.unwrap()), ["0"]);
    // In flight until the lease ends.
    assert_eq!(lambda.failures(&[order(1, 500)]).await, ["0"]);
    while !lambda.failures(&[order(1, 500)]).await.is_empty() {}
    lambda.function.says_at_last("order 1: charged 500 cents");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_function_that_is_killed_during_an_effect_leaves_a_key_that_its_successor_takes_over() {
    let table = MotoServer::start();
    let mut killed = Lambda::start("lambda_sqs", "unused", &table).await;
    let slow = json!({"number": 1, "cents": 500, "seconds": 600});
    killed.send(queue(&[slow]), Duration::from_secs(60)).await;
    killed.function.says_at_last("order 1: charging");
    killed.function.signal("-KILL");
    let mut next = Lambda::start("lambda_sqs", "unused", &table).await;
    while !next.failures(&[order(1, 500)]).await.is_empty() {}
    assert_eq!(next.function.says(2), ["order 1: charging", "order 1: charged 500 cents"]);
    assert_eq!(next.failures(&[order(1, 500)]).await, [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_in_order_ends_at_the_first_failure() {
    let table = MotoServer::start();
    let mut fifo = Lambda::start("lambda_streams", "fifo", &table).await;
    assert_eq!(fifo.failures(&[order(1, 500), order(2, 0), order(3, 100)]).await, ["1", "2"]);
    assert_eq!(fifo.function.says(1), ["order 1: charged 500 cents"]);

    let mut kinesis = Lambda::start("lambda_streams", "kinesis", &table).await;
    // Orders 4, 0 cents for order 5, and 6, in Base64.
    let data =
        ["eyJudW1iZXIiOjQsImNlbnRzIjo1MDB9", "eyJudW1iZXIiOjUsImNlbnRzIjowfQ==", "eyJudW1iZXIiOjYsImNlbnRzIjo1MDB9"];
    let record = |(place, data): (usize, &str)| {
        let kinesis = json!({"approximateArrivalTimestamp": 1.5, "data": data, "sequenceNumber": format!("s-{place}")});
        json!({"eventID": place.to_string(), "kinesis": kinesis})
    };
    let records: Vec<_> = data.into_iter().enumerate().map(record).collect();
    assert_eq!(reported(kinesis.invoke(json!({ "Records": records })).await), ["s-1", "s-2"]);
    assert_eq!(kinesis.function.says(1), ["order 4: charged 500 cents"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_change_of_a_table_is_indexed_once() {
    let table = MotoServer::start();
    let mut lambda = Lambda::start("lambda_streams", "table", &table).await;
    let change = |id: &str| {
        let dynamodb = json!({"ApproximateCreationDateTime": 1_700_000_000, "Keys": {"id": {"S": "o-1"}}, "SequenceNumber": id,
            "SizeBytes": 26, "StreamViewType": "KEYS_ONLY"});
        json!({"eventID": format!("e-{id}"), "eventName": "INSERT", "awsRegion": "eu-west-1", "dynamodb": dynamodb})
    };
    assert_eq!(reported(lambda.invoke(json!({"Records": [change("1"), change("2")]})).await), [""; 0]);
    assert_eq!(reported(lambda.invoke(json!({"Records": [change("2"), change("3")]})).await), [""; 0]);
    assert_eq!(lambda.function.says(3), ["indexed INSERT e-1", "indexed INSERT e-2", "indexed INSERT e-3"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_api_gateway_sends_twice_places_one_order() {
    let table = MotoServer::start();
    let mut lambda = Lambda::start("lambda_http", "unused", &table).await;
    let request = |subject: &str, key: &str| {
        let claims = json!({"jwt": {"claims": {"sub": subject}, "scopes": null}});
        let http = json!({"method": "POST", "path": "/orders", "protocol": "HTTP/1.1", "sourceIp": "127.0.0.1", "userAgent": "curl"});
        json!({
            "version": "2.0", "routeKey": "POST /orders", "rawPath": "/orders", "rawQueryString": "",
            "headers": {"content-type": "application/json", "idempotency-key": key},
            "requestContext": {"authorizer": claims, "http": http, "timeEpoch": 1_700_000_000_000_i64},
            "body": r#"{"sku":"kettle"}"#, "isBase64Encoded": false,
        })
    };
    let first = lambda.invoke(request("ada", "a1")).await;
    assert_eq!((&first["statusCode"], &first["body"]), (&json!(201), &json!("one kettle\n")));
    let again = lambda.invoke(request("ada", "a1")).await;
    assert_eq!((&again["statusCode"], &again["body"]), (&json!(201), &json!("one kettle\n")));
    assert_eq!(again["headers"]["idempotent-replayed"], "true", "{again}");
    // Another caller has keys of its own.
    lambda.invoke(request("eve", "a1")).await;
    assert_eq!(lambda.function.says(2), ["an order of one kettle"; 2]);
}

#[test]
fn the_program_of_the_chapter_is_the_example() {
    let (example, chapter) =
        (include_str!("../../../examples/lambda_sqs.rs"), include_str!("../../../guides/runtimes.md"));
    let (_, code) = example.split_once("\nuse std::time").unwrap();
    assert!(
        chapter.contains(&format!("```rust,ignore\nuse std::time{code}```\n")),
        "the chapter differs from\nuse std::time{code}"
    );
    assert_eq!(chapter.matches("```rust,ignore").count(), 1, "code that is not compiled");
}
