//! Alerts by e-mail.
use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use idempotent_core::{Alert, AlertError, AlertSender};
use lettre::message::{Mailbox, Mailboxes, MessageBuilder, header};
use lettre::{AsyncSmtpTransport, AsyncTransport, Message, Tokio1Executor};
use url::{Host, Url};

/// A command that the server does not answer in this time has failed. It is below the 10 s that `Alerts` allows for an alert.
const ANSWER: Duration = Duration::from_secs(5);

/// A sender that e-mails alerts by SMTP.
///
/// The connection is encrypted by rustls and checked against the system's certificates. Each alert has a connection of its
/// own. An e-mail has no idempotency key, message id or payload, unless [`with_details`](Self::with_details) is set.
///
/// ```no_run
/// use idempotent_alert::AlertEmail;
/// use idempotent_core::Alerts;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let email = AlertEmail::new("smtps://user:password@smtp.example.com", "Orders <orders@example.com>", ["ops@example.com"])?;
/// let alerts = Alerts::builder().sender(email).start()?;
/// # drop(alerts);
/// # Ok(())
/// # }
/// ```
pub struct AlertEmail {
    transport: AsyncSmtpTransport<Tokio1Executor>,
    from: Mailbox,
    to: Mailboxes,
    details: bool,
}

/// An error of [`AlertEmail::new`]; its text names the rule and the remedy, and contains no part of the URL.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct EmailSetupError(String);

impl fmt::Display for EmailSetupError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for EmailSetupError {}

impl AlertEmail {
    /// Returns a sender for this server, sender address and recipients.
    ///
    /// The URL is `smtps://user:password@host` for TLS from the start (port 465), or
    /// `smtp://user:password@host?tls=required` for STARTTLS (port 587). `smtp://host` without encryption is for a server on
    /// this machine only. An address is `ops@example.com` or `Operations <ops@example.com>`.
    ///
    /// # Errors
    /// [`EmailSetupError`] if the URL or an address cannot be parsed, the connection would not be encrypted, or there is no
    /// recipient.
    pub fn new<'a>(url: &str, from: &str, to: impl IntoIterator<Item = &'a str>) -> Result<Self, EmailSetupError> {
        let refused = |text: &str| EmailSetupError(text.to_owned());
        let parsed =
            Url::parse(url).map_err(|error| EmailSetupError(format!("the URL of the SMTP server: {error}")))?;
        check(&parsed).map_err(refused)?;
        let transport = AsyncSmtpTransport::<Tokio1Executor>::from_url(url);
        let transport = transport.map_err(|_| refused("the URL of the SMTP server is not one that lettre takes"))?;
        let mut recipients = Mailboxes::new();
        for address in to {
            recipients.push(mailbox("recipient", address)?);
        }
        if recipients.iter().next().is_none() {
            return Err(refused("there is no recipient: name at least one address"));
        }
        let transport = transport.timeout(Some(ANSWER)).build();
        Ok(Self { transport, from: mailbox("sender", from)?, to: recipients, details: false })
    }

    /// Includes [`Alert::detail`], which may contain data of the application.
    ///
    /// # Default
    /// Left out
    #[must_use]
    pub fn with_details(mut self) -> Self {
        self.details = true;
        self
    }

    fn message(&self, alert: &Alert) -> Result<Message, AlertError> {
        let builder: MessageBuilder = Message::builder().from(self.from.clone()).subject(subject(alert));
        let builder = self.to.iter().fold(builder, |builder, recipient| builder.to(recipient.clone()));
        let built = builder.header(header::ContentType::TEXT_PLAIN).body(text(alert, self.details));
        built.map_err(|_| AlertError::new("the e-mail could not be built"))
    }
}

/// Refuses a URL whose connection could be read on its way.
fn check(url: &Url) -> Result<(), &'static str> {
    let tls = url.query_pairs().find(|(name, _)| name == "tls").map(|(_, value)| value.into_owned());
    let is_local = match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => return Err("the URL of the SMTP server has no host: write smtps://host"),
    };
    // `smtp` is no scheme whose hosts the parser knows: an IPv4 address is a name to it.
    let is_local = is_local || url.host_str().is_some_and(|host| host.parse().is_ok_and(is_loopback));
    match (url.scheme(), tls.as_deref()) {
        ("smtps", None) | ("smtp", Some("required")) => Ok(()),
        ("smtp", None) if is_local => Ok(()),
        ("smtp", _) => {
            Err("the connection to the SMTP server would not be encrypted: write smtps://…, or smtp://…?tls=required")
        }
        _ => Err("the URL of the SMTP server begins with neither smtp:// nor smtps://"),
    }
}

fn is_loopback(address: std::net::IpAddr) -> bool {
    address.is_loopback()
}

fn mailbox(whose: &str, address: &str) -> Result<Mailbox, EmailSetupError> {
    let remedy = "write name@host, or Name <name@host>";
    address.parse().map_err(|error| EmailSetupError(format!("the address of the {whose}: {error}; {remedy}")))
}

/// Removes line breaks and other control characters, which are invalid in a header.
fn subject(alert: &Alert) -> String {
    let summary = format!("[idempotent] {}", alert.summary());
    summary.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

fn text(alert: &Alert, details: bool) -> String {
    let mut lines = vec![
        format!("kind:     {}", alert.kind),
        format!("scope:    {}", alert.scope),
        format!("source:   {}", alert.source.as_deref().unwrap_or("-")),
        format!("cause:    {}", alert.cause.unwrap_or("-")),
        format!("count:    {}", alert.count),
        format!("first at: {} µs since 1970", alert.first_at.0),
        format!("last at:  {} µs since 1970", alert.last_at.0),
    ];
    if let Some(message) = alert.given_up {
        let waits = if message.holds_back { ", later messages of its aggregate wait" } else { "" };
        lines.push(format!("message:  row {}, sent {} times{waits}", message.seq, message.sends));
    }
    if let Some(detail) = alert.detail().filter(|_| details) {
        lines.push(format!("detail:   {detail}"));
    }
    lines.push(format!("remedy:   {}", alert.kind.remedy()));
    lines.join("\n") + "\n"
}

#[async_trait]
impl AlertSender for AlertEmail {
    async fn send(&self, alert: &Alert) -> Result<(), AlertError> {
        let message = self.message(alert)?;
        self.transport.send(message).await.map(drop).map_err(|error| AlertError::new(words(&error)))
    }
}

/// Shows the kind of the error, without the server's text, which may repeat an address.
fn words(error: &lettre::transport::smtp::Error) -> String {
    let why = match () {
        () if error.is_permanent() => "the SMTP server refused it",
        () if error.is_transient() => "the SMTP server refused it for now",
        () if error.is_timeout() => "the SMTP server did not answer in time",
        () if error.is_tls() => "the SMTP server's TLS failed",
        () => "the connection to the SMTP server failed",
    };
    error.status().map_or_else(|| why.to_owned(), |code| format!("{why} ({code})"))
}

/// Shows the settings without credentials and addresses.
impl fmt::Debug for AlertEmail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AlertEmail").field("details", &self.details).finish_non_exhaustive()
    }
}
