//! Answers that moto does not give: what a client cannot read, and what a server on the way answers.
use aws_sdk_sqs::Client;
use aws_sdk_sqs::config::retry::RetryConfig;
use idempotent_mq::{OutboundMessage, Publish, PublishErrorKind};
use idempotent_sqs::SqsPublisher;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::world::client;

/// Starts a server that gives this answer to requests that send messages, and returns its address. Its queue is `orders`.
async fn answering(status: u16, body: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        while let Ok((connection, _)) = listener.accept().await {
            tokio::spawn(serve(connection, status, body));
        }
    });
    address
}

/// Answers the first request of a connection, and closes it.
async fn serve(mut connection: TcpStream, status: u16, body: &'static str) {
    let mut bytes = Vec::new();
    let (head, length) = loop {
        if connection.read_buf(&mut bytes).await.unwrap() == 0 {
            return;
        }
        let text = String::from_utf8_lossy(&bytes).to_ascii_lowercase();
        if let Some((head, _)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length:")).unwrap();
            break (head.to_owned(), length.trim().parse::<usize>().unwrap());
        }
    };
    while bytes.len() < head.len() + 4 + length {
        connection.read_buf(&mut bytes).await.unwrap();
    }
    let (status, body) = match head.contains("amazonsqs.sendmessage") {
        true => (status, body),
        false => (200, r#"{"QueueUrl": "http://127.0.0.1/1/orders"}"#),
    };
    let answer = format!(
        "HTTP/1.1 {status} X\r\ncontent-type: application/x-amz-json-1.0\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    connection.write_all(answer.as_bytes()).await.unwrap();
}

#[tokio::test]
async fn a_message_is_unconfirmed_unless_its_answer_says_that_it_was_refused() {
    use PublishErrorKind::{Refused, Unconfirmed};
    let refusal = r#"{"__type": "com.amazonaws.sqs#InvalidMessageContents", "message": "the reason"}"#;
    for (status, body, kind, part) in [
        (200, "}", Unconfirmed, "status 200"),
        (200, r#"{"Successful": [{"Id": 7}]}"#, Unconfirmed, "status 200"),
        (301, refusal, Unconfirmed, "status 301"),
        (403, "<html>blocked</html>", Unconfirmed, "status 403"),
        (503, "", Unconfirmed, "status 503"),
        (400, refusal, Refused, "the reason"),
    ] {
        let config = client(&answering(status, body).await).config().to_builder();
        let once = Client::from_conf(config.retry_config(RetryConfig::disabled()).build());
        let error = SqsPublisher::new(once).publish(&[OutboundMessage::new("orders", "m-1", "body")]).await;
        let error = error.into_iter().next().unwrap().unwrap_err();
        assert!(error.kind() == kind && error.to_string().contains(part), "{status}: {error}");
    }
}
