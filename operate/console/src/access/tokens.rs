//! The access tokens of a console, stored as hashes.
use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use tokio::time::Instant;

use super::{Role, User};
use crate::random;

/// The time for which a one-time token is valid.
const ONE_TIME: Duration = Duration::from_secs(600);

/// An error of a token file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// The file cannot be read.
    #[error("the token file `{path}` cannot be read: {error}")]
    File {
        /// The path.
        path: String,
        /// The error of the system.
        #[source]
        error: std::io::Error,
    },
    /// Other users of this machine can read the file.
    #[error("other users can read the token file `{path}` (mode {mode:03o}): run `chmod 600` on the file")]
    Mode {
        /// The path.
        path: String,
        /// The permission bits.
        mode: u32,
    },
    /// A line is malformed.
    #[error(
        "line {line} of the tokens: {rule}; expected `NAME:ROLE:SHA256`, such as the output of `printf %s \"$TOKEN\" | \
         sha256sum` after `ann:operator:`"
    )]
    Line {
        /// The number of the line, from 1 on.
        line: usize,
        /// The rule that the line breaks.
        rule: &'static str,
    },
    /// There is no token.
    #[error("the token list is empty, so that no user could log in: add a line `NAME:ROLE:SHA256`")]
    Empty,
    /// The operating system has no random numbers.
    #[error("the operating system has no random numbers: {0}")]
    Random(#[from] getrandom::Error),
}

/// The tokens that a console accepts. Only their hashes are in memory.
pub struct TokenList {
    entries: Vec<TokenEntry>,
}

struct TokenEntry {
    user: User,
    hash: [u8; 32],
    one_time: Option<OneTime>,
}

/// The state of a token that is valid once.
struct OneTime {
    until: Instant,
    is_used: AtomicBool,
}

impl fmt::Debug for TokenList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.entries.iter().map(|entry| &entry.user)).finish()
    }
}

impl TokenList {
    /// Reads a file with one token per line, as `NAME:ROLE:SHA256`. `SHA256` is the hash of the token in hexadecimal digits.
    /// Empty lines and lines that begin with `#` are ignored.
    ///
    /// A token has no length limit. Use at least 128 random bits, such as the output of `openssl rand -hex 32`.
    ///
    /// # Errors
    /// The file cannot be read, has no token or a malformed line, or on Unix is readable for other users. A file of root may be
    /// readable for its group: Kubernetes mounts secrets in this form for a process that is not root.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, TokenError> {
        let path = path.as_ref();
        let shown = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|error| TokenError::File { path: shown.clone(), error })?;
        #[cfg(unix)]
        {
            let file = std::fs::metadata(path).map_err(|error| TokenError::File { path: shown.clone(), error })?;
            let mode = std::os::unix::fs::PermissionsExt::mode(&file.permissions()) & 0o777;
            if is_open(std::os::unix::fs::MetadataExt::uid(&file), mode) {
                return Err(TokenError::Mode { path: shown, mode });
            }
        }
        Self::parse(&text)
    }

    /// Parses the text of a token file. See [`open`](Self::open).
    ///
    /// # Errors
    /// The text has no token or a malformed line.
    pub fn parse(text: &str) -> Result<Self, TokenError> {
        let lines = (1..).zip(text.lines().map(str::trim));
        let lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
        let mut entries: Vec<TokenEntry> = Vec::new();
        for (line, text) in lines {
            let entry = TokenEntry::parse(text).map_err(|rule| TokenError::Line { line, rule })?;
            if entries.iter().any(|other| other.hash == entry.hash) {
                return Err(TokenError::Line { line, rule: "another line has the same token" });
            }
            entries.push(entry);
        }
        if entries.is_empty() { Err(TokenError::Empty) } else { Ok(Self { entries }) }
    }

    /// Creates a list with one random token, which is valid for one login within 10 minutes. Returns the token, too.
    ///
    /// # Errors
    /// The operating system has no random numbers.
    pub fn one_time(user: User) -> Result<(Self, String), TokenError> {
        let token = random::hex()?;
        let one_time = OneTime { until: Instant::now() + ONE_TIME, is_used: AtomicBool::new(false) };
        let entry = TokenEntry { user, hash: Sha256::digest(&token).into(), one_time: Some(one_time) };
        Ok((Self { entries: vec![entry] }, token))
    }

    /// Returns the user of a token. Compares with all entries in constant time.
    pub(crate) fn user(&self, token: &str) -> Option<User> {
        let hash: [u8; 32] = Sha256::digest(token).into();
        let mut found = None;
        for entry in &self.entries {
            if bool::from(entry.hash.ct_eq(&hash)) {
                found = Some(entry);
            }
        }
        found.filter(|entry| entry.admit()).map(|entry| entry.user.clone())
    }
}

/// Returns whether others than the owner can use a file, or for a file of root, others than its group.
#[cfg(unix)]
fn is_open(owner: u32, mode: u32) -> bool {
    let others = if owner == 0 { 0o037 } else { 0o077 };
    mode & others != 0
}

impl TokenEntry {
    fn parse(line: &str) -> Result<Self, &'static str> {
        let mut fields = line.split(':');
        let (Some(name), Some(role), Some(hash), None) = (fields.next(), fields.next(), fields.next(), fields.next())
        else {
            return Err("it has not three fields");
        };
        if name.is_empty() || name.len() > 255 || name.contains(char::is_control) {
            return Err("the name has not 1 to 255 bytes without control characters");
        }
        let roles = [Role::Viewer, Role::Operator, Role::Admin];
        let role = roles.into_iter().find(|known| known.name() == role);
        let role = role.ok_or("the role is not `viewer`, `operator` or `admin`")?;
        let hash = unhex(hash).ok_or("the hash has not 64 hexadecimal digits")?;
        Ok(Self { user: User::new(name, role), hash, one_time: None })
    }

    /// Returns whether the token is valid now, and uses up a one-time token.
    fn admit(&self) -> bool {
        self.one_time
            .as_ref()
            .is_none_or(|once| Instant::now() < once.until && !once.is_used.swap(true, Ordering::Relaxed))
    }
}

fn unhex(text: &str) -> Option<[u8; 32]> {
    let bytes = text.as_bytes();
    if bytes.len() != 64 || !bytes.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    let mut hash = [0; 32];
    for (byte, pair) in hash.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(hash)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn hash(token: &str) -> String {
        Sha256::digest(token).iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn a_token_names_its_user_and_another_token_none() {
        let text = format!("# team\n\nann:operator:{}\nbob:viewer:{}\n", hash("secret-a"), hash("secret-b"));
        let tokens = TokenList::parse(&text).unwrap();
        assert_eq!(tokens.user("secret-a"), Some(User::new("ann", Role::Operator)));
        assert_eq!(tokens.user("secret-b"), Some(User::new("bob", Role::Viewer)));
        assert_eq!(tokens.user("secret-"), None);
        assert!(!format!("{tokens:?}").contains(&hash("secret-a")));
    }

    #[test]
    fn a_malformed_line_is_named_by_its_number_and_its_rule() {
        let good = hash("a");
        let cases = [
            ("ann".to_owned(), "three fields"),
            (format!("ann:operator:{good}:x"), "three fields"),
            (format!(":operator:{good}"), "the name"),
            (format!("ann:root:{good}"), "the role"),
            (format!("ann:admin:{}", &good[1..]), "the hash"),
            (format!("ann:admin:{}x", &good[1..]), "the hash"),
            (format!("bob:viewer:{good}"), "same token"),
        ];
        for (line, rule) in cases {
            let error = TokenList::parse(&format!("ann:viewer:{good}\n{line}\n")).unwrap_err().to_string();
            assert!(error.starts_with("line 2 ") && error.contains(rule), "{error}");
        }
        assert!(matches!(TokenList::parse("# none\n"), Err(TokenError::Empty)));
        for (name, is_valid) in [("n".repeat(255), true), ("n".repeat(256), false), ("a\tb".to_owned(), false)] {
            assert_eq!(TokenList::parse(&format!("{name}:viewer:{good}")).is_ok(), is_valid, "{name}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_one_time_token_is_valid_once_and_for_ten_minutes() {
        let (tokens, token) = TokenList::one_time(User::new("ann", Role::Admin)).unwrap();
        assert!(tokens.user(&token).is_some() && tokens.user(&token).is_none());
        let (tokens, token) = TokenList::one_time(User::new("ann", Role::Admin)).unwrap();
        tokio::time::advance(ONE_TIME).await;
        assert!(tokens.user(&token).is_none());
    }

    #[cfg(unix)]
    #[test]
    fn a_file_that_others_can_read_is_refused() {
        use std::os::unix::fs::PermissionsExt;

        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), format!("ann:admin:{}\n", hash("a"))).unwrap();
        for (mode, is_refused) in [(0o600, false), (0o660, true), (0o604, true)] {
            std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(matches!(TokenList::open(file.path()), Err(TokenError::Mode { .. })), is_refused, "{mode:o}");
        }
        assert!(matches!(TokenList::open("missing"), Err(TokenError::File { .. })));
        for (owner, mode, refused) in [
            (0, 0o440, false),
            (0, 0o640, false),
            (0, 0o660, true),
            (0, 0o444, true),
            (65_532, 0o400, false),
            (65_532, 0o440, true),
        ] {
            assert_eq!(is_open(owner, mode), refused, "{owner} {mode:o}");
        }
    }
}
