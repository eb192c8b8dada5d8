//! Parsing of store URLs.
use idempotent_core::__private::url::{authority, is_scheme, masked};

use super::ConnectError;

/// A URL whose scheme is known.
#[derive(Debug)]
pub(super) struct Url<'a> {
    pub(super) text: &'a str,
    pub(super) scheme: Scheme,
    /// The text after the colon of the scheme.
    pub(super) rest: &'a str,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Scheme {
    Memory,
    Sqlite,
    Redis { name: &'static str, tls: bool },
    Postgres,
    MySql,
    Tiered,
}

/// The names of all schemes.
const SCHEMES: [(&str, Scheme); 14] = [
    ("memory", Scheme::Memory),
    ("sqlite", Scheme::Sqlite),
    ("redis", redis("redis", false)),
    ("rediss", redis("rediss", true)),
    ("redis+unix", redis("redis+unix", false)),
    ("redis+sentinel", redis("redis+sentinel", false)),
    ("rediss+sentinel", redis("rediss+sentinel", true)),
    ("redis+cluster", redis("redis+cluster", false)),
    ("rediss+cluster", redis("rediss+cluster", true)),
    ("postgres", Scheme::Postgres),
    ("postgresql", Scheme::Postgres),
    ("mysql", Scheme::MySql),
    ("mariadb", Scheme::MySql),
    ("tiered", Scheme::Tiered),
];

/// Frequent mistakes, and the scheme that is meant.
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

const fn redis(name: &'static str, tls: bool) -> Scheme {
    Scheme::Redis { name, tls }
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
            None => Err(ConnectError::UnknownScheme {
                url: without_passwords(text),
                scheme: scheme.into(),
                meant: meant(scheme),
            }),
        }
    }

    /// Splits `tiered:DATABASE_URL|CACHE_URL` into its two URLs. Returns `None` for other schemes.
    pub(super) fn tiers(&self) -> Result<Option<(Self, Self)>, ConnectError> {
        if self.scheme != Scheme::Tiered {
            return Ok(None);
        }
        let form = "write a database, `|` and its cache: `tiered:postgres://HOST/DATABASE|redis://HOST`";
        let (durable, cache) = self.rest.split_once('|').ok_or_else(|| self.invalid(form))?;
        if cache.contains('|') {
            return Err(self.invalid("there are more than two URLs; percent-encode `|` in a password as `%7C`"));
        }
        Ok(Some((Self::parse(durable)?, Self::parse(cache)?)))
    }

    /// Checks that nothing follows `memory:`.
    pub(super) fn check_memory(&self) -> Result<(), ConnectError> {
        match self.rest.trim_start_matches('/') {
            "" => Ok(()),
            _ => Err(self.invalid("nothing may follow `memory:`, it has no name and no settings")),
        }
    }

    pub(super) fn invalid(&self, part: &str) -> ConnectError {
        invalid(self.text, part)
    }

    /// Checks the ports in `user:password@host:port,host:port/…`.
    pub(super) fn check_ports(&self) -> Result<(), ConnectError> {
        authority(self.rest.trim_start_matches('/')).map(drop).map_err(|part| self.invalid(part.as_str()))
    }
}

fn invalid(text: &str, part: &str) -> ConnectError {
    ConnectError::Invalid { url: without_passwords(text), part: part.into() }
}

/// Masks the password of each tier.
fn without_passwords(text: &str) -> Box<str> {
    text.split('|').map(masked).collect::<Vec<_>>().join("|").into()
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
    ConnectError::NoScheme { url: without_passwords(text), hint: hint.into() }
}

/// Returns a known scheme that resembles this one.
fn meant(scheme: &str) -> Option<&'static str> {
    let scheme = scheme.to_ascii_lowercase();
    if let Some((_, meant)) = MEANT.iter().find(|(other, _)| *other == scheme) {
        return Some(meant);
    }
    let near = SCHEMES.iter().map(|(name, _)| (distance(&scheme, name), *name)).min()?;
    (near.0 <= 2 && near.0 * 2 < scheme.len()).then_some(near.1)
}

/// Returns the number of letters to change, add or remove between the two.
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
