//! E-mails, in conversations over TCP with an SMTP sink.
use idempotent_alert::AlertEmail;
use idempotent_core::{Alert, AlertKind, AlertSender, GivenUp, Timestamp};

use crate::smtp_sink::SmtpSink;

const FROM: &str = "Orders <orders@example.com>";

fn alert() -> Alert {
    Alert::new(AlertKind::MessageGivenUp, "outbox\r\nBcc: thief@example.com", Timestamp(5))
        .source("orders")
        .given_up(GivenUp::new(7, 16, true))
        .with_detail("card 4111")
}

#[tokio::test]
async fn an_alert_arrives_at_every_recipient_as_one_email() {
    let sink = SmtpSink::start("").await;
    let url = format!("smtp://127.0.0.1:{}", sink.port);
    let email = AlertEmail::new(&url, FROM, ["ops@example.com", "Night <night@example.com>"]).unwrap();
    email.send(&alert()).await.unwrap();
    let [conversation] = &sink.conversations()[..] else { panic!("one conversation") };
    let of = |verb: &str| conversation.commands.iter().filter(|line| line.starts_with(verb)).count();
    assert_eq!((of("MAIL FROM:<orders@example.com>"), of("RCPT TO:")), (1, 2));
    assert!(of("RCPT TO:<ops@example.com>") == 1 && of("RCPT TO:<night@example.com>") == 1);
    let text = conversation.email.as_deref().unwrap();
    assert!(
        text.contains("\nSubject: [idempotent] message_given_up: outbox") || text.starts_with("Subject: "),
        "{text}"
    );
    for part in ["row 7, sent 16 times, later messages", "resend or void the message", "source:   orders"] {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert!(!text.contains("4111"), "the detail was not asked for: {text}");
    let headers = text.split("\n\n").next().unwrap();
    assert!(!headers.lines().any(|line| line.starts_with("Bcc")), "{headers}");
}

#[tokio::test]
async fn a_detail_is_included_on_request() {
    let sink = SmtpSink::start("").await;
    let url = format!("smtp://localhost:{}", sink.port);
    let email = AlertEmail::new(&url, FROM, ["ops@example.com"]).unwrap().with_details();
    email.send(&alert()).await.unwrap();
    assert!(sink.conversations()[0].email.as_deref().unwrap().contains("card 4111"));
}

#[tokio::test]
async fn a_recipient_that_the_server_refuses_is_an_error_without_the_servers_text() {
    let sink = SmtpSink::start("gone@").await;
    let url = format!("smtp://127.0.0.1:{}", sink.port);
    let email = AlertEmail::new(&url, FROM, ["gone@example.com"]).unwrap();
    let error = email.send(&alert()).await.unwrap_err().to_string();
    assert_eq!(error, "the alert was not sent: the SMTP server refused it (550)");
}

#[tokio::test]
async fn a_server_that_is_away_is_an_error() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let email = AlertEmail::new(&format!("smtp://127.0.0.1:{port}"), FROM, ["ops@example.com"]).unwrap();
    assert!(email.send(&alert()).await.unwrap_err().to_string().contains("connection to the SMTP server failed"));
}

#[tokio::test]
async fn a_server_without_starttls_gets_no_email_where_tls_is_required() {
    let sink = SmtpSink::start("").await;
    let url = format!("smtp://127.0.0.1:{}?tls=required", sink.port);
    let email = AlertEmail::new(&url, FROM, ["ops@example.com"]).unwrap();
    assert!(email.send(&alert()).await.is_err());
    assert!(sink.conversations().iter().all(|conversation| conversation.email.is_none()));
}

#[test]
fn setups_that_could_not_work_or_would_not_be_encrypted_are_refused_without_the_password() {
    let refused = |url: &str, from: &str, to: &[&str]| {
        let error = AlertEmail::new(url, from, to.iter().copied()).unwrap_err().to_string();
        assert!(!error.contains("hunter2"), "{error}");
        error
    };
    let ops = ["ops@example.com"];
    for url in [
        "smtp://user:hunter2@example.com",
        "smtp://u:hunter2@example.com?tls=opportunistic",
        "smtp://localhost?tls=off",
    ] {
        assert!(refused(url, FROM, &ops).contains("write smtps://"), "{url}");
    }
    assert!(refused("https://u:hunter2@example.com", FROM, &ops).contains("neither smtp:// nor smtps://"));
    assert!(refused("hunter2", FROM, &ops).contains("URL of the SMTP server"));
    assert!(refused("smtps://example.com", "orders", &ops).contains("address of the sender"));
    assert!(refused("smtps://example.com", FROM, &["ops"]).contains("address of the recipient"));
    assert!(refused("smtps://example.com", FROM, &[]).contains("no recipient"));
    for url in ["smtps://user:hunter2@example.com", "smtp://u:hunter2@example.com?tls=required", "smtp://[::1]:25"] {
        let email = AlertEmail::new(url, FROM, ops).unwrap();
        assert!(!format!("{email:?}").contains("hunter2"));
    }
}
