//! The command `console`: its start, its login, and its targets.
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Stdio};

use idempotent::Outbox;
use idempotent::delay::DelayTable;
use idempotent::mq::OutboundMessage;
use idempotent::sqlx::SqlitePool;
use tempfile::TempDir;

use crate::support::{command, fill, key, run};

/// A running console.
struct Console {
    process: Child,
    /// The address without `http://`.
    address: String,
    /// The path that the console printed.
    path: String,
}

impl Drop for Console {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The status and the text of an answer, with its headers.
#[derive(Debug)]
struct Answer {
    status: u16,
    text: String,
}

impl Console {
    fn start(store: &str, arguments: &[&str]) -> Self {
        let mut command = command(store, &[&["console", "--bind", "127.0.0.1:0"], arguments].concat());
        let mut process = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let Some((address, path)) = line.trim_end().strip_prefix("http://").and_then(|url| url.split_once('/')) else {
            let mut text = String::new();
            process.stderr.take().unwrap().read_to_string(&mut text).unwrap();
            panic!("the console did not start: {text}");
        };
        Self { address: address.to_owned(), path: path.to_owned(), process }
    }

    fn send(&self, method: &str, path: &str, cookie: &str, fields: &[(&str, &str)]) -> Answer {
        let encoded = |text: &str| text.bytes().map(|byte| format!("%{byte:02x}")).collect::<String>();
        let body: Vec<_> = fields.iter().map(|(name, value)| format!("{name}={}", encoded(value))).collect();
        let (body, address) = (body.join("&"), &self.address);
        let request = format!(
            "{method} /{path} HTTP/1.1\r\nhost: {address}\r\ncookie: {cookie}\r\norigin: http://{address}\r\n\
             content-type: application/x-www-form-urlencoded\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
            body.len()
        );
        let (mut stream, mut text) = (TcpStream::connect(address).unwrap(), String::new());
        stream.write_all(request.as_bytes()).unwrap();
        stream.read_to_string(&mut text).unwrap();
        Answer { status: text[9..12].parse().unwrap(), text }
    }

    fn get(&self, path: &str, cookie: &str) -> String {
        let answer = self.send("GET", path, cookie, &[]);
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
        answer.text
    }

    fn login(&self, token: &str) -> Answer {
        self.send("POST", "login", "", &[("access_token", token)])
    }

    /// Logs in by the printed link, and returns the cookie.
    fn enter(&self) -> String {
        let token = self.path.strip_prefix("login?token=").unwrap();
        assert!(self.get(&self.path, "").contains(token), "the form has the token of the link");
        cookie(&self.login(token))
    }
}

fn cookie(answer: &Answer) -> String {
    let line = answer.text.lines().find_map(|line| line.strip_prefix("set-cookie: ")).unwrap();
    assert!(!line.contains("Secure"), "a browser would not return it over HTTP: {line}");
    line.split(';').next().unwrap().to_owned()
}

/// Returns the value of the first input of this name.
fn input(page: &str, name: &str) -> String {
    let rest = page.split_once(&format!("name=\"{name}\" value=\"")).unwrap().1;
    rest.split('"').next().unwrap().replace("&#123;", "{").replace("&#125;", "}")
}

/// Returns the URL of an SQLite file with records in every state.
async fn store(folder: &TempDir) -> String {
    let url = format!("sqlite:{}", folder.path().join("store.db").display());
    fill(&idempotent::connect(&url).create(true).await.unwrap()).await;
    url
}

#[tokio::test(flavor = "multi_thread")]
async fn the_link_is_valid_once_and_the_pages_are_read_only() {
    let folder = tempfile::tempdir().unwrap();
    let mut console = Console::start(&store(&folder).await, &[]);
    let cookie = console.enter();
    let token = console.path.strip_prefix("login?token=").unwrap().to_owned();
    assert_eq!(console.login(&token).status, 401);
    let keys = console.get("keys", &cookie);
    assert!(
        keys.contains(&key("poison").replace('{', "&#123;").replace('}', "&#125;")) || keys.contains(&key("poison"))
    );
    assert!(keys.contains("read-only") && !keys.contains("name=\"action\""));
    assert_eq!(console.send("POST", "plan", &cookie, &[]).status, 404);
    // Another host name reaches the console by DNS rebinding.
    let mut stream = TcpStream::connect(&console.address).unwrap();
    stream.write_all(b"GET /overview HTTP/1.1\r\nhost: evil.example\r\nconnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("HTTP/1.1 421"), "{text}");
    console.process.kill().unwrap();
    let mut log = String::new();
    console.process.stderr.take().unwrap().read_to_string(&mut log).unwrap();
    assert!(log.contains("a login has failed from=\"127.0.0.1\" failures=1") && !log.contains(&token), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn with_allow_write_a_key_is_forgotten_and_audited() {
    let folder = tempfile::tempdir().unwrap();
    let (url, audit) = (store(&folder).await, folder.path().join("audit.jsonl"));
    let console = Console::start(&url, &["--allow-write", "--audit", audit.to_str().unwrap()]);
    let cookie = console.enter();
    let page = console.get("dead?state=dead", &cookie);
    let (token, entry, target) = (input(&page, "token"), input(&page, "entry"), input(&page, "target"));
    let fields = [("token", token.as_str()), ("target", &target), ("action", "forget"), ("entry", &entry)];
    let plan = console.send("POST", "plan", &cookie, &fields);
    assert_eq!(plan.status, 200, "{plan:?}");
    let id = input(&plan.text, "plan");
    let fields = [("token", token.as_str()), ("plan", id.as_str()), ("reason", "stock corrected")];
    assert_eq!(console.send("POST", "apply", &cookie, &fields).status, 303);
    while !console.get(&format!("task?id={id}"), &cookie).contains("Ended") {}
    assert!(run(&url, &["inspect", &key("poison")]).out.contains("\"vacant\""));
    let entries = std::fs::read_to_string(audit).unwrap();
    assert!(entries.contains("\"via\":\"console\"") && entries.contains("\"by\":\"ann\""), "{entries}");
    assert!(console.get("audit", &cookie).contains("stock corrected"));
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_letters_outboxes_and_delay_tables_are_shown() {
    let folder = tempfile::tempdir().unwrap();
    let url = store(&folder).await;
    let pool = SqlitePool::connect(&url).await.unwrap();
    let outbox = Outbox::builder(pool.clone()).table("outbox").create(true).open().await.unwrap();
    let mut transaction = pool.begin().await.unwrap();
    outbox.enqueue(&mut transaction, &OutboundMessage::new("payments", "p-1", "secret")).await.unwrap();
    transaction.commit().await.unwrap();
    DelayTable::builder(pool).table("timeouts").create(true).open().await.unwrap();
    let named = |name: &str| format!("{name}={url}");
    let (queue, table) = (named("timeouts"), named("outbox"));
    let console = Console::start(&url, &["--queue", &queue, "--outbox", &table, "--delay", &queue]);
    let cookie = console.enter();
    let messages = console.get("outbox", &cookie);
    assert!(messages.contains("p-1") && messages.contains("payments") && !messages.contains("secret"));
    assert!(console.get("delay", &cookie).contains("timeouts"));
    assert!(console.get("dead-letters?read=1", &cookie).contains("<strong>0</strong> dead letters"));
    let overview = console.get("overview", &cookie);
    assert!(overview.contains("Outbox outbox") && overview.contains("Delay queue timeouts"), "{overview}");
}

#[test]
fn a_console_that_is_open_to_others_or_cannot_start_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let missing = format!("sqlite:{}", folder.path().join("missing.db").display());
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let tokens = folder.path().join("tokens");
    std::fs::write(&tokens, "ann:root:x\n").unwrap();
    std::fs::set_permissions(&tokens, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let tokens = tokens.to_str().unwrap();
    let cases: [(&[&str], i32, &str); 8] = [
        (&["--bind", "0.0.0.0:0"], 2, "other machines reach --bind 0.0.0.0:0"),
        (&["--bind", "0.0.0.0:0", "--tokens", tokens], 2, "--host NAME"),
        (&["--tokens", "missing"], 2, "the token file `missing` cannot be read"),
        (&["--tokens", tokens], 2, "line 1 of the tokens: the role"),
        (&["--bind", &taken], 7, "cannot listen on 127.0.0.1:"),
        (&["--read-only", "--allow-write"], 6, "--read-only forbids"),
        (&["--queue", "amqp://ann:secret@localhost/shop"], 2, "a target is NAME=URL"),
        (&["--bind", "127.0.0.1:0"], 5, "missing.db"),
    ];
    for (arguments, code, text) in cases {
        let ran = run(&missing, &[&["console"], arguments].concat());
        assert_eq!((ran.code, ran.out.as_str()), (code, ""), "{arguments:?}: {ran:?}");
        assert!(ran.err.contains(text) && !ran.err.contains("secret"), "{arguments:?}: {ran:?}");
    }
    assert!(!folder.path().join("missing.db").exists());
}
