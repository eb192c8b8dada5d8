//! The texts for duplicates that get no result, by language, and the languages that a caller prefers.
use std::fmt;
use std::sync::Arc;

/// The text for duplicates that get no result, in one or more languages.
///
/// A duplicate gets no result while its key is in flight, or if the policy [refuses](crate::OnConsumed::Refuse)
/// duplicates. The text is part of its [`Rejection`](crate::Rejection), and of the HTTP response.
///
/// [`ExecutorBuilder::duplicate_messages`](crate::ExecutorBuilder::duplicate_messages) sets the texts of an executor.
/// The argument `message` of the attribute overrides them for a function.
///
/// ```
/// use idempotent_core::{DuplicateMessages, PreferredLanguages};
///
/// let messages = DuplicateMessages::english_and_chinese().language("de", "Diese Anfrage ist bereits eingegangen.");
/// assert_eq!(messages.select(&PreferredLanguages::new(["zh-Hans-CN", "en"])).text(), "您操作太快，请稍后再试");
/// assert_eq!(messages.select(&PreferredLanguages::new(["fr", "de"])).language(), Some("de"));
/// assert_eq!(messages.select(&PreferredLanguages::new(["fr"])).language(), Some("en")); // the first is the default
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DuplicateMessages(Arc<[LocalizedText]>);

/// A text, and its language if that is known.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LocalizedText {
    language: Option<Box<str>>,
    text: Box<str>,
}

impl LocalizedText {
    /// Returns the text.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the language tag of the text, such as `en` (BCP 47), or `None` if the text was set without one.
    #[must_use]
    pub fn language(&self) -> Option<&str> {
        self.language.as_deref()
    }
}

const ENGLISH: &str = "This request was received already. Please wait before you try again.";
const CHINESE: &str = "您操作太快，请稍后再试";

impl DuplicateMessages {
    /// Creates messages with a default text of this language. `tag` is a language tag, such as `en` (BCP 47).
    #[must_use]
    pub fn new(tag: impl Into<Box<str>>, text: impl Into<Box<str>>) -> Self {
        Self(Arc::new([LocalizedText { language: Some(tag.into()), text: text.into() }]))
    }

    /// Creates messages with the texts that this crate ships: English, which is the default, and Chinese (`zh`).
    #[must_use]
    pub fn english_and_chinese() -> Self {
        Self::new("en", ENGLISH).language("zh", CHINESE)
    }

    /// Sets the text of a language, instead of an earlier text of this language. The first language stays the default.
    #[must_use]
    pub fn language(self, tag: impl Into<Box<str>>, text: impl Into<Box<str>>) -> Self {
        let new = LocalizedText { language: Some(tag.into()), text: text.into() };
        let mut texts = self.0.to_vec();
        let is_same = |old: &LocalizedText| old.language.as_deref().zip(new.language()).is_some_and(equal);
        match texts.iter_mut().find(|old| is_same(old)) {
            Some(old) => *old = new,
            None => texts.push(new),
        }
        Self(texts.into())
    }

    /// Returns the text in the most preferred language that has one, or the default text.
    ///
    /// A text matches a preferred language that is equal or more specific: `zh` matches `zh-Hans-CN`. This is the lookup
    /// of [RFC 4647, section 3.4](https://www.rfc-editor.org/rfc/rfc4647#section-3.4).
    #[must_use]
    pub fn select(&self, preferred: &PreferredLanguages) -> &LocalizedText {
        let find = |tag: &str| self.0.iter().find(|text| text.language().is_some_and(|own| equal((own, tag))));
        let found = preferred.0.iter().flat_map(|tags| tags.iter()).find_map(|range| {
            let mut tag = &**range;
            loop {
                match (find(tag), tag.rfind('-')) {
                    (Some(text), _) => return Some(text),
                    (None, Some(end)) => tag = &tag[..end],
                    (None, None) => return None,
                }
            }
        });
        found.unwrap_or(self.default_text())
    }

    /// Returns the default text.
    #[must_use]
    pub fn default_text(&self) -> &LocalizedText {
        // Invariant: every constructor sets a first text, and no method removes one.
        &self.0[0]
    }
}

/// Compares language tags, which are not case-sensitive.
fn equal((one, other): (&str, &str)) -> bool {
    one.eq_ignore_ascii_case(other)
}

/// Creates messages with one text of an unknown language.
impl From<&str> for DuplicateMessages {
    fn from(text: &str) -> Self {
        Self(Arc::new([LocalizedText { language: None, text: text.into() }]))
    }
}

/// Creates messages with one text of an unknown language.
impl From<String> for DuplicateMessages {
    fn from(text: String) -> Self {
        text.as_str().into()
    }
}

/// Creates messages with one text of an unknown language.
impl From<Arc<str>> for DuplicateMessages {
    fn from(text: Arc<str>) -> Self {
        (&*text).into()
    }
}

impl From<&Self> for DuplicateMessages {
    fn from(messages: &Self) -> Self {
        messages.clone()
    }
}

/// Shows the default text.
impl fmt::Display for DuplicateMessages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.default_text().text())
    }
}

/// The languages that a caller prefers, in descending order. The default is no preference.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct PreferredLanguages(pub(crate) Option<Arc<[Box<str>]>>);

impl PreferredLanguages {
    /// Creates preferences from language tags, such as `zh-Hans` (BCP 47). The most preferred tag is first.
    pub fn new<T: Into<Box<str>>>(tags: impl IntoIterator<Item = T>) -> Self {
        Self(Some(tags.into_iter().map(Into::into).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selected(preferred: &[&str]) -> String {
        let messages =
            DuplicateMessages::new("en", "english").language("zh-Hant", "traditional").language("DE", "german");
        messages.select(&PreferredLanguages::new(preferred.iter().copied())).text().to_owned()
    }

    #[test]
    fn a_text_is_selected_by_the_lookup_of_rfc_4647() {
        for (preferred, want) in [
            (&[][..], "english"),
            (&["fr"], "english"),
            (&["fr", "de-AT", "en"], "german"),
            (&["DE"], "german"),
            (&["zh-hant-TW"], "traditional"),
            // A text is not selected for a less specific preference.
            (&["zh", "de"], "german"),
            (&["", "-", "de-"], "german"),
        ] {
            assert_eq!(selected(preferred), want, "{preferred:?}");
        }
    }

    #[test]
    fn a_language_is_replaced_and_the_default_stays_first() {
        let messages = DuplicateMessages::new("en", "one").language("de", "zwei").language("EN", "two");
        assert_eq!((messages.0.len(), messages.default_text().text()), (2, "two"));
        assert_eq!(DuplicateMessages::from("plain").default_text().language(), None);
    }
}
