//! The conversion of heads between the versions of the crate `http` that actix-web and the layer use.
use actix_web::HttpRequest;
use actix_web::http as actix;
use http::header::EXPECT;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Uri, Version};
use idempotent_tower::__private::RouteTemplate;

pub(crate) fn method(method: &actix::Method) -> Result<Method, http::Error> {
    Ok(Method::from_bytes(method.as_str().as_bytes())?)
}

/// Returns the head of a request for the functions of the layer.
pub(crate) fn request_head(request: &HttpRequest) -> Result<Parts, http::Error> {
    let mut head = Request::new(()).into_parts().0;
    head.method = method(request.method())?;
    head.uri = Uri::try_from(request.uri().to_string())?;
    head.version = version(request.version());
    head.headers = headers(request.headers());
    // The server has sent `100 Continue` before it called the service.
    head.headers.remove(EXPECT);
    if let Some(template) = request.match_pattern() {
        head.extensions.insert(RouteTemplate(template));
    }
    if let Some(peer) = request.peer_addr() {
        head.extensions.insert(peer);
    }
    Ok(head)
}

fn version(version: actix::Version) -> Version {
    match version {
        actix::Version::HTTP_09 => Version::HTTP_09,
        actix::Version::HTTP_10 => Version::HTTP_10,
        actix::Version::HTTP_2 => Version::HTTP_2,
        actix::Version::HTTP_3 => Version::HTTP_3,
        _ => Version::HTTP_11,
    }
}

pub(crate) fn status(status: actix::StatusCode) -> StatusCode {
    // Both versions accept the same numbers.
    StatusCode::from_u16(status.as_u16()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

pub(crate) fn actix_status(status: StatusCode) -> actix::StatusCode {
    // Both versions accept the same numbers.
    actix::StatusCode::from_u16(status.as_u16()).unwrap_or(actix::StatusCode::INTERNAL_SERVER_ERROR)
}

/// Converts headers. The lines of one name keep their order.
pub(crate) fn headers(headers: &actix::header::HeaderMap) -> HeaderMap {
    let mut converted = HeaderMap::with_capacity(headers.len());
    for (name, value) in headers {
        let name = HeaderName::from_bytes(name.as_str().as_bytes());
        // Both versions accept the same names and values, so no line is skipped.
        if let (Ok(name), Ok(mut line)) = (name, HeaderValue::from_bytes(value.as_bytes())) {
            line.set_sensitive(value.is_sensitive());
            converted.append(name, line);
        }
    }
    converted
}

/// Adds header lines in their order.
pub(crate) fn extend(to: &mut actix::header::HeaderMap, headers: &HeaderMap) {
    for (name, value) in headers {
        let name = actix::header::HeaderName::from_bytes(name.as_str().as_bytes());
        // Both versions accept the same names and values, so no line is skipped.
        if let (Ok(name), Ok(mut line)) = (name, actix::header::HeaderValue::from_bytes(value.as_bytes())) {
            line.set_sensitive(value.is_sensitive());
            to.append(name, line);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_version_of_http_is_kept() {
        for known in [Version::HTTP_09, Version::HTTP_10, Version::HTTP_11, Version::HTTP_2, Version::HTTP_3] {
            let names = |version: actix::Version| format!("{version:?}") == format!("{known:?}");
            let all = [
                actix::Version::HTTP_09,
                actix::Version::HTTP_10,
                actix::Version::HTTP_11,
                actix::Version::HTTP_2,
                actix::Version::HTTP_3,
            ];
            assert_eq!(all.into_iter().find(|of| names(*of)).map(version), Some(known));
        }
    }
}
