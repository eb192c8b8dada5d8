//! URL parsing shared by the stores. For the crates of this project only.

/// The part of a URL between `//` and the path, and the text after it.
#[derive(Debug, PartialEq)]
pub struct Authority<'a> {
    /// The user and password as written (`user:password`), not decoded.
    pub user: Option<&'a str>,
    /// The hosts as written, each with its port if there is one. An IPv6 address keeps its brackets.
    pub hosts: Vec<(&'a str, Option<u16>)>,
    /// The text from the first `/`, `?` or `#` on.
    pub tail: &'a str,
}

const ENCODE: &str = "if a password contains one of `@ : / ? # %`, percent-encode it (`@` is %40, `%` is %25)";

/// Parses `user:password@host:port,host:port/…`.
///
/// Errors do not quote an invalid port, because it may be the end of a password that was not encoded.
///
/// # Errors
/// Returns the problem and its remedy.
pub fn authority(rest: &str) -> Result<Authority<'_>, String> {
    let (before, tail) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let (user, addresses) = before.rsplit_once('@').map_or((None, before), |(user, addresses)| (Some(user), addresses));
    let hosts = addresses.split(',').map(parse_host).collect::<Result<_, _>>()?;
    if tail.contains('@') || user.is_some_and(|user| user.contains('@')) {
        return Err(format!("unexpected second `@`; {ENCODE}"));
    }
    if user.is_some_and(|user| decoded(user).is_none()) {
        return Err(format!("a `%` is not followed by two hexadecimal digits; {ENCODE}"));
    }
    Ok(Authority { user, hosts, tail })
}

fn parse_host(text: &str) -> Result<(&str, Option<u16>), String> {
    // The colons inside the brackets of an IPv6 address are no separators.
    let after = text.rfind(']').unwrap_or(0);
    let Some(colon) = text[after..].rfind(':') else { return Ok((text, None)) };
    let (host, port) = (&text[..after + colon], &text[after + colon + 1..]);
    if port.is_empty() || !port.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!("the port is not a number; {ENCODE}"));
    }
    match port.parse() {
        Ok(number) if number > 0 => Ok((host, Some(number))),
        _ => Err(format!("port {port} is not between 1 and 65535")),
    }
}

/// Decodes percent-encoded text, such as `%40` for `@`. Returns `None` if a code is invalid or the result is not UTF-8.
#[must_use]
pub fn decoded(text: &str) -> Option<String> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'%' => {
                let mut digit = || char::from(bytes.next()?).to_digit(16);
                let (high, low) = (digit()?, digit()?);
                u8::try_from(high * 16 + low).ok()?
            }
            other => other,
        });
    }
    String::from_utf8(out).ok()
}

/// Returns whether the text is a scheme by RFC 3986. A single letter is not, because it is a drive.
#[must_use]
pub fn is_scheme(text: &str) -> bool {
    text.len() > 1
        && text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
}

/// Returns the URL without secrets, for display.
///
/// Before the last `@`, everything after the user name is masked. If there is no user name, everything is masked,
/// because it may be a token. The values of settings whose names suggest a secret are masked as well.
#[must_use]
pub fn masked(text: &str) -> Box<str> {
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
            let settings: Vec<_> = settings.split('&').map(masked_setting).collect();
            format!("{before}?{}", settings.join("&"))
        }
        None => shown,
    };
    shown.escape_debug().to_string().into()
}

/// Returns the remedy for a connection attempt that failed with this text of the operating system or of a client.
#[must_use]
pub fn unreached(cause: &str) -> &'static str {
    let has = |parts: &[&str]| parts.iter().any(|part| cause.contains(part));
    if has(&["refused"]) {
        "check that the server is running, and the port"
    } else if has(&["lookup", "Name or service not known", "nodename nor servname"]) {
        "check the host name"
    } else if has(&["No such file", "Permission denied"]) {
        "check the path of the socket, and the permissions of its folders"
    } else if has(&["unreachable", "timed out", "No route"]) {
        "check the host, and the network with its firewalls"
    } else if has(&["reset", "EOF", "end of file", "roken pipe", "closed", "aborted"]) {
        "the server, or a proxy before it, closes the connection: check the host and port, whether it requires TLS, and its log"
    } else {
        "check the host and the port, and the log of the server"
    }
}

fn masked_setting(setting: &str) -> String {
    const SECRETS: [&str; 5] = ["pass", "pwd", "secret", "token", "key"];
    match setting.split_once('=') {
        Some((name, _)) if SECRETS.iter().any(|secret| name.to_ascii_lowercase().contains(secret)) => {
            format!("{name}=***")
        }
        _ => setting.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_url_is_parsed() {
        let found = authority("u:p%40@[::1]:7,b/x?y").unwrap();
        assert_eq!(
            found,
            Authority { user: Some("u:p%40"), hosts: vec![("[::1]", Some(7)), ("b", None)], tail: "/x?y" }
        );
        for address in ["[::1]", "[::]"] {
            assert_eq!(authority(address).unwrap().hosts, [(address, None)]);
        }
        for port in ["0", "65536"] {
            let error = authority(&format!("host:{port}")).unwrap_err();
            assert_eq!(error, format!("port {port} is not between 1 and 65535"));
        }
    }

    #[test]
    fn a_scheme_has_at_least_two_characters_and_begins_with_a_letter() {
        for (text, expected) in [
            ("redis", true),
            ("redis+tls", true),
            ("h2", true),
            ("", false),
            ("c", false),
            ("2h", false),
            ("re_dis", false),
        ] {
            assert_eq!(is_scheme(text), expected, "{text}");
        }
    }

    #[test]
    fn secrets_are_masked() {
        for (url, shown) in [
            ("redis://host/0", "redis://host/0"),
            ("redis://user:secret@host", "redis://user:***@host"),
            ("redis://token@host", "redis://***@host"),
            ("redis:user:secret@host", "redis:user:***@host"),
            ("secret@host", "***@host"),
            (
                "mysql://host/db?ssl=on&Password=secret&token=x&app=a",
                "mysql://host/db?ssl=on&Password=***&token=***&app=a",
            ),
        ] {
            assert_eq!(&*masked(url), shown);
        }
    }

    #[test]
    fn the_error_of_a_password_that_is_not_encoded_contains_the_remedy() {
        for rest in ["u:p@q@h", "u:p/q@h", "u:1/q@h", "u:p?q@h", "u:p#q@h", "u:100%@h", "u:%zz@h", "u:%4@h", "u:%ff@h"]
        {
            let error = authority(rest).unwrap_err();
            assert!(error.contains("percent-encode") && error.contains("%40"), "{rest}: {error}");
        }
    }

    #[test]
    fn codes_are_decoded() {
        assert_eq!(decoded("a%40b%25%C3%a9").as_deref(), Some("a@b%é"));
        assert_eq!(decoded("%+1"), None);
    }
}
