//! The text of a scope or a description, with cheap clones.
use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// A text that is a literal or shared. Each run clones the scope of its call several times.
#[derive(Clone)]
pub(crate) enum Name {
    Literal(&'static str),
    Shared(Arc<str>),
}

impl Deref for Name {
    type Target = str;

    fn deref(&self) -> &str {
        match self {
            Self::Literal(text) => text,
            Self::Shared(text) => text,
        }
    }
}

impl From<Cow<'static, str>> for Name {
    fn from(text: Cow<'static, str>) -> Self {
        match text {
            Cow::Borrowed(text) => Self::Literal(text),
            Cow::Owned(text) => Self::Shared(text.into()),
        }
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}
