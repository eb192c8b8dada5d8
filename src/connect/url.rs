//! The parts of a store's URL.
use super::ConnectError;

/// A URL whose scheme is known.
#[derive(Debug)]
pub(super) struct Url<'a> {
    text: &'a str,
    pub(super) scheme: Scheme,
    /// What follows the scheme's colon.
    pub(super) rest: &'a str,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Scheme {
    Memory,
    Sqlite,
    Later { name: &'static str, feature: &'static str },
}

/// Every scheme by all its names.
const SCHEMES: [(&str, Scheme); 10] = [
    ("memory", Scheme::Memory),
    ("sqlite", Scheme::Sqlite),
    ("redis", later("redis", "redis")),
    ("rediss", later("rediss", "redis")),
    ("redis+sentinel", later("redis+sentinel", "redis")),
    ("redis+cluster", later("redis+cluster", "redis")),
    ("postgres", later("postgres", "postgres")),
    ("postgresql", later("postgres", "postgres")),
    ("mysql", later("mysql", "mysql")),
    ("mariadb", later("mysql", "mysql")),
];

/// What people write for them.
const MEANT: [(&str, &str); 8] = [
    ("file", "sqlite"),
    ("mem", "memory"),
    ("pg", "postgres"),
    ("pgsql", "postgres"),
    ("redis+tls", "rediss"),
    ("redis-cluster", "redis+cluster"),
    ("redis-sentinel", "redis+sentinel"),
    ("valkey", "redis"),
];

const fn later(name: &'static str, feature: &'static str) -> Scheme {
    Scheme::Later { name, feature }
}

impl<'a> Url<'a> {
    pub(super) fn parse(text: &'a str) -> Result<Self, ConnectError> {
        if text.trim().is_empty() {
            return Err(ConnectError::Empty);
        }
        if text.contains(char::is_control) {
            return Err(invalid(text, "a control character or line break is in it"));
        }
        if text == "memory" {
            return Ok(Self { text, scheme: Scheme::Memory, rest: "" });
        }
        let (scheme, rest) =
            text.split_once(':').filter(|(scheme, _)| is_scheme(scheme)).ok_or_else(|| no_scheme(text))?;
        match known(scheme) {
            Some(known) => Ok(Self { text, scheme: known, rest }),
            None => Err(ConnectError::UnknownScheme { url: masked(text), scheme: scheme.into(), meant: meant(scheme) }),
        }
    }

    pub(super) fn invalid(&self, part: &str) -> ConnectError {
        invalid(self.text, part)
    }

    /// Looks at `user:password@host:port,host:port/…`. A part that is no number may be the tail of a password that
    /// was not encoded: it is not shown.
    pub(super) fn check_ports(&self) -> Result<(), ConnectError> {
        let rest = self.rest.trim_start_matches('/');
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let hosts = authority.rsplit_once('@').map_or(authority, |(_, hosts)| hosts);
        for host in hosts.split(',') {
            let after = host.rsplit_once(']').map_or(host, |(_, after)| after);
            let Some((_, port)) = after.rsplit_once(':') else { continue };
            if port.is_empty() || !port.bytes().all(|byte| byte.is_ascii_digit()) {
                return Err(self.invalid(
                    "the port is not a number; if a password holds one of `@ : / ? # %`, percent-encode it (`@` is %40)",
                ));
            }
            if !port.parse::<u16>().is_ok_and(|port| port > 0) {
                return Err(self.invalid(&format!("port {port} is not between 1 and 65535")));
            }
        }
        Ok(())
    }
}

fn invalid(text: &str, part: &str) -> ConnectError {
    ConnectError::Invalid { url: masked(text), part: part.into() }
}

/// As RFC 3986 has it, but for one letter: that is a drive.
fn is_scheme(text: &str) -> bool {
    text.len() > 1
        && text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
}

fn known(scheme: &str) -> Option<Scheme> {
    SCHEMES.iter().find_map(|(name, known)| name.eq_ignore_ascii_case(scheme).then_some(*known))
}

fn no_scheme(text: &str) -> ConnectError {
    let first = text.split("//").next().unwrap_or_default();
    let hint = match known(first) {
        Some(_) if text.contains("//") => format!("a colon is missing after `{first}`, it is `{first}://…`"),
        Some(_) => format!("a colon and a place are missing after `{first}`"),
        None => "it has no scheme; an SQLite file is `sqlite:PATH`, a store without a file `memory:`".into(),
    };
    ConnectError::NoScheme { url: masked(text), hint: hint.into() }
}

/// A known scheme that is much like this one.
fn meant(scheme: &str) -> Option<&'static str> {
    let scheme = scheme.to_ascii_lowercase();
    if let Some((_, meant)) = MEANT.iter().find(|(other, _)| *other == scheme) {
        return Some(meant);
    }
    let near = SCHEMES.iter().map(|(name, _)| (distance(&scheme, name), *name)).min()?;
    (near.0 <= 2 && near.0 * 2 < scheme.len()).then_some(near.1)
}

/// Letters to change, add or leave out between the two.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.bytes().enumerate() {
            let changed = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

/// Fit to be shown: without what may be a password. Up to the last `@` everything behind the user's name goes, and
/// what stands there without a name, since a token may; so do values of settings that are called like secrets.
pub(super) fn masked(text: &str) -> Box<str> {
    let shown = match text.rfind('@') {
        Some(at) => {
            let start = match text.find("//").filter(|slashes| *slashes < at) {
                Some(slashes) => slashes + 2,
                None => text.find(':').filter(|colon| is_scheme(&text[..*colon])).map_or(0, |colon| colon + 1),
            };
            let user = text[start.min(at)..at].split_once(':').map(|(user, _)| user);
            let user = user.map_or_else(String::new, |user| format!("{user}:"));
            format!("{}{user}***{}", &text[..start.min(at)], &text[at..])
        }
        None => text.to_owned(),
    };
    let shown = match shown.split_once('?') {
        Some((before, settings)) => {
            let settings: Vec<_> = settings.split('&').map(setting).collect();
            format!("{before}?{}", settings.join("&"))
        }
        None => shown,
    };
    shown.escape_debug().to_string().into()
}

fn setting(setting: &str) -> String {
    const SECRETS: [&str; 5] = ["pass", "pwd", "secret", "token", "key"];
    match setting.split_once('=') {
        Some((name, _)) if SECRETS.iter().any(|secret| name.to_ascii_lowercase().contains(secret)) => {
            format!("{name}=***")
        }
        _ => setting.to_owned(),
    }
}
