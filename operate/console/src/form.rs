//! Forms that a page of this console has sent.
use std::sync::Arc;

use axum::extract::{FromRequest, Request};
use http::header::{CONTENT_TYPE, ORIGIN};
use http::{HeaderMap, HeaderName};

use crate::error::PageError;
use crate::gate::{Visitor, host};
use crate::state::Shared;

/// The largest form, in bytes: the selected entries of one page.
const LARGEST: usize = 256 << 10;
/// Set by browsers, and not changeable by scripts of a page.
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// The fields of a form from this site. Everybody may send the form.
#[derive(Debug)]
pub(crate) struct OpenForm {
    pub(crate) fields: Fields,
    pub(crate) parts: http::request::Parts,
}

/// The fields of a form that the user of this request has loaded from this console, or of a request with a bearer token.
#[derive(Debug)]
pub(crate) struct UserForm {
    pub(crate) fields: Fields,
    pub(crate) visitor: Visitor,
    pub(crate) parts: http::request::Parts,
}

/// The fields of a form in their order. A name may occur several times.
#[derive(Debug)]
pub(crate) struct Fields(Vec<(String, String)>);

impl Fields {
    pub(crate) fn parse(text: &[u8]) -> Self {
        Self(form_urlencoded::parse(text).into_owned().collect())
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Returns the value of a field, or an empty text.
    pub(crate) fn get(&self, name: &str) -> &str {
        self.0.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value)
    }

    pub(crate) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

impl FromRequest<Arc<Shared>> for OpenForm {
    type Rejection = PageError;

    async fn from_request(request: Request, _: &Arc<Shared>) -> Result<Self, PageError> {
        let (parts, body) = request.into_parts();
        check_origin(&parts.headers, host(&parts.uri, &parts.headers))?;
        let kind = parts.headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        if kind.split(';').next() != Some("application/x-www-form-urlencoded") {
            return Err(PageError::Invalid("send the form as `application/x-www-form-urlencoded`".into()));
        }
        let body = axum::body::to_bytes(body, LARGEST).await.map_err(|_| PageError::TooLarge)?;
        Ok(Self { fields: Fields::parse(&body), parts })
    }
}

impl FromRequest<Arc<Shared>> for UserForm {
    type Rejection = PageError;

    async fn from_request(request: Request, shared: &Arc<Shared>) -> Result<Self, PageError> {
        let visitor = request.extensions().get::<Visitor>().cloned().ok_or(PageError::Unauthenticated)?;
        let OpenForm { fields, parts } = OpenForm::from_request(request, shared).await?;
        let is_own = match &visitor.session {
            Some(session) => shared.form_key.accepts(session, fields.get("token")),
            None => true,
        };
        if !is_own {
            tracing::warn!(user = visitor.user.name, "a form without a valid form token was refused");
            return Err(PageError::Forged);
        }
        Ok(Self { fields, visitor, parts })
    }
}

/// Refuses a request that a page of another site has sent.
fn check_origin(headers: &HeaderMap, host: Option<&str>) -> Result<(), PageError> {
    let text = |name: &HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
    let is_same_site = text(&FETCH_SITE).is_none_or(|site| site == "same-origin");
    let is_same_host = text(&ORIGIN).is_none_or(|origin| {
        let own = origin.split_once("://").map(|(_, host)| host);
        own.is_some() && own == host
    });
    if is_same_site && is_same_host { Ok(()) } else { Err(PageError::Forged) }
}

#[cfg(test)]
mod tests {
    use http::header::HOST;
    use http::{HeaderValue, Uri};

    use super::*;

    fn check(headers: &HeaderMap) -> Result<(), PageError> {
        check_origin(headers, host(&Uri::from_static("/plan"), headers))
    }

    #[test]
    fn only_requests_of_this_site_are_accepted() {
        let headers = |pairs: &[(&HeaderName, &'static str)]| {
            let pairs = pairs.iter().map(|(name, value)| ((*name).clone(), HeaderValue::from_static(value)));
            pairs.collect::<HeaderMap>()
        };
        for accepted in [
            headers(&[(&HOST, "a:80")]),
            headers(&[(&HOST, "a:80"), (&ORIGIN, "http://a:80"), (&FETCH_SITE, "same-origin")]),
        ] {
            assert_eq!(check(&accepted), Ok(()));
        }
        for refused in [
            headers(&[(&HOST, "a:80"), (&ORIGIN, "http://b:80")]),
            headers(&[(&HOST, "a:80"), (&ORIGIN, "http://a:81")]),
            headers(&[(&HOST, "a:80"), (&ORIGIN, "null")]),
            headers(&[(&ORIGIN, "null")]),
            headers(&[(&HOST, "a:80"), (&FETCH_SITE, "cross-site")]),
            headers(&[(&HOST, "a:80"), (&FETCH_SITE, "same-site")]),
        ] {
            assert_eq!(check(&refused), Err(PageError::Forged));
        }
    }

    #[test]
    fn the_host_of_http_2_is_in_the_uri() {
        let headers = HeaderMap::from_iter([(ORIGIN, HeaderValue::from_static("https://console.example"))]);
        let uri = |text| Uri::from_static(text);
        assert_eq!(check_origin(&headers, host(&uri("https://console.example/plan"), &headers)), Ok(()));
        assert_eq!(check_origin(&headers, host(&uri("https://evil.example/plan"), &headers)), Err(PageError::Forged));
    }
}
