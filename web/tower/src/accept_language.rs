//! The languages that a request prefers, by its header `Accept-Language`.
use std::cmp::Reverse;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::header::ACCEPT_LANGUAGE;
use http::{HeaderValue, Request};
use idempotent_core::PreferredLanguages;
use tower_layer::Layer;
use tower_service::Service;

/// The number of language ranges of one request that count. A browser sends about five.
const MAX_RANGES: usize = 32;

/// A layer that passes the languages of each request to the annotated functions inside, so that a rejected duplicate
/// receives its text in the caller's language.
///
/// [`IdempotencyLayer`](crate::IdempotencyLayer) reads the header itself and does not need this layer. The texts are
/// those of [`DuplicateMessages`](idempotent_core::DuplicateMessages).
///
/// ```
/// use idempotent_core::{DuplicateMessages, Executor, MemoryStore};
/// use idempotent_tower::AcceptLanguageLayer;
///
/// let executor = Executor::builder(MemoryStore::new())
///     .duplicate_messages(DuplicateMessages::english_and_chinese())
///     .build()?;
/// let app: axum::Router = axum::Router::new().layer(AcceptLanguageLayer::new());
/// # Ok::<_, idempotent_core::PolicyError>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
#[must_use]
pub struct AcceptLanguageLayer(());

impl AcceptLanguageLayer {
    /// Creates the layer.
    pub fn new() -> Self {
        Self::default()
    }
}

impl<S> Layer<S> for AcceptLanguageLayer {
    type Service = AcceptLanguageService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        AcceptLanguageService(inner)
    }
}

/// The service of an [`AcceptLanguageLayer`].
#[derive(Clone, Debug)]
pub struct AcceptLanguageService<S>(S);

impl<S, B> Service<Request<B>> for AcceptLanguageService<S>
where
    S: Service<Request<B>, Future: Send + 'static>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let languages = preferred(request.headers().get_all(ACCEPT_LANGUAGE));
        Box::pin(languages.scope(self.0.call(request)))
    }
}

/// Returns the languages in descending order of their weights, by
/// [RFC 9110, section 12.5.4](https://www.rfc-editor.org/rfc/rfc9110#section-12.5.4).
///
/// A malformed range and one of weight zero do not count. Neither does `*`: without another match, the default text is
/// selected anyway.
pub(crate) fn preferred<'a>(lines: impl IntoIterator<Item = &'a HeaderValue>) -> PreferredLanguages {
    let lines = lines.into_iter().filter_map(|line| line.to_str().ok());
    let mut ranges: Vec<_> = lines.flat_map(|line| line.split(',')).filter_map(range).take(MAX_RANGES).collect();
    if ranges.is_empty() {
        return PreferredLanguages::default();
    }
    ranges.sort_by_key(|(_, weight)| Reverse(*weight));
    PreferredLanguages::new(ranges.into_iter().map(|(tag, _)| tag))
}

/// Parses a tag and its weight in thousandths.
fn range(item: &str) -> Option<(&str, u16)> {
    let (tag, weight) = match item.split_once(';') {
        Some((tag, parameter)) => (tag, weight(parameter.trim())?),
        None => (item, 1_000),
    };
    let tag = tag.trim();
    let is_tag = !tag.is_empty() && tag.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    (is_tag && weight > 0).then_some((tag, weight))
}

/// Parses `q=0.8`. A weight has at most three decimals.
fn weight(parameter: &str) -> Option<u16> {
    let value = parameter.strip_prefix("q=").or_else(|| parameter.strip_prefix("Q="))?;
    let (whole, decimals) = value.split_once('.').unwrap_or((value, ""));
    let is_weight = matches!(whole, "0" | "1") && decimals.len() <= 3 && decimals.bytes().all(|at| at.is_ascii_digit());
    let weight = format!("{whole}{decimals:0<3}").parse().ok().filter(|_| is_weight)?;
    (weight <= 1_000).then_some(weight)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn of(lines: &[&str]) -> PreferredLanguages {
        let lines: Vec<HeaderValue> = lines.iter().map(|line| line.parse().unwrap()).collect();
        preferred(&lines)
    }

    #[test]
    fn languages_are_in_the_order_of_their_weights() {
        for (lines, want) in [
            (&["da, en-gb;q=0.8, en;q=0.7"][..], &["da", "en-gb", "en"][..]),
            (&["en;q=0.1,zh-Hans-CN", "de ; q=0.5"], &["zh-Hans-CN", "de", "en"]),
            (&["a;q=1.000, b, c;q=0.999"], &["a", "b", "c"]),
        ] {
            assert_eq!(of(lines), PreferredLanguages::new(want.iter().copied()), "{lines:?}");
        }
    }

    #[test]
    fn malformed_and_unacceptable_ranges_do_not_count() {
        for line in [
            "",
            "*",
            "en;q=0",
            "en;q=0.000",
            "en;q=NaN",
            "en;q=2",
            "en;q=1.5",
            "en;q=0.1234",
            "en;q=0.0001",
            "en;q=.5",
            "en;q=00.5",
            "en;q=0.+5",
            "en;q=-1",
            "e n",
            ";q=1",
            "en;x",
        ] {
            assert_eq!(of(&[line]), PreferredLanguages::default(), "{line:?}");
        }
        assert_eq!(of(&["en;q=, de;q=0.5, *;q=0.1"]), PreferredLanguages::new(["de"]));
    }

    #[test]
    fn a_hostile_header_costs_a_bounded_amount() {
        let line = vec!["x"; 10_000].join(",");
        assert_eq!(of(&[&line]), PreferredLanguages::new(vec!["x"; MAX_RANGES]));
    }

    /// A service that is never ready.
    struct BusyService;

    impl Service<Request<()>> for BusyService {
        type Response = ();
        type Error = ();
        type Future = std::future::Ready<Result<(), ()>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ()>> {
            Poll::Pending
        }

        fn call(&mut self, _: Request<()>) -> Self::Future {
            std::future::ready(Ok(()))
        }
    }

    #[test]
    fn the_service_is_ready_when_the_inner_one_is() {
        let mut service = AcceptLanguageLayer::new().layer(BusyService);
        assert!(service.poll_ready(&mut Context::from_waker(std::task::Waker::noop())).is_pending());
    }
}
