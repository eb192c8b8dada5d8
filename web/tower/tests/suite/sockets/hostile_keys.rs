//! Invalid bytes in the key header.
use std::collections::HashSet;

use idempotent_core::Entropy;
use idempotent_testkit::SeededEntropy;

use crate::sockets::support::{Answer, Ask, Client, Server};

/// Bare keys: visible ASCII without characters that have a meaning in headers.
fn is_bare(byte: u8) -> bool {
    byte.is_ascii_graphic() && !b"\",;\\".contains(&byte)
}

/// Printable ASCII, unescaped in a string.
fn is_in_string(byte: u8) -> bool {
    (0x20..0x7f).contains(&byte) && byte != b'"' && byte != b'\\'
}

/// Sends a request on a connection that may close, which it must if the bytes are not HTTP.
async fn ask(server: &Server, client: &mut Option<Client>, ask: &Ask) -> Option<Answer> {
    let mut connection = match client.take() {
        Some(connection) => connection,
        None => Client::connect(server.address).await,
    };
    let sent = connection.try_send(&ask.bytes()).await;
    let answer = if sent { connection.answer_or_end().await } else { None };
    // hyper closes the connection after its own 400.
    if answer.as_ref().is_some_and(|answer| answer.status != 400) {
        *client = Some(connection);
    }
    answer
}

/// Checks for a rejection that does not show the key.
#[track_caller]
fn refused(answer: Option<&Answer>, secret: &str) {
    let Some(answer) = answer else { return };
    assert_eq!(answer.status, 400, "{answer}");
    assert!(!answer.to_string().contains(secret), "{answer}");
    // A response of the layer; the ones of hyper have no body.
    assert!(answer.body.is_empty() || answer.code() == "invalid-key", "{answer}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_byte_in_a_key_is_accepted_or_rejected_before_a_run() {
    let server = Server::start().await;
    let mut client = None;
    let mut taken = 0;
    for byte in 0..=255_u8 {
        let keys = [
            (is_bare(byte), [b"secret-bare", &[byte][..], b"x"].concat()),
            (is_in_string(byte), [b"\"secret-string", &[byte][..], b"x\""].concat()),
        ];
        for (good, key) in keys {
            let answer = ask(&server, &mut client, &Ask::order("", "lamp").key(&key)).await;
            if good {
                let answer = answer.expect("an answer");
                answer.made();
                assert!(!answer.to_string().contains("secret-"), "{answer}");
                taken += 1;
            } else {
                refused(answer.as_ref(), "secret-");
            }
            assert_eq!(server.shop.count("lamp"), taken, "{byte:#04x}");
        }
    }
    // 94 visible characters without four, and 95 printable ones without two.
    assert_eq!(taken, 90 + 93);
}

/// The content of a key never becomes part of a response header.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_key_injects_a_header_into_a_response() {
    let server = Server::start().await;
    let mut client = None;
    let keys: [&[u8]; 6] = [
        b"secret-%0d%0ainjected:1",
        b"\"secret-%0d%0ainjected: 1\"",
        b"secret-\ninjected: 1",
        b"secret-\r\ninjected: 1",
        b"secret-\rinjected: 1",
        b"\"secret-\\r\\ninjected: 1\"",
    ];
    for key in keys {
        for _ in 0..2 {
            let answer = ask(&server, &mut client, &Ask::order("", "lamp").key(key)).await;
            let Some(answer) = answer else { continue };
            assert!(!answer.to_string().contains("injected") && !answer.to_string().contains("secret-"), "{answer}");
        }
    }
}

/// The variable `FUZZ_INPUTS` raises the number.
fn inputs() -> usize {
    std::env::var("FUZZ_INPUTS").map_or(3_000, |inputs| inputs.parse().expect("a number of inputs"))
}

/// Random bytes and mutated values follow the grammar below, and none stops the server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_bytes_run_only_if_they_are_a_valid_key() {
    let server = Server::start().await;
    let random = SeededEntropy::new(20);
    let draw = |below: usize| usize::try_from(random.bits().unwrap() % below as u128).unwrap();
    let alphabet: &[u8] = b"ab\"\",;\\ \t=-(:)%\x00\x01\x7f\x80\xff\r";
    let mut client = None;
    let (mut known, mut with_parameters) = (HashSet::new(), 0);
    for _ in 0..inputs() {
        let length = draw(12);
        let mut key: Vec<u8> = (0..length)
            .map(|_| if draw(4) == 0 { alphabet[draw(alphabet.len())] } else { b"abcdefgh"[draw(8)] })
            .collect();
        if draw(2) == 0 {
            let parameter: &str = ["", "", ";", ";a"][draw(4)];
            key = [b"\"", &key[..], b"\"", parameter.as_bytes()].concat();
        }
        let answer = ask(&server, &mut client, &Ask::order("", "lamp").key(&key)).await;
        let is_refused = answer.as_ref().is_none_or(|answer| answer.status == 400);
        let meaning = key_of(&key);
        let surely = meaning.as_ref().map(|meaning| meaning.surely);
        assert!(surely.is_none_or(|surely| !surely) || !is_refused, "`{}` is a key", key.escape_ascii());
        assert!(surely.is_some() || is_refused, "`{}` is no key", key.escape_ascii());
        match (meaning, answer) {
            (Some(meaning), Some(answer)) if !is_refused => {
                with_parameters += usize::from(!meaning.surely);
                let new = known.insert(meaning.key);
                drop(if new { answer.made() } else { answer.replayed() });
            }
            (_, answer) => refused(answer.as_ref(), "no text at all"),
        }
    }
    assert_eq!(server.shop.count("lamp"), known.len());
    assert!(known.len() > 100 && with_parameters > 100, "{} keys, {with_parameters} with parameters", known.len());
}

/// The meaning of a header value.
struct Meaning {
    key: Vec<u8>,
    /// With apparent parameters, this key or none. Other tests cover the grammar of parameters.
    surely: bool,
}

fn key_of(value: &[u8]) -> Option<Meaning> {
    let mut value = value;
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    let Some(string) = value.strip_prefix(b"\"") else {
        let good = !value.is_empty() && value.iter().all(|byte| is_bare(*byte));
        return good.then(|| Meaning { key: value.to_vec(), surely: true });
    };
    let mut key = Vec::new();
    let mut bytes = string.iter();
    loop {
        match *bytes.next()? {
            b'"' => break,
            b'\\' => key.push(*bytes.next().filter(|byte| b"\"\\".contains(byte))?),
            byte if is_in_string(byte) => key.push(byte),
            _ => return None,
        }
    }
    let after = bytes.next();
    let good = !key.trim_ascii().is_empty() && matches!(after, None | Some(b';'));
    good.then_some(Meaning { key, surely: after.is_none() })
}
