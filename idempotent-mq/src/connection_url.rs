//! URLs of brokers, with one table of parameters for each broker.
use std::fmt;

use idempotent_core::__private::url::{authority, decoded, masked};

use crate::{SourceError, SourceErrorKind};

/// The form of the URLs of a broker, which name at least one host. The errors, the help of the command line and the table in
/// the guide come from it.
///
/// ```
/// use idempotent_mq::{UrlForm, UrlParameter};
///
/// const ACME: UrlForm = UrlForm {
///     broker: "Acme MQ",
///     schemes: &["acme"],
///     tls: None,
///     form: "acme://[USER:PASSWORD@]HOST[:PORT]",
///     parameters: &[UrlParameter::new("tls_ca", "FILE", "the certificate authority of the server")],
/// };
/// let url = ACME.parse("acme://ann:p%40ss@h:7?tls_ca=ca.pem")?;
/// assert_eq!((url.hosts(), url.parameter("tls_ca")), (&["h:7".to_owned()][..], Some("ca.pem")));
/// let error = ACME.parse("acme://h?tls-ca=ca.pem").unwrap_err();
/// assert!(error.to_string().ends_with("unknown parameter `tls-ca`; did you mean `tls_ca`?"));
/// # Ok::<_, idempotent_mq::UrlError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct UrlForm {
    /// The name of the broker.
    pub broker: &'static str,
    /// The schemes, the usual one first.
    pub schemes: &'static [&'static str],
    /// The scheme for TLS, if there is one.
    pub tls: Option<&'static str>,
    /// The whole form, such as `nats://[USER:PASSWORD@]HOST[:PORT]`.
    pub form: &'static str,
    /// The parameters after `?`.
    pub parameters: &'static [UrlParameter],
}

/// A parameter of a URL.
#[derive(Clone, Copy, Debug)]
pub struct UrlParameter {
    /// The name. The word `NAME` in it stands for any text, as in `options[NAME]`.
    pub name: &'static str,
    /// A placeholder for the value, such as `FILE`.
    pub value: &'static str,
    /// The meaning, with the default, as a noun phrase.
    pub meaning: &'static str,
}

impl UrlParameter {
    /// Creates a parameter from its name, the placeholder of its value, and its meaning.
    #[must_use]
    pub const fn new(name: &'static str, value: &'static str, meaning: &'static str) -> Self {
        Self { name, value, meaning }
    }
}

/// The error of a URL: the URL without secrets, the rule, and the remedy.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the URL `{url}`: {rule}")]
pub struct UrlError {
    url: Box<str>,
    rule: Box<str>,
}

impl UrlError {
    /// Returns the rule that the URL breaks, and the remedy.
    #[must_use]
    pub fn rule(&self) -> &str {
        &self.rule
    }
}

impl From<UrlError> for SourceError {
    fn from(error: UrlError) -> Self {
        Self::new(SourceErrorKind::Fatal, error.to_string())
    }
}

impl UrlForm {
    /// Parses a URL of this form.
    ///
    /// # Errors
    /// The scheme is another one, there is no host, a part is invalid, or a parameter is unknown or set twice.
    pub fn parse(&self, url: &str) -> Result<ConnectionUrl, UrlError> {
        self.parts(url).map_err(|rule| self.error(url, rule))
    }

    /// Creates the error of a URL that breaks this rule.
    #[must_use]
    pub fn error(&self, url: &str, rule: impl Into<Box<str>>) -> UrlError {
        UrlError { url: shown(url), rule: rule.into() }
    }

    /// Returns the form and its parameters as a table in Markdown.
    #[must_use]
    pub fn table(&self) -> String {
        let mut rows = vec!["| parameter | value | meaning |".to_owned(), "|---|---|---|".to_owned()];
        rows.extend(
            self.parameters
                .iter()
                .map(|UrlParameter { name, value, meaning }| format!("| `{name}` | `{value}` | {meaning} |")),
        );
        let rows = if rows.len() > 2 { format!("\n\n{}", rows.join("\n")) } else { String::new() };
        format!("{}: {}{rows}", self.broker, self.quoted())
    }

    /// Returns the form and its parameters as lines for a terminal.
    #[must_use]
    pub fn help(&self) -> String {
        let row = |UrlParameter { name, value, meaning }: &UrlParameter| format!("\n      {name}={value}: {meaning}");
        let rows = self.parameters.iter().map(row);
        format!("  {}: {}{}", self.broker, self.quoted().replace('`', ""), rows.collect::<String>())
    }

    fn quoted(&self) -> String {
        let tls = self.tls.map(|scheme| format!(", or `{scheme}://` for TLS"));
        format!("`{}`{}", self.form, tls.unwrap_or_default())
    }

    fn parts(&self, url: &str) -> Result<ConnectionUrl, String> {
        let form = || format!("use {}", self.quoted());
        let (scheme, rest) = url.split_once("://").ok_or_else(form)?;
        if !self.schemes.contains(&scheme) {
            return Err(form());
        }
        // A value may contain an `@`, which is no end of a password.
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let query = query.split_once('#').map_or(query, |(query, _)| query);
        let parsed = authority(rest)?;
        let hosts: Vec<String> = parsed.hosts.iter().map(|(host, port)| address(host, *port)).collect();
        if parsed.hosts.iter().any(|(host, _)| host.is_empty() || host.contains([' ', ';'])) {
            return Err(form());
        }
        let text = |text: &str| decoded(text).ok_or("a `%` is not followed by two hexadecimal digits");
        let (user, password) = match parsed.user.map(|user| user.split_once(':').unwrap_or((user, ""))) {
            Some((user, password)) => (Some(text(user)?), Some(text(password)?).filter(|text| !text.is_empty())),
            None => (None, None),
        };
        let path = parsed.tail.split_once('#').map_or(parsed.tail, |(path, _)| path);
        let mut parameters: Vec<(String, String)> = Vec::new();
        for part in query.split('&').filter(|part| !part.is_empty()) {
            let (name, value) = part
                .split_once('=')
                .ok_or("a parameter has no value; use NAME=VALUE, and percent-encode `&` in values")?;
            self.check_parameter(name)?;
            if parameters.iter().any(|(known, _)| known == name) {
                return Err(format!("the parameter `{name}` is set twice"));
            }
            parameters.push((name.to_owned(), text(value)?));
        }
        Ok(ConnectionUrl { scheme: scheme.to_owned(), user, password, hosts, path: path.to_owned(), parameters })
    }

    fn check_parameter(&self, name: &str) -> Result<(), String> {
        let known = || self.parameters.iter().map(|parameter| parameter.name);
        if known().any(|known| is_of(known, name)) {
            return Ok(());
        }
        let near = known().map(|known| (strsim::osa_distance(known, name), known)).min();
        Err(match near {
            Some((distance, near)) if distance <= 3 => format!("unknown parameter `{name}`; did you mean `{near}`?"),
            Some(_) => format!("unknown parameter `{name}`; known are {}", known().collect::<Vec<_>>().join(", ")),
            None => format!("unknown parameter `{name}`; there are no parameters"),
        })
    }
}

/// Returns the URL without secrets. A text without a scheme may be a password.
fn shown(url: &str) -> Box<str> {
    if url.contains("://") { masked(url) } else { "…".into() }
}

/// Returns whether a name is the known one, in which `NAME` stands for any text.
fn is_of(known: &str, name: &str) -> bool {
    let mut parts = known.split("NAME");
    let Some(mut rest) = parts.next().and_then(|first| name.strip_prefix(first)) else { return false };
    for part in parts {
        let found = if part.is_empty() { Some("") } else { rest.split_once(part).map(|(_, rest)| rest) };
        let Some(found) = found else { return false };
        rest = found;
    }
    rest.is_empty()
}

fn address(host: &str, port: Option<u16>) -> String {
    port.map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

/// A URL that is parsed when a connection is opened. `Debug` masks its secrets.
#[derive(Clone)]
pub struct ServerUrl(String);

impl ServerUrl {
    /// Returns the whole text, with its password.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl<S: Into<String>> From<S> for ServerUrl {
    fn from(url: S) -> Self {
        Self(url.into())
    }
}

impl fmt::Debug for ServerUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&shown(&self.0))
    }
}

/// The server of a broker: its URL, or a value with which the service's own clients connect.
///
/// An adapter that accepts a client has an alias with the type of its client library, and takes it wherever it takes a URL.
#[derive(Clone)]
pub enum Server<C> {
    /// The URL.
    Url(ServerUrl),
    /// A value from which the client library opens connections, with TLS, users and names.
    Client(C),
}

impl<C> Server<C> {
    /// Connects as the service's own clients. Connections are not shared with them.
    #[must_use]
    pub fn on_client(client: C) -> Self {
        Self::Client(client)
    }
}

impl<C, S: Into<String>> From<S> for Server<C> {
    fn from(url: S) -> Self {
        Self::Url(ServerUrl(url.into()))
    }
}

impl<C> From<ServerUrl> for Server<C> {
    fn from(url: ServerUrl) -> Self {
        Self::Url(url)
    }
}

/// Shows no secret and no setting of a client.
impl<C> fmt::Debug for Server<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url(url) => url.fmt(f),
            Self::Client(_) => f.write_str("on a client of the service"),
        }
    }
}

/// The parts of a URL. `Debug` shows neither a user nor a value of a parameter.
#[derive(Clone)]
pub struct ConnectionUrl {
    scheme: String,
    user: Option<String>,
    password: Option<String>,
    hosts: Vec<String>,
    path: String,
    parameters: Vec<(String, String)>,
}

impl ConnectionUrl {
    /// Returns the scheme.
    #[must_use]
    pub fn scheme(&self) -> &str {
        &self.scheme
    }

    /// Returns the decoded user and password, which is absent if it is empty.
    #[must_use]
    pub fn user(&self) -> Option<(&str, Option<&str>)> {
        self.user.as_deref().map(|user| (user, self.password.as_deref()))
    }

    /// Returns the hosts, each with its port if there is one.
    #[must_use]
    pub fn hosts(&self) -> &[String] {
        &self.hosts
    }

    /// Returns the path as written, with its first slash.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns the decoded value of a parameter.
    #[must_use]
    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.parameters().find_map(|(known, value)| (known == name).then_some(value))
    }

    /// Returns all parameters, with decoded values.
    pub fn parameters(&self) -> impl Iterator<Item = (&str, &str)> {
        self.parameters.iter().map(|(name, value)| (&**name, &**value))
    }
}

impl fmt::Debug for ConnectionUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.parameters().map(|(name, _)| name).collect();
        f.debug_struct("ConnectionUrl")
            .field("scheme", &self.scheme)
            .field("hosts", &self.hosts)
            .field("parameters", &names)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const FORM: UrlForm = UrlForm {
        broker: "Test",
        schemes: &["t", "ts"],
        tls: Some("ts"),
        form: "t://HOST",
        parameters: &[
            UrlParameter::new("tls_ca", "FILE", "the authority"),
            UrlParameter::new("member", "NAME", "the member"),
            UrlParameter::new("NAME.NAME", "VALUE", "a property"),
            UrlParameter::new("options[NAME]", "VALUE", "an option"),
        ],
    };

    #[test]
    fn the_parts_of_a_url_are_decoded() {
        let url =
            FORM.parse("ts://me:p%40ss:w@[::1]:9,b/shop?tls_ca=%2Fa%26b.pem&client.rack=r1&options[a]=b#x").unwrap();
        assert_eq!((url.scheme(), url.user()), ("ts", Some(("me", Some("p@ss:w")))));
        assert_eq!((url.hosts().join(" "), url.path()), ("[::1]:9 b".to_owned(), "/shop"));
        assert_eq!(
            url.parameters().collect::<Vec<_>>(),
            [("tls_ca", "/a&b.pem"), ("client.rack", "r1"), ("options[a]", "b")]
        );
        assert_eq!(FORM.parse("t://token@h?tls_ca=/a@2.pem").unwrap().parameter("tls_ca"), Some("/a@2.pem"));
        assert_eq!(FORM.parse("t://token@h").unwrap().user(), Some(("token", None)));
        assert_eq!(format!("{:?} {:?}", ServerUrl::from("s3cret"), ServerUrl::from("t://u:s3cret@h")), "… t://u:***@h");
        let shown = format!("{url:?}");
        assert!(!shown.contains("ss:w") && !shown.contains("pem") && shown.contains("client.rack"), "{shown}");
    }

    #[test]
    fn an_invalid_url_is_named_without_its_password_and_with_the_rule() {
        for (url, rule) in [
            ("", "use `t://HOST`"),
            ("h:1", "use `t://HOST`"),
            ("http://h", "use `t://HOST`"),
            ("t://", "use `t://HOST`"),
            ("t://a,", "use `t://HOST`"),
            ("t://:9", "use `t://HOST`"),
            ("t://a b", "use `t://HOST`"),
            ("t://h:port", "the port is not a number"),
            ("t://h:0", "port 0 is not between 1 and 65535"),
            ("t://u:s3cret@x@h", "unexpected second `@`"),
            ("t://u:s3cret@h?tls_ac=x", "unknown parameter `tls_ac`; did you mean `tls_ca`?"),
            ("t://h?something=x", "unknown parameter `something`; known are tls_ca, member, NAME.NAME, options[NAME]"),
            ("t://h?options[a]x=x", "unknown parameter `options[a]x`"),
            ("t://h?xoptions[a]=x", "unknown parameter `xoptions[a]`"),
            ("t://h?member", "a parameter has no value; use NAME=VALUE"),
            ("t://a:1;b:2", "use `t://HOST`"),
            ("t://u:s3cret?x@h", "the port is not a number"),
            ("t://h?member=a&member=b", "the parameter `member` is set twice"),
            ("t://h?member=%z", "a `%` is not followed by two hexadecimal digits"),
        ] {
            let error = FORM.parse(url).unwrap_err().to_string();
            assert!(error.starts_with("the URL `") && error.contains(rule) && !error.contains("s3cret"), "{error}");
        }
        let bare = UrlForm { parameters: &[], ..FORM };
        assert!(bare.parse("t://h?a.b=1").unwrap_err().to_string().ends_with("there are no parameters"));
        assert_eq!(SourceError::from(FORM.parse("").unwrap_err()).kind(), SourceErrorKind::Fatal);
    }

    #[test]
    fn the_table_and_the_help_have_all_parameters() {
        let table = "Test: `t://HOST`, or `ts://` for TLS\n\n| parameter | value | meaning |\n|---|---|---|\n| `tls_ca` | `FILE` | the authority |\n\
                     | `member` | `NAME` | the member |\n| `NAME.NAME` | `VALUE` | a property |\n| `options[NAME]` | `VALUE` | an option |";
        assert_eq!(FORM.table(), table);
        let help = "  Test: t://HOST, or ts:// for TLS\n      tls_ca=FILE: the authority\n      member=NAME: the member\n      NAME.NAME=VALUE: a property\n      options[NAME]=VALUE: an option";
        assert_eq!(FORM.help(), help);
        assert_eq!(UrlForm { parameters: &[], tls: None, ..FORM }.table(), "Test: `t://HOST`");
    }
}
