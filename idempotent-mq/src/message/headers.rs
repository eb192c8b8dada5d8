//! Headers of a message.
use std::fmt;

/// The names of the W3C headers that contain the trace context of a message. An outbox does not compare them: a message that is
/// written again in another trace is the same message.
pub const TRACE_HEADERS: [&str; 2] = ["traceparent", "tracestate"];

/// The headers of a message: an ordered list of names and byte values, in which a name may occur several times.
#[derive(Clone, Default, Eq, PartialEq)]
pub struct Headers(Vec<(String, Vec<u8>)>);

impl Headers {
    /// Appends a header.
    pub fn push(&mut self, name: impl Into<String>, value: impl Into<Vec<u8>>) {
        self.0.push((name.into(), value.into()));
    }

    /// Removes all values of this name.
    pub fn remove(&mut self, name: &str) {
        self.0.retain(|(known, _)| known != name);
    }

    /// Returns the first value of this name. Names are compared byte for byte.
    #[must_use]
    pub fn first(&self, name: &str) -> Option<&[u8]> {
        self.iter().find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    /// Returns all values of this name, in order.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        self.iter().filter(move |(known, _)| *known == name).map(|(_, value)| value)
    }

    /// Returns all names and values, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_slice()))
    }

    /// Returns the number of headers.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns true if there are no headers.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<N: Into<String>, V: Into<Vec<u8>>> FromIterator<(N, V)> for Headers {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(headers: I) -> Self {
        Self(headers.into_iter().map(|(name, value)| (name.into(), value.into())).collect())
    }
}

/// Shows the names only.
impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter().map(|(name, _)| name)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removing_a_name_removes_all_its_values_and_no_others() {
        let mut headers: Headers = [("a", "1"), ("b", "2"), ("a", "3")].into_iter().collect();
        assert_eq!((headers.len(), headers.is_empty()), (3, false));
        headers.remove("a");
        assert_eq!(headers.iter().collect::<Vec<_>>(), [("b", &b"2"[..])]);
        headers.remove("b");
        assert_eq!((headers.len(), headers.is_empty()), (0, true));
    }
}
