//! A server with scripted answers, for what moto does not have.
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// The answers to one connection after the other. Dropping the value does not end a connection that is open.
pub(crate) struct Scripted {
    pub(crate) address: String,
    seen: Arc<Mutex<Vec<Request>>>,
}

/// The operation of a request, and its body without blanks.
pub(crate) type Request = (String, String);

/// The status and the body of an answer.
pub(crate) type Answer = (u16, String);

impl Scripted {
    /// Starts a server that answers each operation, such as `GetItem`.
    pub(crate) async fn start(answer: impl Fn(&str) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, seen, answer) =
            (listener.local_addr().unwrap().to_string(), Arc::<Mutex<Vec<Request>>>::default(), Arc::new(answer));
        let list = seen.clone();
        tokio::spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                let (seen, answer) = (list.clone(), answer.clone());
                tokio::spawn(async move { serve(connection, &seen, &*answer).await });
            }
        });
        Self { address, seen }
    }

    /// Returns the number of requests for an operation.
    pub(crate) fn count(&self, operation: &str) -> usize {
        self.bodies(operation).len()
    }

    /// Returns the bodies of the requests for an operation.
    pub(crate) fn bodies(&self, operation: &str) -> Vec<String> {
        let seen = self.seen.lock().unwrap();
        seen.iter().filter(|seen| seen.0 == operation).map(|seen| seen.1.clone()).collect()
    }
}

async fn serve(mut connection: TcpStream, seen: &Mutex<Vec<Request>>, answer: &(impl Fn(&str) -> Answer + Sync)) {
    while let Some((operation, body)) = request(&mut connection).await {
        seen.lock().unwrap().push((operation.clone(), body));
        let (status, body) = answer(&operation);
        let length = body.len();
        let head = format!(
            "HTTP/1.1 {status} X\r\ncontent-type: application/x-amz-json-1.0\r\ncontent-length: {length}\r\n\r\n"
        );
        connection.write_all((head + &body).as_bytes()).await.unwrap();
    }
}

/// Reads a request. Returns `None` at the end of the connection.
async fn request(connection: &mut TcpStream) -> Option<Request> {
    let mut bytes = Vec::new();
    let head = loop {
        if connection.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
        let text = String::from_utf8_lossy(&bytes);
        if let Some((head, _)) = text.split_once("\r\n\r\n") {
            break head.to_ascii_lowercase();
        }
    };
    let header = |name: &str| head.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned();
    let length: usize = header("content-length:").parse().unwrap();
    while bytes.len() < head.len() + 4 + length {
        connection.read_buf(&mut bytes).await.unwrap();
    }
    let operation = header("x-amz-target:").rsplit_once('.').unwrap().1.to_owned();
    Some((operation, String::from_utf8_lossy(&bytes[head.len() + 4..]).replace(' ', "")))
}

pub(crate) fn refusal(code: &str) -> Answer {
    (400, format!(r#"{{"__type": "com.amazonaws.dynamodb.v20120810#{code}", "message": "the reason"}}"#))
}

/// Returns the answer about a healthy table, with these other members of its description.
pub(crate) fn table(operation: &str, members: &str) -> Answer {
    let body = match operation {
        "describetable" => format!(
            r#"{{"Table": {{"TableName": "records", "TableStatus": "ACTIVE",
            "KeySchema": [{{"AttributeName": "id", "KeyType": "HASH"}}],
            "AttributeDefinitions": [{{"AttributeName": "id", "AttributeType": "S"}}]{members}}}}}"#
        ),
        "describetimetolive" => {
            r#"{"TimeToLiveDescription": {"TimeToLiveStatus": "ENABLED", "AttributeName": "ttl"}}"#.to_owned()
        }
        _ => "{}".to_owned(),
    };
    (200, body)
}
